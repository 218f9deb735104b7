package drift

import (
	"fmt"
	"strings"
	"time"

	ckpt "github.com/ckptsidecar/ckptsidecar"
	"github.com/ckptsidecar/ckptsidecar/internal/drift/observer"
)

func newRun(p *ckpt.Policy, past observer.RunPast) *run {
	r := &run{
		set: settingsOf(p), gauges: []*gauge{durationGauge(), tokenGauge()},
		startedAt: past.StartedAt, floors: map[string]int64{}, spells: map[string]*spell{},
	}
	if r.set.off {
		return r
	}
	r.set.calibrate(&past.Calibration)
	for _, l := range loops() {
		if set := r.set.rules[l.rule()]; !set.off {
			r.loops = append(r.loops, setLoop{l, l.sees(), set})
		}
	}
	for _, g := range r.gauges {
		g.set = r.set.rules[g.rule]
	}
	r.looks, r.states.depth = r.set.stateRules(), r.set.depth()
	r.steps = newHistory(r.set.reach())
	r.learn(&past)
	r.replay(&past)
	return r
}

// learn adds the baseline to the gauges, without the steps that the replay will show them.
func (r *run) learn(past *observer.RunPast) {
	type place struct {
		key string
		at  int64
	}
	comes := map[place]bool{}
	if len(past.Baseline) > 0 {
		for i := range past.Steps {
			comes[place{past.Steps[i].Key, past.Steps[i].At.UnixNano()}] = true
		}
	}
	for i := range past.Baseline {
		p := &past.Baseline[i]
		if comes[place{p.Key, p.At.UnixNano()}] {
			continue
		}
		for _, g := range r.gauges {
			g.learn(p, r.set.rules[g.rule].warn.window)
		}
	}
}

// Step counts a step that has ended.
func (r *run) Step(p observer.StepPrint) []observer.Found {
	if r.set.off {
		return nil
	}
	r.ended++
	r.seq, r.now = max(r.seq, p.AfterSeq), later(r.now, p.At)
	r.spent.add(&p.Measures)
	found := r.own(nil, p.Broken, p.Clear, false)
	found = r.unparsable(found, &p)
	counted := !r.set.ignore[p.Tool]
	if counted {
		counted = r.steps.add(&p)
	}
	found = r.declared(found, p.Progress, p.At, p.Key)
	if counted {
		found = r.isBlind(r.lookForLoops(found), &p)
	}
	found = r.gauged(found, &p)
	found = r.stalled(found, p.At, p.Key)
	found = r.overspent(found, p.At)
	return r.about(r.aged(found, p.At))
}

// about says of each finding what it is about.
func (r *run) about(found []observer.Found) []observer.Found {
	for i := range found {
		if set, known := r.set.rules[found[i].Rule]; known {
			found[i].About = set.of
		}
	}
	return found
}

// Spend counts use outside of the order of steps.
func (r *run) Spend(p observer.StepPrint, step bool) []observer.Found {
	if r.set.off {
		return nil
	}
	if step {
		r.ended++
	}
	r.now = later(r.now, p.At)
	r.spent.add(&p.Measures)
	if !step {
		r.spent.used[budgetSteps]--
	}
	return r.about(r.overspent(r.gauged(nil, &p), r.now))
}

func (r *run) lookForLoops(found []observer.Found) []observer.Found {
	newest := r.steps.last(0).sign()
	clear(r.levels) // a rule that the newest step does not affect is at 0
	for i := range r.loops {
		l := &r.loops[i]
		if l.asks&newest == 0 {
			if r.spells[l.rule()] != nil && r.isQuiet(l) {
				delete(r.spells, l.rule()) // the rule is over, so that it is reported when it fires again
			}
			continue
		}
		span := r.span(l)
		if span < 1 {
			continue
		}
		if r.levels != nil {
			r.levels[l.rule()] = level(l, r.steps, l.set, span)
		}
		if x := look(l.loop, r.steps, l.set, span); x.severity != "" && r.tells(l.rule(), x.severity, r.steps.steps, l.set.cooldown) {
			found = append(found, r.set.calibrated(l.tell(r.steps, x)))
		}
	}
	return found
}

func (r *run) gauged(found []observer.Found, p *observer.StepPrint) []observer.Found {
	for _, g := range r.gauges {
		set := g.set
		if set.off {
			continue
		}
		if b := g.step(p, set); b != nil && r.tells(g.rule+" "+p.Tool, set.gaugeTier(b), r.ended, set.cooldown) {
			found = append(found, g.tell(p, b, set))
		}
	}
	return found
}

// unparsable finds a result that begins like JSON and cannot be parsed.
func (r *run) unparsable(found []observer.Found, p *observer.StepPrint) []observer.Found {
	set := r.set.rules[RuleUnparsable]
	if !p.Unparsable {
		if r.sound++; r.sound >= int64(set.over) {
			delete(r.spells, RuleUnparsable)
		}
		return found
	}
	r.sound = 0
	if set.off || !r.tells(RuleUnparsable, set.one, r.ended, set.cooldown) {
		return found
	}
	return append(found, observer.Found{
		Rule: RuleUnparsable, Severity: set.one, SinceSeq: p.AfterSeq,
		Message: fmt.Sprintf("The result of %s in step %d begins like JSON and does not parse.", p.Tool, r.ended),
		Advice: fmt.Sprintf("The result of %s in step %d is broken JSON. Do not guess what is missing: call the tool again, or request less.",
			p.Tool, r.ended),
		Evidence: ckpt.Evidence{Threshold: "JSON that parses", Observed: "none that does", Tool: p.Tool, Steps: keysOf(p.Key)},
	})
}

// ofStates is added to the name of a rule for the spell that counts checkpoints.
const ofStates = " of states"

// own reports what rules of the user and the schema found, unless their cooldown prevents
// it. It counts checkpoints at a state, and steps at a step. A rule that is tried at both
// has a spell in each, and a report in one begins the cooldown in the other.
func (r *run) own(found, broken []observer.Found, clear []string, atState bool) []observer.Found {
	for _, name := range clear {
		delete(r.spells, name)
		delete(r.spells, name+ofStates)
	}
	r.clear = clear
	here, now, there, then := "", r.ended, ofStates, r.states.count+1
	if atState {
		here, now, there, then = there, then, here, now
	}
	for _, f := range broken {
		set, known := r.set.rules[f.Rule]
		if !known {
			set = r.set.own(f.Rule)
		}
		f.Severity = set.capped(f.Severity)
		if set.off || !r.tells(f.Rule+here, f.Severity, now, set.cooldown) {
			continue
		}
		r.tells(f.Rule+there, f.Severity, then, set.cooldown)
		if f.SinceSeq == 0 {
			f.SinceSeq = r.seq
		}
		found = append(found, f)
	}
	return found
}

// State counts a checkpoint.
func (r *run) State(p observer.StatePrint) []observer.Found {
	if r.set.off {
		return nil
	}
	found := r.own(nil, p.Broken, p.Clear, true)
	for i := range found {
		found[i].Evidence.Checkpoints = append(found[i].Evidence.Checkpoints, p.ID)
	}
	for i := range r.looks {
		found = r.looks[i].look(r, found, &p, r.looks[i].set)
	}
	found = r.edgesIn(found, &p)
	r.states.add(p)
	r.seq, r.now = max(r.seq, p.Seq), later(r.now, p.At)
	switch p.Kind {
	case ckpt.KindRoutine:
		r.routine.came(p.At)
	case ckpt.KindRecovery:
		r.refresh.came(p.At)
	}
	return r.about(found)
}

// Beat takes in a heartbeat.
func (r *run) Beat(now time.Time, progress *float64) []observer.Found {
	if r.set.off {
		return nil
	}
	r.now = later(r.now, now)
	found := r.declared(nil, progress, now, "")
	found = r.stalled(found, now, "")
	found = r.overspent(found, now)
	return r.about(r.aged(found, now))
}

// Forget resets what a rule counted. A rule that counts nothing, such as a rule
// of the user, stays silent for the rest of its cooldown.
func (r *run) Forget(rule string) {
	if r.set.off {
		return
	}
	switch rule {
	case RuleTypeChanged:
		clear(r.states.former)
	case RuleBudget:
		r.markTold()
	case RuleNoProgress:
		r.progress.grewAt, r.progress.grewStep, r.progress.grewSeq, r.progress.told = r.now, r.ended, r.seq, ""
	case RuleLatencyDrift, RuleTokenDrift:
		for _, g := range r.gauges {
			if g.rule == rule {
				g.forget()
			}
		}
		for name := range r.spells {
			if strings.HasPrefix(name, rule+" ") {
				delete(r.spells, name)
			}
		}
	}
	for _, l := range r.loops {
		if l.rule() == rule {
			r.floors[rule] = r.steps.steps
			delete(r.spells, rule)
		}
	}
}

// Back returns the rollback floor: the newest checkpoint from before the first sign of
// evidence that can still become critical.
func (r *run) Back() (seq int64, ok bool) {
	if r.set.off || r.steps.len() == 0 {
		return 0, false
	}
	for i := range r.loops {
		l := &r.loops[i]
		if l.set.critical.value == 0 || l.set.most != ckpt.SeverityCritical {
			continue
		}
		span := r.span(l)
		if span < 1 {
			continue
		}
		if n := l.making(r.steps, l.set.critical, span); n > 0 {
			if from := r.steps.last(n - 1).afterSeq; !ok || from < seq {
				seq, ok = from, true
			}
		}
	}
	set := r.set.rules[RuleNoProgress]
	stalls := r.progress.told != "" && !set.off && set.most == ckpt.SeverityCritical
	if stalls && (!ok || r.progress.grewSeq < seq) {
		seq, ok = r.progress.grewSeq, true
	}
	return seq, ok
}

// stateRule is a rule that looks at each checkpoint, with its setting.
type stateRule struct {
	look func(*run, []observer.Found, *observer.StatePrint, setting) []observer.Found
	set  setting
}

// stateRules returns the state rules that are on, in the order in which they report.
func (s *settings) stateRules() (on []stateRule) {
	add := func(rule string, look func(*run, []observer.Found, *observer.StatePrint, setting) []observer.Found) {
		if set := s.rules[rule]; !set.off {
			on = append(on, stateRule{look, set})
		}
	}
	add(RuleCheckpointSize, (*run).resized)
	add(RuleLostKeys, (*run).lost)
	add(RuleTypeChanged, (*run).retyped)
	add(RuleCounterReversed, (*run).reversed)
	return on
}
