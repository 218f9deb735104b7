package mcpserver

import (
	"context"
	"fmt"
	"strings"

	ckpt "github.com/ckptsidecar/ckptsidecar"
)

func (s *Server) addRunTools() {
	add(s, tool[resumeIn, resumeOut]{
		name: "resume_run", title: "Begin or resume a run", repeatable: true,
		description: "Use it first, and when told to. Takes the run over; returns the newest " +
			"sound state, and what is done (do not redo it), interrupted and uncertain. " +
			"verdict: fresh: begin; resume, repair: go on, heeding the lists; ask: a person must decide; unsafe: another process works on it.",
		do: s.resume,
	})
	add(s, tool[driftIn, driftOut]{
		name: "drift_status", title: "Ask whether you drift", reads: true,
		description: "Ask whether you go in circles, repeat errors, stand still or overspend. Use it before you " +
			"retry what failed twice. Returns advice, and the checkpoint to go back to.",
		do: s.drift,
	})
}

type resumeIn struct {
	Run    string `json:"run,omitempty"`
	Reason string `json:"reason,omitempty"`
	Look   bool   `json:"look_only,omitempty"`
	Force  bool   `json:"force,omitempty" doc:"Take it from a live process: if the user says so"`
	Leave  bool   `json:"leave_uncertain,omitempty" doc:"Go on unanswered: if the user says so"`
}

type resumeOut struct {
	Message    string      `json:"message" doc:"What to do now, in words."`
	Verdict    string      `json:"verdict" enum:"fresh,resume,repair,ask,unsafe"`
	Run        string      `json:"run"`
	Claimed    bool        `json:"claimed" doc:"The run is yours now."`
	Attempt    int64       `json:"attempt" doc:"How often it was begun or resumed."`
	Reasons    []string    `json:"reasons"`
	Checkpoint *checkpoint `json:"checkpoint,omitempty" doc:"The checkpoint of the state."`
	state
	Completed   []doneStep  `json:"completed_steps" doc:"Done since that checkpoint: do not do these again, use their results."`
	Interrupted []openStep  `json:"interrupted_steps" doc:"Begun and never finished: look whether they took effect before you do them again."`
	Uncertain   []operation `json:"uncertain_operations" doc:"Nobody knows whether these took effect: do not do them again, unless they are idempotent."`
	Continue    string      `json:"continuation_prompt,omitempty" doc:"What the session before wanted to tell you."`
	Question    string      `json:"question,omitempty" doc:"What a person has to decide."`
}

type doneStep struct {
	Key    string    `json:"key"`
	Name   string    `json:"name"`
	Result ckpt.JSON `json:"result"`
}

type openStep struct {
	Key   string    `json:"key"`
	Name  string    `json:"name"`
	Args  ckpt.JSON `json:"args"`
	Began string    `json:"started_at"`
}

type operation struct {
	Key        string `json:"key"`
	Name       string `json:"name"`
	Attempt    int64  `json:"attempt"`
	Began      string `json:"started_at"`
	Evidence   string `json:"error,omitempty" doc:"What is known of its end."`
	Idempotent bool   `json:"idempotent" doc:"Doing it again with the same key is harmless: begin it again."`
	Resolve    string `json:"resolve" doc:"The command with which a person says what became of it."`
}

func (s *Server) resume(ctx context.Context, in *resumeIn) (*resumeOut, error) {
	r := ckpt.ResumeRequest{Agent: s.agent, Run: s.named(in.Run), PID: s.pid, Reason: in.Reason, DryRun: in.Look, Force: in.Force, LeaveUncertain: in.Leave}
	if err := r.Check(); err != nil {
		return nil, err
	}
	plan, _, err := s.client.Resume(ctx, r)
	if err != nil {
		return nil, err
	}
	if plan.Claimed {
		s.hold(r.Run, plan.Epoch)
	}
	return shownPlan(plan), nil
}

// Limits on what is shown of steps, so that a plan is short enough for a model.
const (
	maxShownSteps = 100
	maxShownValue = 8 << 10
)

// shownValue returns a value, or how to get it if it is too long.
func shownValue(value ckpt.JSON) ckpt.JSON {
	if len(value) <= maxShownValue {
		return value
	}
	return ckpt.JSON(fmt.Sprintf(
		`"(%d bytes, not shown; a completed step gives its result to report_step with its key and status started)"`, len(value)))
}

func shownPlan(p *ckpt.Plan) *resumeOut {
	out := &resumeOut{
		Verdict: string(p.Verdict), Run: p.Run, Claimed: p.Claimed, Attempt: p.Attempt, Reasons: p.Reasons, Continue: string(p.ContinuationPrompt),
		Completed: []doneStep{}, Interrupted: []openStep{}, Uncertain: []operation{},
	}
	if c := p.Checkpoint; c != nil {
		shown := shownCheckpoint(c)
		out.Checkpoint, out.state = &shown, shownState(c)
	}
	for _, step := range p.CompletedSteps[max(0, len(p.CompletedSteps)-maxShownSteps):] {
		out.Completed = append(out.Completed, doneStep{step.Key, step.Name, shownValue(step.Result)})
	}
	for _, step := range p.InterruptedSteps[max(0, len(p.InterruptedSteps)-maxShownSteps):] {
		out.Interrupted = append(out.Interrupted, openStep{step.Key, step.Name, shownValue(step.Args), step.StartedAt.String()})
	}
	for _, o := range p.UncertainOperations {
		out.Uncertain = append(out.Uncertain, operation{
			o.Key, o.Name, o.Attempt, o.StartedAt.String(), string(o.Error), o.Idempotent, ckpt.ResolveCommand(p.Agent, p.Run, o.Key)})
	}
	if p.Prompt != nil {
		out.Question = p.Prompt.Question
	}
	out.Message = advice(p)
	if n := len(p.CompletedSteps); n > maxShownSteps {
		out.Message += fmt.Sprintf(" Of %d completed steps the newest %d are listed: before you do anything that may "+
			"have been done, ask with report_step and status started under its key.", n, maxShownSteps)
	}
	if p.Checkpoint != nil {
		out.Message += out.where(p.Checkpoint)
	}
	return out
}

// advice says in words what a plan asks of a model.
func advice(p *ckpt.Plan) string {
	var say []string
	switch p.Verdict {
	case ckpt.VerdictFresh:
		say = append(say, fmt.Sprintf("There is nothing to resume in run %s: start from the beginning.", p.Run))
	case ckpt.VerdictResume:
		say = append(say, fmt.Sprintf("Run %s can continue: load the state, and continue from there.", p.Run))
	case ckpt.VerdictRepair:
		say = append(say, fmt.Sprintf("Run %s can continue from the state, with these changes: %s", p.Run, strings.Join(p.Reasons, " ")))
	case ckpt.VerdictAsk:
		say = append(say, fmt.Sprintf("A person has to decide first, so run %s was not taken over: %s", p.Run,
			strings.Join(p.Reasons, " ")), "Tell the user, and say how to answer:")
		about := false
		for i := range p.UncertainOperations {
			if o := &p.UncertainOperations[i]; o.NeedsPerson() {
				about = true
				say = append(say, fmt.Sprintf("once it is known whether %s took effect: %s;", o.Name, ckpt.ResolveCommand(p.Agent, p.Run, o.Key)))
			}
		}
		if p.Prompt != nil && !about {
			say = append(say, fmt.Sprintf("ckptsidecar prompts answer %s resume|reinitialize|abandon.", p.Prompt.ID))
		}
		return strings.Join(append(say, "Then call resume_run again."), " ")
	default:
		say = append(say, fmt.Sprintf("It is not safe to continue run %s: %s Use another run, or ask the user.", p.Run, strings.Join(p.Reasons, " ")))
		return strings.Join(say, " ")
	}
	if len(p.CompletedSteps) > 0 {
		say = append(say, "The steps in completed_steps are done: do not repeat them.")
	}
	if len(p.InterruptedSteps) > 0 {
		say = append(say, "The steps in interrupted_steps were started: check whether they took effect before you repeat them.")
	}
	return strings.Join(say, " ")
}

type driftIn struct {
	Run string `json:"run,omitempty"`
}

type driftOut struct {
	Message string `json:"message"`
	drift
}

func (s *Server) drift(ctx context.Context, in *driftIn) (*driftOut, error) {
	report, err := s.client.Drift(ctx, ckpt.DriftFilter{Agent: s.agent, Run: s.named(in.Run)})
	if ckpt.CodeOf(err) == ckpt.CodeNotFound {
		return &driftOut{Message: "No step was reported in this run yet, so there is no verdict.",
			drift: drift{Verdict: string(ckpt.SeverityNone), Findings: []finding{}}}, nil
	}
	if err != nil {
		return nil, err
	}
	out := &driftOut{Message: "No findings are open.", drift: *shownDrift(&report.DriftVerdict)}
	if report.Verdict != ckpt.SeverityNone {
		out.Message = strings.TrimSpace(fmt.Sprintf("%d findings are open.%s", len(report.Findings), warning(&report.DriftVerdict)))
	}
	return out, nil
}
