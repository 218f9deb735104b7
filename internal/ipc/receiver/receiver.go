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

// Store is what the receiver needs of the database.
type Store interface {
	Observe(ctx context.Context, sc ckpt.Scope, spans []observed.Span, content observed.Content) (*observed.Counts, error)
	// OwnerOfToken is whom a token names. Its error is denied for every other text.
	OwnerOfToken(ctx context.Context, token string) (owner string, err error)
	// Refused records a refusal in the audit log.
	Refused(ctx context.Context, sc ckpt.Scope, r ckpt.Refusal)
}

// Options are what a receiver is made of. Store is required.
type Options struct {
	Store           Store
	Log             *slog.Logger // nil for none
	Content         observed.Content
	Now             func() time.Time // the wall clock; nil means the system's
	WritesPerSecond int              // requests of one owner; 0 for no limit
	Connections     int              // of one owner, and four times as many of all; 0 means 256
}

// The bounds of the work.
const (
	sentBytes     = 2 * otlp.MaxBody // memory for the bodies of one owner as they were sent
	ownerBytes    = 64 << 20         // and for what they are decoded to
	allBytes      = 4 * ownerBytes
	patience      = 8 * time.Second // exporters give up after 10
	readTime      = 30 * time.Second
	headerTime    = 10 * time.Second
	idleTime      = 10 * time.Minute
	recordedAfter = time.Second // a wrong token is recorded so often at most
)

// Receiver takes spans. Make it with New.
type Receiver struct {
	opt  Options
	log  *slog.Logger
	http *http.Server
	grpc http.Handler

	mu     sync.Mutex
	owners map[string]*owner
	all    *semaphore.Weighted
	wrong  rate.Sometimes // wrong tokens that are recorded

	connections                              atomic.Int64
	step, usage, ignored, duplicate, refused atomic.Int64
}

// Counts say what became of the spans since the start. Which of them were late
// the store knows.
func (r *Receiver) Counts() ckpt.SpanCounts {
	return ckpt.SpanCounts{
		Step: r.step.Load(), Usage: r.usage.Load(), Ignored: r.ignored.Load(), Duplicate: r.duplicate.Load(), Refused: r.refused.Load(),
	}
}

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

// owner is what one owner has in work.
type owner struct {
	sent, bytes *semaphore.Weighted // memory for bodies as they were sent, and decoded
	writes      *rate.Limiter
	connections atomic.Int64
}
