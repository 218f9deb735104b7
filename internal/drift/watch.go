package drift

import (
	"time"

	ckpt "github.com/ckptsidecar/ckptsidecar"
)

// New is the watch that the store uses.
func New() ckpt.DriftWatch { return &watch{} }

// watch has no state but what it has compiled.
type watch struct{}

func (w *watch) Step(p *ckpt.Policy, r ckpt.RuleRun, s *ckpt.Step) ckpt.StepPrint {
	return printOf(s)
}

func (w *watch) State(p *ckpt.Policy, r ckpt.RuleRun, state, previous []byte, contentType string) ckpt.StatePrint {
	return ckpt.StatePrint{Size: int64(len(state))}
}

func (w *watch) Check(p *ckpt.Policy) error { return nil }

func (w *watch) Rules(p *ckpt.Policy) []ckpt.DriftRule { return nil }

func (w *watch) Watch(p *ckpt.Policy, past ckpt.RunPast) ckpt.RunWatch {
	return newRun(p, past)
}

// run watches one run.
type run struct {
	set    settings
	loops  []loop
	steps  *history
	floors map[string]int64 // by rule: the steps up to this one do not count
	spells map[string]*spell
}

func newRun(p *ckpt.Policy, past ckpt.RunPast) *run {
	r := &run{set: settingsOf(p), loops: loops(), floors: map[string]int64{}, spells: map[string]*spell{}}
	r.steps = newHistory(r.set.reach())
	for i := range past.Steps {
		r.Step(past.Steps[i])
	}
	return r
}

// Step takes in a step that has ended.
func (r *run) Step(p ckpt.StepPrint) []ckpt.Found {
	if r.set.off {
		return nil
	}
	var found []ckpt.Found
	if !r.set.ignore[p.Tool] {
		r.steps.add(&p)
		found = r.lookForLoops(found)
	}
	return found
}

func (r *run) lookForLoops(found []ckpt.Found) []ckpt.Found {
	for _, l := range r.loops {
		set := r.set.rules[l.rule()]
		if set.off {
			continue
		}
		span := int(min(int64(r.steps.len()), r.steps.steps-r.floors[l.rule()]))
		if x := l.look(r.steps, set, span); x.severity != "" && r.tells(l.rule(), x.severity, r.steps.steps, set.cooldown) {
			found = append(found, l.tell(r.steps, x))
		}
	}
	return found
}

func (r *run) tells(rule string, severity ckpt.Severity, now, cooldown int64) bool {
	s := r.spells[rule]
	if s == nil {
		s = &spell{}
		r.spells[rule] = s
	}
	return s.tells(severity, now, cooldown)
}

func (r *run) State(p ckpt.StatePrint) []ckpt.Found                       { return nil }
func (r *run) Beat(now time.Time, progress *float64) []ckpt.Found         { return nil }
func (r *run) Goal(now time.Time, goal string, updated bool) []ckpt.Found { return nil }
func (r *run) Forget(rule string)                                         { r.floors[rule] = r.steps.steps; delete(r.spells, rule) }
func (r *run) Measures() map[string]float64                               { return map[string]float64{} }

func (r *run) Back() (int64, bool) { return 0, false }
