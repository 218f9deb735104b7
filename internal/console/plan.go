package console

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"strconv"

	ckpt "github.com/ckptsidecar/ckptsidecar"
	"github.com/ckptsidecar/ckptsidecar/internal/console/draw"
	"github.com/ckptsidecar/ckptsidecar/internal/ipc/client"
	"github.com/ckptsidecar/ckptsidecar/internal/survey"
)

// planView shows how the run would continue.
type planView struct {
	Head    string // "" for the plan of a resume
	Verdict draw.Badge
	Rows    []planRow
	Command string
	Unknown string // says that nobody has recorded how the agent is started
	Waits   string // who goes on when a person has answered; "" if nobody waits
}

type planRow struct {
	Class, Icon, Head, Code, Detail string
	Buttons                         []button
}

var verdicts = map[ckpt.ResumeVerdict]draw.Badge{
	"ask":    {Class: "crit", Icon: "ask", Word: "Ask first"},
	"resume": {Icon: "done", Word: "Resume"},
	"repair": {Class: "warn", Icon: "warn", Word: "Repair"},
	"unsafe": {Class: "crit", Icon: "crit", Word: "Unsafe"},
	"fresh":  {Icon: "play", Word: "Fresh"},
}

// plan asks how the run would continue, and claims nothing. A running run has no plan:
// asking for it would read the run's newest state.
func (c *Console) plan(ctx context.Context, line client.Operator, run *ckpt.Run, rec *survey.Recorder, readOnly bool,
	base string) (*planView, error) {
	if !run.Status.Resumable() || run.Status == ckpt.RunRunning || run.Status == ckpt.RunStarting {
		return nil, nil
	}
	p, _, err := line.Resume(ctx, ckpt.ResumeRequest{Agent: run.Agent, Run: run.Run, DryRun: true})
	var e *ckpt.Error
	if errors.As(err, &e) && e.Host != "" {
		return &planView{Verdict: draw.Badge{Class: "warn", Icon: "lost", Word: "Elsewhere"}, Rows: []planRow{
			{Class: "warn", Icon: "lost", Head: "Host " + e.Host + " of the fleet has this run", Detail: e.Message},
		}}, nil
	}
	if err != nil {
		return nil, err
	}
	return viewPlan(run, rec, p, readOnly, base), nil
}

// evidenceOf says what is known of the end of an uncertain operation.
func evidenceOf(o *ckpt.Operation) string {
	if o.Error == "" {
		return "Its end was never recorded."
	}
	return "What is known of its end: " + draw.FirstLine(string(o.Error), 200)
}

// start says how the agent of a run is started.
func (v *planView) start(run *ckpt.Run, c *ckpt.Command) {
	if v.Command = ckpt.ExecCommand(run.Agent, run.Run, c); c == nil {
		v.Unknown = ckpt.CommandUnknown
	}
}

// parentView is the checkpoint that a run was forked from.
type parentView struct {
	Name, Href string        // Href is "" if the checkpoint is not kept any more
	command    *ckpt.Command // of the run that has the checkpoint
}

// parentOf finds what a run was forked from; nil if it was not forked.
func parentOf(ctx context.Context, line client.Operator, base string, run *ckpt.Run) (*parentView, error) {
	if run.ForkedFrom == "" {
		return nil, nil
	}
	cp, err := line.Checkpoint(ctx, string(run.ForkedFrom), false)
	if ckpt.CodeOf(err) == ckpt.CodeNotFound {
		return &parentView{Name: "a checkpoint that is not kept any more"}, nil
	}
	if err != nil {
		return nil, err
	}
	from, err := line.Run(ctx, ckpt.RunRef{Agent: cp.Agent, Run: cp.Run})
	if err != nil {
		return nil, err
	}
	return &parentView{fmt.Sprintf("checkpoint %d of %s", cp.Seq, cp.Run), runPath(base, cp.Owner, cp.Agent, cp.Run) + "?cp=" + cp.ID, from.Command}, nil
}

// waitsForAgent reports whether a fork was registered and nobody has run it yet. It has no checkpoint, or only the
// state that a person changed in the console.
func waitsForAgent(run *ckpt.Run, rec *survey.Recorder, p *picked) bool {
	edited := run.Status == ckpt.RunRunning && rec.Sums.Saves == 1 && rec.Sums.StepsEnded == 0 && p != nil && p.Checkpoint.Labels[labelEdited] != ""
	return run.ForkedFrom != "" && run.PID == 0 && (run.Status == ckpt.RunStarting || edited)
}

// viewBegin shows how a forked run that nobody runs yet begins.
func viewBegin(run *ckpt.Run, parent *parentView) *planView {
	v := &planView{Head: "Nobody runs it yet", Verdict: draw.Badge{Icon: "play", Word: "waits for its agent"}}
	v.Rows = []planRow{{Icon: "load", Head: "Load the state of " + parent.Name, Detail: "A fork begins with the state of that checkpoint, or with what a person made of it."}}
	command := run.Command
	if command == nil {
		command = parent.command
	}
	v.start(run, command)
	return v
}

// viewPlan describes a plan in words.
func viewPlan(run *ckpt.Run, rec *survey.Recorder, p *ckpt.Plan, readOnly bool, base string) *planView {
	v := &planView{Verdict: verdicts[p.Verdict]}
	v.start(run, run.Command)
	if run.WaitingPID != 0 {
		v.Waits = "The run " + ckpt.WaitsText(run.WaitingPID) + "."
	}
	if v.Verdict.Word == "" {
		v.Verdict = draw.Badge{Icon: "play", Word: string(p.Verdict)}
	}
	form := func(label, what string, more url.Values) button {
		q := url.Values{"owner": {run.Owner}, "agent": {run.Agent}, "run": {run.Run}}
		for k, list := range more {
			q[k] = list
		}
		return button{label, base + "ask/" + what + "?" + q.Encode()}
	}
	for i := range p.UncertainOperations {
		o := &p.UncertainOperations[i]
		row := planRow{Class: "crit", Icon: "unc", Head: "Find out about “" + draw.FirstLine(o.Name, 60) + "”", Code: draw.FirstLine(o.Key, 60),
			Detail: "Begun " + draw.Clock(o.StartedAt) + ". " + evidenceOf(o)}
		if !readOnly {
			row.Buttons = []button{
				form("It did", "resolve", url.Values{"op": {pack(o.Key)}, "status": {"it_did"}}),
				form("It did not", "resolve", url.Values{"op": {pack(o.Key)}, "status": {"it_did_not"}}),
				form("Repeat…", "resolve", url.Values{"op": {pack(o.Key)}, "status": {"repeat"}}),
			}
		}
		v.Rows = append(v.Rows, row)
	}
	prompts := p.Questions
	if p.Prompt != nil && p.Prompt.Kind != ckpt.PromptOperation { // an operation has a row above
		prompts = append([]ckpt.Prompt{*p.Prompt}, prompts...)
	}
	for i := range prompts {
		if x := &prompts[i]; x.Status == ckpt.PromptOpen {
			row := planRow{Class: "crit", Icon: "ask", Head: draw.FirstLine(x.Question, 200), Detail: draw.FirstLine(x.Reason, 200)}
			if !readOnly {
				row.Buttons = []button{form("Answer…", "answer", url.Values{"prompt": {x.ID}})}
			}
			v.Rows = append(v.Rows, row)
		}
	}
	if cp := p.Checkpoint; cp != nil {
		v.Rows = append(v.Rows, planRow{Icon: "load", Head: fmt.Sprintf("Load checkpoint %d", cp.Seq),
			Detail: fmt.Sprintf("%s, saved %s, clean and intact, %s", draw.KindWord(cp.Kind), draw.Clock(cp.CreatedAt), draw.Bytes(cp.Size))})
	} else {
		v.Rows = append(v.Rows, planRow{Icon: "play", Head: "Begin without a state", Detail: "There is no checkpoint to load."})
	}
	if n := len(p.Skipped); n > 0 {
		v.Rows = append(v.Rows, planRow{Class: "warn", Icon: "warn", Head: "Pass over " + draw.Plural(n, "checkpoint"),
			Detail: draw.FirstLine(p.Skipped[0].Reason, 160)})
	}
	for i := range p.InterruptedSteps {
		if i == 3 {
			v.Rows = append(v.Rows, planRow{Class: "crit", Icon: "lost", Head: draw.Plural(len(p.InterruptedSteps)-3, "more step") + " lost"})
			break
		}
		v.Rows = append(v.Rows, planRow{Class: "crit", Icon: "lost",
			Head:   "Tell the model that " + draw.FirstLine(p.InterruptedSteps[i].Key, 60) + " was lost",
			Detail: "A ready error result keeps the transcript valid."})
	}
	head := "No steps have succeeded since it"
	if n := len(p.CompletedSteps); n > 0 {
		head = draw.Plural(n, "step") + " succeeded since it"
	}
	v.Rows = append(v.Rows,
		planRow{Icon: "done", Head: head,
			Detail: "What succeeded before is not run again: " + draw.Count(max(0, rec.Sums.Steps-rec.Sums.Failed)) + " in all."},
		planRow{Icon: "play", Head: "Epoch " + strconv.FormatInt(run.Epoch, 10) + " becomes " + strconv.FormatInt(run.Epoch+1, 10),
			Detail: "Whoever ran it before is fenced from then on."})
	for _, reason := range p.Reasons {
		if len(p.UncertainOperations) == 0 && p.Verdict != "resume" && p.Verdict != "fresh" {
			v.Rows = append(v.Rows, planRow{Class: "m", Icon: "doc", Head: draw.FirstLine(reason, 200)})
		}
	}
	return v
}
