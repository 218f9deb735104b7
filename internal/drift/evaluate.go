package drift

import (
	"context"
	"math"
	"slices"
	"strconv"

	ckpt "github.com/ckptsidecar/ckptsidecar"
	"github.com/ckptsidecar/ckptsidecar/internal/drift/observer"
	"github.com/ckptsidecar/ckptsidecar/internal/drift/phrase"
)

// Evaluator returns an evaluator of recorded runs.
func (w *watch) Evaluator() observer.Evaluator {
	return &evaluator{watch: w, rules: map[string]bool{}, scores: map[group][]float64{}, asked: map[group]ckpt.Policy{}}
}

// evaluator counts in which runs the detectors fire. If a policy asks for a share of
// false alarms, each run is judged with thresholds that are calibrated on the good runs
// before it, as the daemon would do.
type evaluator struct {
	watch  *watch
	result ckpt.Evaluation
	cells  []*evaluatedCell // in the order in which they were created
	rules  map[string]bool
	scores map[group][]float64 // of the good runs so far
	asked  map[group]ckpt.Policy
	groups []group
}

// group identifies the runs on which thresholds are calibrated together.
type group struct{ source, workflow string }

// evaluatedCell has the results for the runs of one group and outcome.
type evaluatedCell struct {
	group
	outcome string
	runs    int
	delays  map[tierOfRule][]int // for every run in which it fired
}

type tierOfRule struct {
	tier ckpt.Severity
	rule string
}

var evaluatedTiers = []ckpt.Severity{ckpt.SeverityWarn, ckpt.SeverityCritical}

// Judge judges a run.
func (e *evaluator) Judge(p *ckpt.Policy, r *observer.RecordedRun, explain bool) {
	plain := evaluated(p)
	of := group{r.Source, r.Workflow}
	past := observer.RunPast{StartedAt: r.StartedAt, Goal: r.Goal, Calibration: e.calibration(&plain, of)}
	j := &judging{watch: e.watch, policy: &plain, record: r, past: past, explain: explain}
	j.play()
	e.add(r, j)
	if explain {
		e.result.Explained = append(e.result.Explained, j.steps...)
	}
	if plain.FalseAlarms > 0 && r.Good {
		scored := *r
		scored.Steps = j.prints
		e.scores[of] = append(e.scores[of], e.watch.Score(&plain, &scored))
	}
}

// calibration returns the calibration from the good runs so far.
func (e *evaluator) calibration(p *ckpt.Policy, of group) ckpt.Calibration {
	if p.FalseAlarms <= 0 {
		return ckpt.Calibration{}
	}
	if _, known := e.asked[of]; !known {
		e.groups = append(e.groups, of)
	}
	e.asked[of] = *p
	scores := e.scores[of]
	return e.watch.Calibrate(p, scores[max(0, len(scores)-observer.MaxCalibrated):])
}

// judging is the judgment of one run.
type judging struct {
	watch   *watch
	policy  *ckpt.Policy
	record  *observer.RecordedRun
	past    observer.RunPast
	run     *run
	explain bool

	prints  []observer.StepPrint
	found   [][]observer.Found // by the number of the step; findings after the last step are in its element
	numbers []int              // numbers of the counted steps
	steps   []ckpt.ExplainedStep
	shown   int // the number of states shown
}

func (j *judging) play() {
	n := max(len(j.record.Steps), len(j.record.Raw))
	j.found = make([][]observer.Found, max(n, 1))
	j.begin()
	for i := range n {
		if slices.Contains(j.record.Begins, i) {
			j.begin()
		}
		print := j.print(i)
		j.states(print.AfterSeq, max(i-1, 0))
		counted := j.counted()
		found := j.run.Step(print)
		print.Broken = nil
		j.prints = append(j.prints, print)
		j.found[i] = append(j.found[i], found...)
		if j.counted() > counted {
			j.numbers = append(j.numbers, i)
		}
		if j.explain {
			j.steps = append(j.steps, j.explained(i, &print, j.counted() > counted, found))
		}
	}
	j.states(math.MaxInt64, max(n-1, 0))
}

// begin resets the counts.
func (j *judging) begin() {
	j.run, j.numbers = newRun(j.policy, j.past), nil
	if j.explain {
		j.run.levels = map[string]float64{}
	}
}

func (j *judging) counted() int64 {
	if j.run.steps == nil {
		return 0
	}
	return j.run.steps.steps
}

// print returns the fingerprint of a step. It is computed again if the step itself is
// known.
func (j *judging) print(i int) observer.StepPrint {
	if len(j.record.Raw) == 0 {
		return j.record.Steps[i]
	}
	r := observer.RuleRun{Agent: j.record.Source, Run: j.record.ID, Status: j.record.Outcome, Goal: j.record.Goal, Attempt: 1, Steps: int64(i)}
	if len(j.policy.Rules) > 0 {
		r.Measures = j.run.Measures()
	}
	print, _ := j.watch.Step(context.Background(), j.policy, r, &j.record.Raw[i]) // the error can only be the context's
	if i < len(j.record.Steps) {
		print.AfterSeq = j.record.Steps[i].AfterSeq
	}
	return print
}

// states shows the states up to a checkpoint to the detectors. Their findings count for a
// step.
func (j *judging) states(upTo int64, step int) {
	for ; j.shown < len(j.record.States) && j.record.States[j.shown].Seq <= upTo; j.shown++ {
		state := j.record.States[j.shown]
		found := j.run.State(state)
		j.found[step] = append(j.found[step], found...)
		if j.explain {
			j.steps = append(j.steps, ckpt.ExplainedStep{
				Step: step, What: "checkpoint", Key: state.ID, Tool: string(state.Kind), Saw: []string{phrase.Bytes(state.Size)},
				Levels: map[string]float64{}, Findings: firsts(step, state.ID, found),
			})
		}
	}
}

// explained records what the detectors saw in a step.
func (j *judging) explained(i int, p *observer.StepPrint, counted bool, found []observer.Found) ckpt.ExplainedStep {
	x := ckpt.ExplainedStep{Step: i, What: "step", Key: p.Key, Tool: p.Tool, Failed: p.Failed, Saw: []string{},
		Levels: map[string]float64{}, Findings: firsts(i, p.Key, found)}
	say := func(is bool, words string) {
		if is {
			x.Saw = append(x.Saw, words)
		}
	}
	say(p.Negative, "negative: the answer was no")
	say(p.Sig == "" || p.Sig == observer.UnknownCall, "its arguments are not known")
	say(p.Res == "", "what came out is not known")
	switch {
	case j.run.set.off:
		return x
	case !counted && j.run.set.ignore[p.Tool]:
		say(true, "the policy ignores this tool")
		return x
	case !counted:
		say(true, "the same call with the same result came before in this turn: it does not count")
		return x
	}
	e := j.run.steps.last(0)
	say(e.told && !e.old, "new")
	if e.old && e.before < int64(len(j.numbers)) {
		say(true, "seen before, last in step "+strconv.Itoa(j.numbers[e.before]))
	}
	say(e.bad && !p.Failed, "it complains, though it was called a success")
	say(e.again, "the same complaint came before in this turn")
	say(e.effect != 0, "it sets a file")
	for rule, level := range j.run.levels {
		if level > 0 {
			x.Levels[rule] = math.Round(1000*level) / 1000
		}
	}
	return x
}

func firsts(step int, key string, found []observer.Found) []ckpt.FirstFired {
	list := []ckpt.FirstFired{}
	for i := range found {
		f := &found[i]
		list = append(list, ckpt.FirstFired{Rule: f.Rule, Severity: f.Severity, Step: step, Key: key, Message: f.Message})
	}
	return list
}

// add counts the findings of a run. If a fault was injected, only findings at that step
// or later count.
func (e *evaluator) add(r *observer.RecordedRun, j *judging) {
	cell := e.cell(group{r.Source, r.Workflow}, r.Outcome)
	cell.runs++
	e.result.Runs++
	e.result.Steps += int64(len(j.prints))
	onset := 0
	if r.Onset != nil {
		onset = *r.Onset
	}
	fired := map[tierOfRule]bool{}
	warned := ckpt.WarnedRun{Source: r.Source, Run: r.ID, Workflow: ckpt.Ref(r.Workflow), Outcome: r.Outcome,
		Steps: len(j.prints), First: []ckpt.FirstFired{}}
	for i := onset; i < len(j.found); i++ {
		key := ""
		if i < len(j.prints) {
			key = j.prints[i].Key
		}
		for _, f := range firsts(i, key, j.found[i]) {
			if f.Severity.Rank() < ckpt.SeverityWarn.Rank() {
				continue
			}
			e.rules[f.Rule] = true
			if !fired[tierOfRule{f.Severity, f.Rule}] {
				warned.First = append(warned.First, f)
			}
			for _, tier := range evaluatedTiers {
				if f.Severity.Rank() >= tier.Rank() {
					cell.fire(fired, tierOfRule{tier, f.Rule}, i-onset)
					cell.fire(fired, tierOfRule{tier, ""}, i-onset)
				}
			}
		}
	}
	if len(warned.First) > 0 && len(e.result.Warned) < ckpt.MaxWarnedRuns {
		e.result.Warned = append(e.result.Warned, warned)
	}
}

// fire counts a tier of a rule once for each run.
func (c *evaluatedCell) fire(fired map[tierOfRule]bool, what tierOfRule, delay int) {
	if !fired[what] {
		fired[what] = true
		c.delays[what] = append(c.delays[what], delay)
	}
}

func (e *evaluator) cell(of group, outcome string) *evaluatedCell {
	for _, c := range e.cells {
		if c.group == of && c.outcome == outcome {
			return c
		}
	}
	c := &evaluatedCell{group: of, outcome: outcome, delays: map[tierOfRule][]int{}}
	e.cells = append(e.cells, c)
	return c
}

// Result returns the results: the whole tiers of every cell, then the rules that fired
// anywhere.
func (e *evaluator) Result() *ckpt.Evaluation {
	result := e.result
	result.Rows, result.Calibrations = []ckpt.EvaluatedRow{}, []ckpt.Calibration{}
	if result.Warned == nil {
		result.Warned = []ckpt.WarnedRun{}
	}
	rules := append([]string{""}, sortedKeys(e.rules, len(e.rules))...)
	for _, c := range e.cells {
		for _, rule := range rules {
			for _, tier := range evaluatedTiers {
				result.Rows = append(result.Rows, c.row(tierOfRule{tier, rule}))
			}
		}
	}
	for _, of := range e.groups {
		p := e.asked[of]
		c := e.calibration(&p, of)
		c.Source, c.Workflow = of.source, ckpt.Ref(of.workflow)
		result.Calibrations = append(result.Calibrations, c)
	}
	return &result
}

func (c *evaluatedCell) row(what tierOfRule) ckpt.EvaluatedRow {
	delays := c.delays[what]
	row := ckpt.EvaluatedRow{Source: c.source, Workflow: ckpt.Ref(c.workflow), Outcome: c.outcome, Runs: c.runs,
		Tier: what.tier, Rule: what.rule, Fired: len(delays)}
	row.Share = float64(row.Fired) / float64(row.Runs)
	row.Low, row.High = wilson(row.Fired, row.Runs)
	if n := len(delays); n > 0 {
		sorted := slices.Sorted(slices.Values(delays))
		middle := float64(sorted[(n-1)/2]+sorted[n/2]) / 2
		row.Delay = &middle
	}
	return row
}

// wilson returns the 95 % interval (Wilson) of the share seen/among.
func wilson(seen, among int) (low, high float64) {
	if among == 0 {
		return 0, 1
	}
	const z = 1.959964
	n, share := float64(among), float64(seen)/float64(among)
	middle := (share + z*z/(2*n)) / (1 + z*z/n)
	half := z / (1 + z*z/n) * math.Sqrt(share*(1-share)/n+z*z/(4*n*n))
	if low = max(0, middle-half); seen == 0 {
		low = 0
	}
	if high = min(1, middle+half); seen == among {
		high = 1
	}
	return low, high
}
