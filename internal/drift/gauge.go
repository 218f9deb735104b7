package drift

import (
	"fmt"
	"math"

	ckpt "github.com/ckptsidecar/ckptsidecar"
	"github.com/ckptsidecar/ckptsidecar/internal/drift/observer"
	"github.com/ckptsidecar/ckptsidecar/internal/drift/phrase"
)

// The constants of a gauge: the slack of its sum and the most that one step adds to it,
// both in standard deviations, and the least standard deviation as a fraction of the
// mean. One slow step alone means nothing, however long it took.
const (
	gaugeSlack      = 0.5
	gaugeMost       = 4.0
	gaugeLeastDev   = 0.05
	gaugeFar        = 10 // times the baseline
	gaugeFarRow     = 5  // so many calls in a row
	gaugeFarLeast   = 10 // a baseline below so many milliseconds or tokens counts as so many
	gaugeCeiling    = 4  // times the threshold, so that the sum can go down again
	maxKindsOfCalls = 256
)

// gauge watches one measure of each kind of calls. It has a baseline, which the first
// steps define and which then stays fixed, and a one-sided cumulative sum of what exceeds
// the baseline.
type gauge struct {
	rule  string
	what  string // "took"
	unit  string
	set   setting
	kinds map[work]*baseline
}

// work is a kind of calls that are compared with each other: one tool and one shape. A
// tool that runs commands has one kind for each command.
type work struct {
	tool  string
	shape uint64
}

func workOf(p *observer.StepPrint) work { return work{p.Tool, number(p.Shape)} }

// baseline is the measure of the first calls of a kind, and the cumulative sum of the
// later calls.
type baseline struct {
	n        int
	mean, m2 float64
	sum      float64  // the excess over the mean, in standard deviations
	steps    []string // since the sum was 0: their keys, count, total, and the checkpoint before
	count    int
	total    float64
	afterSeq int64
	far      int     // calls in a row that are far above the mean
	farTotal float64 // their sum
}

func durationGauge() *gauge {
	return &gauge{rule: RuleLatencyDrift, what: "took", unit: "ms", kinds: map[work]*baseline{}}
}

func tokenGauge() *gauge {
	return &gauge{rule: RuleTokenDrift, what: "used", unit: "tokens", kinds: map[work]*baseline{}}
}

// value returns what a step measured, if it did. The token gauge watches the tokens that
// the model wrote. If only the tokens that the model read are known, it watches those,
// which grow with every step of a conversation. (This is no function in a field of the
// gauge, because that would move every print to the heap.)
func (g *gauge) value(p *observer.StepPrint) (float64, bool) {
	switch {
	case g.rule == RuleLatencyDrift:
		return valueOf(p.DurationMS)
	case p.OutputTokens != nil:
		return valueOf(p.OutputTokens)
	}
	return valueOf(p.InputTokens)
}

func valueOf(n *int64) (float64, bool) {
	if n == nil {
		return 0, false
	}
	return float64(*n), true
}

// of returns the baseline of a kind of calls, or nil if there are too many kinds.
func (g *gauge) of(k work) *baseline {
	b := g.kinds[k]
	if b == nil && len(g.kinds) < maxKindsOfCalls {
		b = &baseline{}
		g.kinds[k] = b
	}
	return b
}

// learn adds a step to the baseline of its kind during the warm-up.
func (g *gauge) learn(p *observer.StepPrint, warmUp int) {
	if x, ok := g.value(p); ok {
		if b := g.of(workOf(p)); b != nil && b.n < warmUp {
			b.learn(x)
		}
	}
}

// learn uses Welford's method: mean and variance in one pass.
func (b *baseline) learn(x float64) {
	b.n++
	d := x - b.mean
	b.mean += d / float64(b.n)
	b.m2 += d * (x - b.mean)
}

func (b *baseline) deviation() float64 {
	return max(math.Sqrt(b.m2/float64(max(1, b.n-1))), gaugeLeastDev*math.Abs(b.mean), 1)
}

// step counts a step and returns the baseline of its kind if calls of the kind have
// drifted.
func (g *gauge) step(p *observer.StepPrint, set setting) *baseline {
	x, ok := g.value(p)
	if !ok {
		return nil
	}
	b := g.of(workOf(p))
	if b == nil {
		return nil
	}
	if b.n < set.warn.window {
		b.learn(x)
		return nil
	}
	b.add(p, x, set.warn.value)
	if x < set.far*max(b.mean, gaugeFarLeast) {
		b.far, b.farTotal = 0, 0
	} else {
		b.far, b.farTotal = b.far+1, b.farTotal+x
	}
	if b.sum > set.warn.value {
		return b
	}
	return nil
}

func (b *baseline) add(p *observer.StepPrint, x, threshold float64) {
	b.sum += min((x-b.mean)/b.deviation(), gaugeMost) - gaugeSlack
	if b.sum <= 0 {
		b.forget()
		return
	}
	b.sum = min(b.sum, gaugeCeiling*threshold)
	if b.count == 0 {
		b.afterSeq = p.AfterSeq
	}
	b.count++
	b.total += x
	if len(b.steps) < ckpt.MaxEvidence {
		b.steps = append(b.steps, p.Key)
	} else {
		b.steps[ckpt.MaxEvidence-1] = p.Key
	}
}

// forget resets the sum to 0; the baseline stays.
func (b *baseline) forget() {
	b.sum, b.count, b.total, b.steps, b.far, b.farTotal = 0, 0, 0, b.steps[:0], 0, 0
}

// gaugeTier returns the severity of a finding about a baseline.
func (s setting) gaugeTier(b *baseline) ckpt.Severity {
	if b.far >= gaugeFarRow {
		return s.farOne
	}
	return s.one
}

func (g *gauge) forget() {
	for _, b := range g.kinds {
		b.forget()
	}
}

func (g *gauge) tell(p *observer.StepPrint, b *baseline, set setting) observer.Found {
	if b.far >= gaugeFarRow {
		return g.tellFar(p, b, set)
	}
	now := b.total / float64(b.count)
	return observer.Found{
		Rule: g.rule, Severity: set.one, SinceSeq: b.afterSeq,
		Message: fmt.Sprintf("%s %s %s %s on average over its last %s; its baseline of %s is %s.",
			p.Tool, g.what, phrase.Figure(now), g.unit, phrase.Count(b.count, "step"), phrase.Count(b.n, "step"), phrase.Figure(b.mean)),
		Advice: fmt.Sprintf("%s needs %s %s now; it used to need %s. Request less at a time, or use something "+
			"else, and save your state before you continue.", p.Tool, phrase.Figure(now), g.unit, phrase.Figure(b.mean)),
		Evidence: ckpt.Evidence{
			Threshold: fmt.Sprintf("a sum of %s standard deviations of %s above %s", phrase.Figure(set.warn.value),
				phrase.Figure(b.deviation()), phrase.Figure(b.mean)),
			Observed: fmt.Sprintf("%s standard deviations, %s on average", phrase.Figure(b.sum), phrase.Figure(now)),
			Window:   b.count, Tool: p.Tool, Steps: append([]string(nil), b.steps...),
		},
	}
}

func (g *gauge) tellFar(p *observer.StepPrint, b *baseline, set setting) observer.Found {
	now, times := b.farTotal/float64(b.far), phrase.Figure(set.far)
	return observer.Found{
		Rule: g.rule, Severity: set.farOne, SinceSeq: b.afterSeq,
		Message: fmt.Sprintf("%s %s %s %s on average over its last %s, each time more than %s times its baseline of %s.",
			p.Tool, g.what, phrase.Figure(now), g.unit, phrase.Count(b.far, "step"), times, phrase.Figure(b.mean)),
		Advice: fmt.Sprintf("%s needs %s %s now; it used to need %s. Find out why before you call it again, and save your state.",
			p.Tool, phrase.Figure(now), g.unit, phrase.Figure(b.mean)),
		Evidence: ckpt.Evidence{
			Threshold: fmt.Sprintf("%s times %s, %s in a row", times, phrase.Figure(max(b.mean, gaugeFarLeast)), phrase.Count(gaugeFarRow, "step")),
			Observed:  fmt.Sprintf("%s in a row, %s on average", phrase.Count(b.far, "step"), phrase.Figure(now)),
			Window:    b.far, Tool: p.Tool, Steps: append([]string(nil), b.steps...),
		},
	}
}
