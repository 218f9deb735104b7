package driftcmd

import (
	"context"
	"fmt"
	"hash/fnv"
	"os"
	"slices"
	"strconv"
	"strings"

	ckpt "github.com/ckptsidecar/ckptsidecar"
	"github.com/ckptsidecar/ckptsidecar/internal/cli"
	"github.com/ckptsidecar/ckptsidecar/internal/cli/term"
	"github.com/ckptsidecar/ckptsidecar/internal/drift"
	"github.com/ckptsidecar/ckptsidecar/internal/wellformed"
)

type driftEvaluateCmd struct {
	Files       []string          `arg:"" optional:"" help:"Recorded runs: JSON lines, plain or gzip; - for standard input. Default: the daemon's."`
	Agent       string            `help:"Only recorded runs of this agent." placeholder:"NAME"`
	Workflow    string            `help:"Only runs of this workflow." placeholder:"NAME"`
	Since       string            `help:"Only runs that began at this time or later." placeholder:"TIME"`
	Set         map[string]string `help:"What if: set repeat.warn=4in12, cycle.tier=off and so on; may be repeated." placeholder:"RULE.WHAT=N[inW]"`
	Sensitivity string            `help:"What if: another sensitivity." enum:",off,low,normal,high" default:"" placeholder:"WORD"`
	FalseAlarms string            `help:"What if: thresholds calibrated on the good runs before each run." placeholder:"N%"`
	Explain     string            `help:"Walk through this run, step by step." placeholder:"RUN"`
	Policy      string            `help:"For files: judge with this policy, a JSON file. Default: the default policy." placeholder:"FILE"`
	Part        string            `help:"For files: only part K of N, by the runs' ids. Tune on one part and check on another." placeholder:"K/N"`
}

func (c *driftEvaluateCmd) Help() string {
	return "Judges recorded runs, including those that are still running: in what share of them each tier and rule fired at least once, " +
		"with the 95 % interval (Wilson), by agent, workflow and outcome, how many steps that took (the median), " +
		"which runs these are, and where in them. Nothing is changed.\n\n" +
		"Without files it asks the daemon, for the runs of your own agents or of --agent, " +
		"with the agents' policies. What the detectors keep of the steps is judged, " +
		"and the states that are still there. Rules of your own, " +
		"and rules about time in which nothing was recorded, are not tried.\n\n" +
		`A line of a file is one run: {"id", "source", "outcome", "workflow"?, "onset"?, "steps": [{"tool", ` +
		`"args", "result", "error", "turn"?, "outcome"?, "state"?, "duration_ms"?, "input_tokens"?, ` +
		`"output_tokens"?, "cost_usd"?, "progress"?}]}; state is what was saved after the step. ` +
		"Where a run has an onset, the number of the step (from 0) at which a fault was injected, " +
		"only findings at or after it count, and the delay counts from there.\n\n" +
		"A finding that is critical counts for the tier warn as well. With --false-alarms each run is judged " +
		"with the thresholds that the good runs before it make (completed ones; in files: " +
		"those whose outcome is passed, healthy, good or completed)."
}

func (c *driftEvaluateCmd) Run(ctx context.Context, a *cli.App) error {
	request, err := c.request()
	if err != nil {
		return err
	}
	var result *ckpt.Evaluation
	if len(c.Files) > 0 {
		result, err = c.files(ctx, a, request)
	} else {
		result, err = c.recorded(ctx, a, request)
	}
	switch {
	case err != nil:
		return err
	case result.Runs == 0 && len(c.Files) > 0:
		return fmt.Errorf("no run was judged: %s", strings.Join(c.Files, ", "))
	case a.JSON:
		return a.WriteJSON(result)
	}
	evaluationText(a, result)
	return nil
}

// request returns the request for the API.
func (c *driftEvaluateCmd) request() (r ckpt.EvaluateRequest, err error) {
	r = ckpt.EvaluateRequest{Agent: c.Agent, Workflow: c.Workflow, Sensitivity: ckpt.Sensitivity(c.Sensitivity)}
	if c.Since != "" {
		var since ckpt.Time
		if err := since.UnmarshalJSON([]byte(strconv.Quote(c.Since))); err != nil {
			return r, cli.Usagef("--since: %v", err)
		}
		r.Since = &since
	}
	if c.FalseAlarms != "" {
		share, err := ckpt.ParsePercent(c.FalseAlarms)
		if err != nil {
			return r, cli.Usagef("--false-alarms: %s", ckpt.AsError(err).Message)
		}
		r.FalseAlarms = &share
	}
	if len(c.Files) == 0 {
		r.Run = c.Explain
	}
	for _, key := range sortedNames(c.Set) {
		if err := setDetector(&r, key, c.Set[key]); err != nil {
			return r, err
		}
	}
	return r, cli.Checked(r.Check())
}

func sortedNames(m map[string]string) []string {
	names := make([]string, 0, len(m))
	for name := range m {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

// setDetector reads a setting such as repeat.warn=4in12.
func setDetector(r *ckpt.EvaluateRequest, key, value string) error {
	rule, what, found := strings.Cut(strings.TrimPrefix(key, "detectors."), ".")
	if !found {
		return cli.Usagef("--set %s=%s does not name a setting: write for example repeat.warn=4in12", key, value)
	}
	if r.Detectors == nil {
		r.Detectors = map[string]ckpt.Detector{}
	}
	d := r.Detectors[rule]
	if what == "tier" {
		d.Tier = value
		r.Detectors[rule] = d
		return nil
	}
	number, window, windowed := strings.Cut(value, "in")
	n, err := strconv.ParseFloat(strings.TrimSpace(number), 64)
	w := 0
	if err == nil && windowed {
		w, err = strconv.Atoi(strings.TrimSpace(window))
	}
	if err != nil {
		return cli.Usagef("--set %s=%s is not a threshold: write for example repeat.warn=4in12", key, value)
	}
	switch what {
	case "warn":
		d.Warn, d.WarnWindow = n, w
	case "critical":
		d.Critical, d.CriticalWindow = n, w
	case "cooldown":
		d.Cooldown = int(n)
	default:
		return cli.Usagef("--set %s: a detector has only warn, critical, tier and cooldown", key)
	}
	r.Detectors[rule] = d
	return nil
}

func (c *driftEvaluateCmd) recorded(ctx context.Context, a *cli.App, r ckpt.EvaluateRequest) (*ckpt.Evaluation, error) {
	if c.Policy != "" || c.Part != "" {
		return nil, cli.Usagef("--policy and --part need files: recorded runs use their agents' policies and --set")
	}
	return a.Client().Evaluate(ctx, r)
}

// files judges the runs in files.
func (c *driftEvaluateCmd) files(ctx context.Context, a *cli.App, r ckpt.EvaluateRequest) (*ckpt.Evaluation, error) {
	part, err := parsePart(c.Part)
	if err != nil {
		return nil, err
	}
	policy, err := c.policy()
	if err != nil {
		return nil, err
	}
	r.Change(&policy)
	watch := drift.New()
	if err := watch.Check(&policy); err != nil {
		return nil, err
	}
	evaluator, p := watch.Evaluator(), term.NewProgress(a.Stderr, a.Err, "judging runs:")
	defer p.Done()
	for _, path := range c.Files {
		err := eachTrace(a.Stdin, path, func(t *trace, read, size int64) error {
			if part.has(t.ID) && (c.Agent == "" || c.Agent == t.Source) && (c.Workflow == "" || c.Workflow == t.Workflow) &&
				(c.Explain == "" || c.Explain == t.ID) {
				evaluator.Judge(&policy, t.recorded(ctx, watch, &policy), c.Explain != "")
			}
			p.Step(read, size)
			return ctx.Err()
		})
		if err != nil {
			return nil, err
		}
	}
	return evaluator.Result(), nil
}

func (c *driftEvaluateCmd) policy() (ckpt.Policy, error) {
	if c.Policy == "" {
		return ckpt.DefaultPolicy(), nil
	}
	data, err := os.ReadFile(c.Policy)
	if err != nil {
		return ckpt.Policy{}, err
	}
	return wellformed.ParsePolicy(data)
}

// part is a share of the runs: if of is 0, all of them.
type part struct{ k, of uint64 }

func parsePart(s string) (part, error) {
	if s == "" {
		return part{}, nil
	}
	left, right, _ := strings.Cut(s, "/")
	k, err1 := strconv.ParseUint(left, 10, 16)
	n, err2 := strconv.ParseUint(right, 10, 16)
	if err1 != nil || err2 != nil || k < 1 || k > n {
		return part{}, cli.Usagef("--part is %q: write for example 1/2 for the first of two halves", s)
	}
	return part{k - 1, n}, nil
}

func (p part) has(id string) bool {
	if p.of == 0 {
		return true
	}
	h := fnv.New64a()
	h.Write([]byte(id))
	return h.Sum64()%p.of == p.k
}

// warnedShown is how many runs are listed for a person.
const warnedShown = 20

// evaluationText writes the answer for people: the tiers, what each rule adds, the runs,
// and one run step by step.
func evaluationText(a *cli.App, e *ckpt.Evaluation) {
	if len(e.Explained) > 0 {
		explainedText(a, e)
		return
	}
	if e.Runs == 0 {
		a.Tell("no run with steps is recorded")
		return
	}
	if t := cellTable(e, ""); t != nil {
		t.Write(a.Stdout, a.Out)
	}
	if t := cellTable(e, "rule"); t != nil {
		term.Println(a.Stdout)
		t.Write(a.Stdout, a.Out)
	}
	if len(e.Warned) > 0 {
		term.Println(a.Stdout)
		warnedTable(e, a.Out).Write(a.Stdout, a.Out)
	}
	for i := range e.Calibrations {
		term.Printf(a.Stdout, "%s\n", CalibrationText(&e.Calibrations[i]))
	}
	a.Tell("%s judged with %s%s", term.Count(e.Runs, "run"), term.Count(e.Steps, "step"),
		map[bool]string{true: "; older runs were not judged"}[e.More])
}

// cellTable has the whole tiers, or those of the rules that fired; nil for none.
func cellTable(e *ckpt.Evaluation, by string) *term.Table {
	workflows := slices.ContainsFunc(e.Rows, func(r ckpt.EvaluatedRow) bool { return r.Workflow != "" })
	heads := []string{"SOURCE"}
	if by != "" {
		heads = []string{"RULE", "SOURCE"}
	}
	if workflows {
		heads = append(heads, "WORKFLOW")
	}
	heads = append(heads, "OUTCOME", ">RUNS", ">WARN", ">95 %", ">DELAY", ">CRITICAL", ">95 %", ">DELAY")
	t, any := term.NewTable(heads...).Whole(), false
	rows := slices.Clone(e.Rows)
	slices.SortStableFunc(rows, func(x, y ckpt.EvaluatedRow) int { return strings.Compare(x.Rule, y.Rule) })
	for i := 0; i+1 < len(rows); i += 2 { // warn, then critical
		warn, critical := &rows[i], &rows[i+1]
		if (warn.Rule != "") != (by != "") || by != "" && warn.Fired == 0 {
			continue
		}
		cells := []string{warn.Source}
		if by != "" {
			cells = []string{warn.Rule, warn.Source}
		}
		if workflows {
			cells = append(cells, string(warn.Workflow))
		}
		cells = append(cells, warn.Outcome, strconv.Itoa(warn.Runs))
		t.Add(append(append(cells, tierCells(warn)...), tierCells(critical)...)...)
		any = true
	}
	if !any {
		return nil
	}
	return t
}

// tierCells returns the share of a tier, its interval, and the delay.
func tierCells(r *ckpt.EvaluatedRow) []string {
	delay := ""
	if r.Delay != nil {
		delay = strconv.FormatFloat(*r.Delay, 'f', -1, 64)
	}
	return []string{fmt.Sprintf("%.1f %%", 100*r.Share), fmt.Sprintf("%.1f–%.1f", 100*r.Low, 100*r.High), delay}
}

func warnedTable(e *ckpt.Evaluation, s *term.Style) *term.Table {
	t := term.NewTable("SOURCE", "RUN", "OUTCOME", ">STEPS", "FIRST AT", "RULE", "~WHAT")
	for _, w := range e.Warned[:min(len(e.Warned), warnedShown)] {
		f := w.First[0]
		t.Add(w.Source, w.Run, w.Outcome, strconv.Itoa(w.Steps), fmt.Sprintf("step %d (%s)", f.Step, f.Key),
			severityColored(f.Rule, f.Severity, s), shortened(f.Message, 80))
	}
	if more := len(e.Warned) - warnedShown; more > 0 {
		t.Add("…", fmt.Sprintf("and %d more: see --json", more))
	}
	return t
}

func severityColored(text string, severity ckpt.Severity, s *term.Style) string {
	if severity == ckpt.SeverityCritical {
		return s.Red(text)
	}
	return s.Yellow(text)
}

// explainedText describes a run step by step.
func explainedText(a *cli.App, e *ckpt.Evaluation) {
	t := term.NewTable(">STEP", "KEY", "TOOL", "SAW", "NEAREST", "~FOUND")
	for i := range e.Explained {
		x := &e.Explained[i]
		number := strconv.Itoa(x.Step)
		if x.What == "checkpoint" {
			number = ""
		}
		found := ""
		for _, f := range x.Findings {
			found += severityColored(f.Rule+" "+string(f.Severity), f.Severity, a.Out) + " "
		}
		tool := x.Tool
		if x.Failed {
			tool = a.Out.Red(tool + " failed")
		}
		t.Add(number, shortened(x.Key, 24), tool, strings.Join(x.Saw, "; "), nearest(x.Levels), strings.TrimSpace(found))
	}
	t.Write(a.Stdout, a.Out)
	for i := range e.Explained {
		for _, f := range e.Explained[i].Findings {
			term.Printf(a.Stdout, "step %d: %s, %s: %s\n", f.Step, f.Rule, f.Severity, f.Message)
		}
	}
}

// nearest returns the rule that is nearest to what it needs.
func nearest(levels map[string]float64) string {
	rule, most := "", 0.0
	for name, level := range levels {
		if level > most || level == most && name < rule {
			rule, most = name, level
		}
	}
	if rule == "" {
		return ""
	}
	return fmt.Sprintf("%s %.0f %%", rule, 100*most)
}

// CalibrationText describes how good runs change the thresholds.
func CalibrationText(c *ckpt.Calibration) string {
	whose := c.Source
	if c.Workflow != "" {
		whose += " (" + string(c.Workflow) + ")"
	}
	switch {
	case c.Factor == 0:
		return fmt.Sprintf("%s: %d of %d good runs that it takes to promise %s false alarms; the thresholds hold as they are",
			whose, c.Runs, c.Needs, c.Asked)
	case c.Capped:
		return fmt.Sprintf("%s: thresholds × %.2f, as lax as the policy allows: %d of %d good runs were above it, more "+
			"than the %s that were asked for", whose, c.Factor, c.Runs-c.Quiet, c.Runs, c.Asked)
	}
	return fmt.Sprintf("%s: thresholds × %.2f from %d good runs, for %s false alarms", whose, c.Factor, c.Runs, c.Asked)
}
