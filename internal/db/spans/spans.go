package spans

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/ckptsidecar/ckptsidecar/internal/db/driftlog"
	"github.com/ckptsidecar/ckptsidecar/internal/drift/observer"
	"github.com/ckptsidecar/ckptsidecar/internal/otlp/observed"
)

// Spans stores what is observed through OpenTelemetry.
type Spans struct {
	*driftlog.Drifts
	traces   traces
	late     atomic.Int64
	settling sync.Mutex
	recalled bool     // spans that an earlier daemon left waiting are known
	clean    sync.Map // names in which no secret was found
	named    int
	nameMu   sync.Mutex
}

// New makes a Spans for a store.
func New(d *driftlog.Drifts) *Spans {
	s := &Spans{Drifts: d}
	s.traces.of = map[traceKey]*trace{}
	return s
}

// LateSpans is how many tool calls came too late for their place in the order.
func (s *Spans) LateSpans() int64 { return s.late.Load() }

// The bounds of waiting.
const (
	waitMost  = 10 * time.Second // for the root of a trace
	waitQuiet = time.Second      // for more spans, after the root has come
	waiting   = 4096             // the most spans of one trace
	endTrace  = time.Minute      // a run that is named for its trace ends this long after its root
	endQuiet  = 30 * time.Minute // and any other run this long after its last span
	liveRuns  = 1000             // observed runs of one owner; beyond that, those that would end next are ended
)

// said is what is known of a span while it waits.
type said struct {
	observed.Span
	inner      bool   // it is below a span of the same call of a model, which has its usage
	Sig        string `json:"sig,omitempty"`
	Res        string `json:"res,omitempty"`
	Cause      string `json:"cause,omitempty"`
	Shape      string `json:"shape,omitempty"`
	Effect     string `json:"effect,omitempty"`
	Negative   bool   `json:"negative,omitempty"`
	Unparsable bool   `json:"unparsable,omitempty"`
}

// print is the span in the form for the drift detectors.
func (s *said) print(turn string) observer.StepPrint {
	return observer.StepPrint{
		Key: s.Key(), Tool: s.Name, Sig: s.Sig, Res: s.Res, Cause: s.Cause, Shape: s.Shape, Effect: s.Effect, Turn: turn,
		Failed: s.Failed, Negative: s.Negative, Unparsable: s.Unparsable, Began: s.Began.Time, At: s.Ended.Time, Measures: s.Measures,
	}
}
