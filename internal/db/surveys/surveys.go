package surveys

import (
	"sync"
	"time"

	ckpt "github.com/ckptsidecar/ckptsidecar"
	"github.com/ckptsidecar/ckptsidecar/internal/db/ledger"
)

// Surveys answers the calls that look over many runs.
type Surveys struct {
	core *ledger.Core

	mu   sync.Mutex
	same map[overviewKey]remembered // the last answers, by owner and query
}

// New makes a Surveys for a store.
func New(c *ledger.Core) *Surveys { return &Surveys{core: c, same: map[overviewKey]remembered{}} }

// everybodys is the scope of a call about many agents: for an administrator who names no owner, it
// is all owners.
func everybodys(sc ckpt.Scope) ckpt.Scope {
	if sc.Admin && sc.Target == "" {
		sc.Target = ckpt.AllOwners
	}
	return sc
}

// axis divides a time into bins of equal length.
type axis struct {
	from time.Time
	bin  time.Duration
	bins int
}

// at is the bin of an instant, and whether the instant is on the axis.
func (a axis) at(t time.Time) (int, bool) {
	if t.Before(a.from) {
		return 0, false
	}
	i := int(t.Sub(a.from) / a.bin)
	return i, i < a.bins
}

// start is the time at which a bin begins.
func (a axis) start(i int) ckpt.Time { return ckpt.At(a.from.Add(time.Duration(i) * a.bin)) }

// to is the time at which the axis ends.
func (a axis) to() ckpt.Time { return a.start(a.bins) }

// worse is the worse of two severities; "" is none.
func worse(a, b ckpt.Severity) ckpt.Severity {
	if rank(b) > rank(a) {
		return b
	}
	return a
}

func rank(s ckpt.Severity) int {
	switch s {
	case ckpt.SeverityCritical:
		return 3
	case ckpt.SeverityWarn:
		return 2
	case ckpt.SeverityInfo:
		return 1
	}
	return 0
}
