package receiver

import (
	"context"
	"log/slog"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/semaphore"
	"golang.org/x/time/rate"

	ckpt "github.com/ckptsidecar/ckptsidecar"
	"github.com/ckptsidecar/ckptsidecar/internal/otlp"
	"github.com/ckptsidecar/ckptsidecar/internal/otlp/observed"
)

// Store is what the receiver needs from the database.
type Store interface {
	Observe(ctx context.Context, sc ckpt.Scope, spans []observed.Span, content observed.Content) (*observed.Counts, error)
	// OwnerOfToken returns the owner that a token names. For every other text, the error
	// has the code denied.
	OwnerOfToken(ctx context.Context, token string) (owner string, err error)
	// Refused records a refusal in the audit log.
	Refused(ctx context.Context, sc ckpt.Scope, r ckpt.Refusal)
}

// Options are the settings and dependencies of a receiver. Store is required.
type Options struct {
	Store           Store
	Log             *slog.Logger // nil for none
	Content         observed.Content
	Now             func() time.Time // the wall clock; nil means the system's
	WritesPerSecond int              // requests of one owner; 0 means no limit
	Connections     int              // of one owner; the limit for all owners is four times as high; 0 means 256
	Strangers       int              // connections that have shown no token yet; 0 means 256
	TokenTime       time.Duration    // until a connection must have shown a token; 0 means 5 s
}

// The limits of the work.
const (
	sentBytes     = 2 * otlp.MaxBody // memory for the bodies of one owner as they were sent
	ownerBytes    = 64 << 20         // and for the decoded bodies
	allBytes      = 4 * ownerBytes
	patience      = 8 * time.Second // exporters give up after 10
	readTime      = 30 * time.Second
	headerTime    = 10 * time.Second
	idleTime      = 10 * time.Minute
	recordedAfter = time.Second // a wrong token is recorded at most once in this time
)

// Receiver receives spans. Create it with New.
type Receiver struct {
	opt  Options
	log  *slog.Logger
	http *http.Server
	grpc http.Handler

	mu     sync.Mutex
	owners map[string]*owner
	all    *semaphore.Weighted
	wrong  rate.Sometimes // limits the recording of wrong tokens

	strangers                                strangers
	connections                              atomic.Int64 // of owners
	closed                                   atomic.Int64 // connections that were above a limit, or showed no token in time
	step, usage, ignored, duplicate, refused atomic.Int64
}

// Counts returns what happened to the spans since the start. The store knows which of
// them were late.
func (r *Receiver) Counts() ckpt.SpanCounts {
	return ckpt.SpanCounts{
		Step: r.step.Load(), Usage: r.usage.Load(), Ignored: r.ignored.Load(), Duplicate: r.duplicate.Load(), Refused: r.refused.Load(),
	}
}

// Closed is how many connections were closed since the start because they were above a limit, or because they showed no token in time.
func (r *Receiver) Closed() int64 { return r.closed.Load() }

func (r *Receiver) owner(name string) *owner {
	r.mu.Lock()
	defer r.mu.Unlock()
	o := r.owners[name]
	if o == nil {
		limit := rate.Inf
		if n := r.opt.WritesPerSecond; n > 0 {
			limit = rate.Limit(n)
		}
		o = &owner{sent: semaphore.NewWeighted(sentBytes), bytes: semaphore.NewWeighted(ownerBytes),
			writes: rate.NewLimiter(limit, max(1, r.opt.WritesPerSecond))}
		r.owners[name] = o
	}
	return o
}

// owner is the work of one owner that is in progress.
type owner struct {
	sent, bytes *semaphore.Weighted // memory for bodies as they were sent, and decoded
	writes      *rate.Limiter
	connections atomic.Int64
}
