package driftcmd

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"

	ckpt "github.com/ckptsidecar/ckptsidecar"
	"github.com/ckptsidecar/ckptsidecar/internal/cli"
	"github.com/ckptsidecar/ckptsidecar/internal/cli/term"
	"github.com/ckptsidecar/ckptsidecar/internal/cli/view"
	"github.com/ckptsidecar/ckptsidecar/internal/drift"
	"github.com/ckptsidecar/ckptsidecar/internal/drift/observer"
	"github.com/ckptsidecar/ckptsidecar/internal/jsontext"
)

type driftRulesCmd struct {
	Agent string `arg:"" optional:"" help:"The agent whose policy holds. Default: the rules as they are without one."`
}

// rulesAnswer is the JSON output of drift rules.
type rulesAnswer struct {
	Agent string          `json:"agent,omitempty"`
	Rules []observer.Rule `json:"rules"`
	Own   []ckpt.Rule     `json:"own"` // of the policy
	// Feedback says how often each rule of an agent has warned, and how often that was
	// dismissed.
	Feedback []ckpt.RuleFeedback `json:"feedback,omitempty"`
}

func (c *driftRulesCmd) Run(ctx context.Context, a *cli.App) error {
	p, err := c.policy(ctx, a)
	if err != nil {
		return err
	}
	answer := rulesAnswer{Agent: c.Agent, Rules: drift.New().Rules(p), Own: p.Rules}
	if c.Agent != "" {
		f, err := a.Client().Feedback(ctx, c.Agent)
		if err != nil {
			return err
		}
		answer.Feedback = f.Rules
	}
	if a.JSON {
		return a.WriteJSON(answer)
	}
	byDefault := ckpt.DefaultPolicy()
	plain := map[string]observer.Rule{}
	for _, r := range drift.New().Rules(&byDefault) {
		plain[r.Rule] = r
	}
	t := term.NewTable("RULE", "?FAMILY", "TIER", "WARN", "CRITICAL", "&WHEN IT FIRES")
	for i := range answer.Rules {
		r := &answer.Rules[i]
		was := plain[r.Rule]
		t.Add(r.Rule, r.Family, changed(r.Tier, was.Tier, a.Out), changed(thresholdText(r.Warn, r.WarnWindow),
			thresholdText(was.Warn, was.WarnWindow), a.Out),
			changed(thresholdText(r.Critical, r.CriticalWindow), thresholdText(was.Critical, was.CriticalWindow), a.Out), r.About)
	}
	for i := range answer.Own {
		r := &answer.Own[i]
		t.Add(r.Name, "own", string(r.Severity), "-", "-", r.When)
	}
	t.Write(a.Stdout, a.Out)
	feedbackText(a, c.Agent, answer.Feedback)
	if c.Agent != "" && p.Sensitivity != ckpt.SensitivityNormal {
		a.Tell("sensitivity is %s", p.Sensitivity)
	}
	a.Tell("to change one: ckptsidecar policy set %s detectors.RULE.tier=off|info|warn|critical, .warn=N, "+
		".warn_window=N, …; what differs from the default is marked *", orAgent(c.Agent))
	return nil
}

// feedbackText lists the rules that were dismissed, and the settings that would have
// avoided that.
func feedbackText(a *cli.App, agent string, list []ckpt.RuleFeedback) {
	for _, f := range list {
		if f.Dismissed == 0 {
			continue
		}
		term.Printf(a.Stdout, "%s: %d of %d findings were dismissed\n", f.Rule, f.Dismissed, f.Found)
		if s := f.Suggestion; s != nil {
			term.Printf(a.Stdout, "  ckptsidecar policy set %s %s   would have spared %d of %d runs; of %d runs that nobody "+
				"dismissed it would have missed %d\n",
				agent, s.Set, s.Spared, s.Of, s.Lost+s.Kept, s.Lost)
		}
	}
}

// policy returns the agent's policy, or the default.
func (c *driftRulesCmd) policy(ctx context.Context, a *cli.App) (*ckpt.Policy, error) {
	if c.Agent == "" {
		p := ckpt.DefaultPolicy()
		return &p, nil
	}
	if err := cli.Checked(ckpt.CheckAgentName(c.Agent)); err != nil {
		return nil, err
	}
	return a.Client().Policy(ctx, c.Agent)
}

func orAgent(name string) string {
	if name == "" {
		return "AGENT"
	}
	return name
}

func changed(is, was string, s *term.Style) string {
	if is == was {
		return is
	}
	return s.Cyan(is + "*")
}

// thresholdText returns a threshold and its window: "5 in 20".
func thresholdText(value float64, window int) string {
	if value == 0 {
		return "-"
	}
	text := strconv.FormatFloat(value, 'g', 6, 64)
	if window > 0 {
		text += " in " + strconv.Itoa(window)
	}
	return text
}

type driftExplainCmd struct {
	ID string `arg:"" help:"The finding's id, or the beginning of it."`
}

// explanation is the JSON output of drift explain.
type explanation struct {
	Finding *ckpt.Finding  `json:"finding"`
	Rule    *observer.Rule `json:"rule"` // null for rules of users and agents
	Own     *ckpt.Rule     `json:"own"`  // the rule of the policy, null for others
	Advice  []string       `json:"todo"` // commands, with what they do

	suspects bool // it can make checkpoints suspect, which an observed run does not have
}

func (c *driftExplainCmd) Run(ctx context.Context, a *cli.App) error {
	id, err := a.FindingID(ctx, c.ID)
	if err != nil {
		return err
	}
	f, err := a.Client().Finding(ctx, id)
	if err != nil {
		return err
	}
	p, err := a.Client().Policy(ctx, f.Agent)
	if err != nil {
		return err
	}
	suspects, start := f.Marks(), ""
	if suspects {
		run, err := a.Client().Run(ctx, ckpt.RunRef{Agent: f.Agent, Run: f.Run})
		if err != nil {
			return err
		}
		suspects, start = run.Source == "", view.GoOn(run.Agent, run.Run, run.Command)
	}
	e := explain(f, p, suspects, start)
	if a.JSON {
		return a.WriteJSON(e)
	}
	explanationText(a, e)
	return nil
}

// explain explains a finding. start is the command that starts the agent.
func explain(f *ckpt.Finding, p *ckpt.Policy, suspects bool, start string) *explanation {
	e := &explanation{Finding: f, Advice: todo(f, suspects, start), suspects: suspects}
	for _, r := range drift.New().Rules(p) {
		if r.Rule == f.Rule {
			e.Rule = &r
		}
	}
	for i := range p.Rules {
		if p.Rules[i].Name == f.Rule {
			e.Own = &p.Rules[i]
		}
	}
	return e
}

// todo lists the commands with which to continue.
func todo(f *ckpt.Finding, suspects bool, start string) []string {
	if f.Closed != "" && (!f.Marks() || !f.DismissedAt.IsZero()) {
		return []string{}
	}
	list := []string{}
	if suspects && view.CoversCheckpoints(*f) {
		list = append(list, "Stop the agent, and go back to the newest clean checkpoint with: "+start)
	}
	dismiss := "ckptsidecar drift dismiss " + f.ID + "   says that it was none, or is dealt with"
	if suspects {
		dismiss += ": its suspects are clean again"
	}
	return append(list, dismiss)
}

func explanationText(a *cli.App, e *explanation) {
	f := e.Finding
	term.Printf(a.Stdout, "%s  %s\n%s\n", a.Out.Bold(f.Rule), view.SeverityText(f.Severity, a.Out), f.Message)
	p := &term.Pairs{}
	p.Add("found", fmt.Sprintf("%s in run %s of %s", term.Moment(f.At), f.Run, f.Agent))
	p.Add("now", nowLine(f))
	if f.Advice != "" {
		p.Add("advice", string(f.Advice))
	}
	switch {
	case e.Own != nil:
		p.Add("the rule", "one of the policy's own: "+e.Own.When)
	case e.Rule != nil:
		p.Add("the rule", e.Rule.About)
		p.Add("over when", e.Rule.OverWhen)
		p.Add("holds", fmt.Sprintf("%s; warn at %s, critical at %s %s", e.Rule.Tier,
			thresholdText(e.Rule.Warn, e.Rule.WarnWindow), thresholdText(e.Rule.Critical, e.Rule.CriticalWindow), e.Rule.Unit))
	}
	evidencePairs(p, f)
	if f.Checkpoint != "" {
		p.Add("checkpoint", string(f.Checkpoint))
	}
	if e.suspects {
		p.Add("suspect", suspectLine(f))
	}
	p.Write(a.Stdout, a.Out)
	for _, line := range e.Advice {
		term.Println(a.Stdout, line)
	}
}

func nowLine(f *ckpt.Finding) string {
	switch {
	case !f.DismissedAt.IsZero():
		return fmt.Sprintf("dismissed %s by %s", term.Moment(f.DismissedAt), f.DismissedBy)
	case f.Closed != "":
		return fmt.Sprintf("closed %s: %s", term.Moment(f.ClosedAt), term.Words(string(f.Closed)))
	}
	return "open"
}

func suspectLine(f *ckpt.Finding) string {
	switch {
	case !f.DismissedAt.IsZero():
		return "nothing any more"
	case f.UntilSeq != nil:
		return fmt.Sprintf("checkpoints %d to %d", *f.SinceSeq+1, *f.UntilSeq)
	}
	return fmt.Sprintf("all checkpoints from number %d on", *f.SinceSeq+1)
}

// evidencePairs shows the evidence of a finding. It shows evidence that the agent itself
// reported unchanged.
func evidencePairs(p *term.Pairs, f *ckpt.Finding) {
	var e ckpt.Evidence
	if err := jsontext.Decode(f.Evidence, &e); err != nil {
		var text bytes.Buffer
		if json.Compact(&text, f.Evidence) == nil {
			p.Add("evidence", shortened(text.String(), 400))
		}
		return
	}
	for _, row := range [][2]string{
		{"threshold", e.Threshold}, {"observed", e.Observed}, {"tool", e.Tool}, {"steps", strings.Join(e.Steps, " ")},
		{"checkpoints", strings.Join(e.Checkpoints, " ")}, {"place", e.Pointer}, {"others", strings.Join(e.Others, ", ")},
	} {
		if row[1] != "" {
			p.Add(row[0], row[1])
		}
	}
}
