package mcpserver

import (
	"context"
	"fmt"

	"github.com/google/uuid"

	ckpt "github.com/ckptsidecar/ckptsidecar"
	"github.com/ckptsidecar/ckptsidecar/internal/wellformed"
)

func (s *Server) addStepTools() {
	add(s, tool[beginIn, beginOut]{
		name: "begin_operation", title: "Begin a risky operation",
		description: "Use it before what must not happen twice: deploy, payment, " +
			"deletion. Saves the state to go back to. " +
			"Act only if go_ahead is true; else it was done before: use the result. Then finish_operation.",
		do: s.begin,
	})
	add(s, tool[finishIn, finishOut]{
		name: "finish_operation", title: "End a risky operation", repeatable: true,
		description: "Use it after begin_operation: how it ended. A failure returns the state to go back to.",
		do:          s.finish,
	})
	add(s, tool[stepIn, stepOut]{
		name: "report_step", title: "Report a step",
		description: "Report a tool call or test run after it ended. The answer says at once if you loop, repeat " +
			"errors or stand still: follow its advice. " +
			"With status started, a key that succeeded before returns its result.",
		do: s.step,
	})
}

type beginIn struct {
	Key   string    `json:"key" doc:"Same for every attempt, such as deploy-v1.4"`
	Name  string    `json:"name,omitempty"`
	State ckpt.JSON `json:"state,omitempty" type:"object" doc:"As in save_checkpoint. Default: the newest saved"`
	Again bool      `json:"idempotent,omitempty" doc:"Harmless to repeat"`
	Run   string    `json:"run,omitempty"`
}

type beginOut struct {
	Message    string    `json:"message"`
	GoAhead    bool      `json:"go_ahead" doc:"Do it now. If false it was done before: use the result."`
	Status     string    `json:"status" enum:"open,succeeded,failed,uncertain,superseded"`
	Attempt    int64     `json:"attempt"`
	Result     ckpt.JSON `json:"result" doc:"From an earlier call."`
	Checkpoint string    `json:"checkpoint,omitempty" doc:"The checkpoint to go back to."`
	Drift      *drift    `json:"drift,omitempty"`
}

func (s *Server) begin(ctx context.Context, in *beginIn) (*beginOut, error) {
	r := ckpt.OperationRequest{Key: in.Key, Name: in.Name, State: in.State, Idempotent: in.Again}
	if r.Name == "" {
		r.Name = r.Key
	}
	if err := wellformed.Operation(&r); err != nil {
		return nil, err
	}
	ref, err := s.own(ctx, in.Run)
	if err != nil {
		return nil, err
	}
	o, _, err := s.client.BeginOperation(ctx, ref, r)
	if err != nil {
		return nil, s.note(ctx, ref, err)
	}
	out := &beginOut{GoAhead: !o.Replayed, Status: string(o.Status), Attempt: o.Attempt, Result: o.Result,
		Checkpoint: string(o.Checkpoint), Drift: shownDrift(o.Drift)}
	switch {
	case o.Replayed:
		out.Message = fmt.Sprintf("%s was done before, at %s: do not repeat it, use its result.", o.Key, o.EndedAt)
	case o.Checkpoint == "":
		out.Message = fmt.Sprintf("Do it now, then call finish_operation with key %s. The run has no state yet, so you cannot go back.", o.Key)
	default:
		out.Message = fmt.Sprintf("Do it now, then call finish_operation with key %s.", o.Key)
	}
	out.Message += warning(o.Drift)
	return out, nil
}

type finishIn struct {
	Key    string    `json:"key"`
	Status string    `json:"status" enum:"succeeded,failed,uncertain" doc:"failed: it surely did not happen"`
	Result ckpt.JSON `json:"result,omitempty"`
	Error  string    `json:"error,omitempty"`
	Run    string    `json:"run,omitempty"`
}

type finishOut struct {
	Message    string      `json:"message"`
	Status     string      `json:"status" enum:"open,succeeded,failed,uncertain,superseded"`
	Checkpoint *checkpoint `json:"checkpoint,omitempty" doc:"After a failure: what to go back to."`
	state
}

func (s *Server) finish(ctx context.Context, in *finishIn) (*finishOut, error) {
	r := ckpt.OperationEnd{Key: in.Key, Status: ckpt.OperationStatus(in.Status), Result: in.Result, Error: ckpt.Ref(in.Error)}
	if err := wellformed.OperationEnd(&r); err != nil {
		return nil, err
	}
	ref, err := s.own(ctx, in.Run)
	if err != nil {
		return nil, err
	}
	ended, _, err := s.client.EndOperation(ctx, ref, r)
	if err != nil {
		return nil, s.note(ctx, ref, err)
	}
	out := &finishOut{Status: string(ended.Status), Message: fmt.Sprintf("Noted: %s is %s.", ended.Key, ended.Status)}
	if ended.Status == ckpt.OperationUncertain {
		out.Message = fmt.Sprintf("Noted: nobody knows whether %s took effect. Do not repeat it. Tell the user to find out, and then to run: %s",
			ended.Key, ckpt.ResolveCommand(ref.Agent, ref.Run, ended.Key))
	}
	if c := ended.Restore; c != nil {
		shown := shownCheckpoint(c)
		out.Checkpoint, out.state = &shown, shownState(c)
		out.Message += " The state from before it is included: continue from there, and undo by hand what it left behind." + out.where(c)
	}
	return out, nil
}

type stepIn struct {
	Name         string    `json:"name"`
	Key          string    `json:"key,omitempty" doc:"Default: a new one"`
	Args         ckpt.JSON `json:"args,omitempty"`
	Status       string    `json:"status,omitempty" enum:"started,succeeded,failed" doc:"Default: by error"`
	Result       ckpt.JSON `json:"result,omitempty"`
	Error        string    `json:"error,omitempty"`
	Turn         string    `json:"turn,omitempty" doc:"The same for all calls of one answer"`
	Outcome      string    `json:"outcome,omitempty" enum:"negative" doc:"The answer was no: that is no error"`
	DurationMS   *int64    `json:"duration_ms,omitempty"`
	InputTokens  *int64    `json:"input_tokens,omitempty"`
	OutputTokens *int64    `json:"output_tokens,omitempty"`
	CostUSD      *float64  `json:"cost_usd,omitempty"`
	Progress     *float64  `json:"progress,omitempty" doc:"It only grows"`
	Run          string    `json:"run,omitempty"`
}

type stepOut struct {
	Message  string    `json:"message"`
	Key      string    `json:"key"`
	Status   string    `json:"status" enum:"started,succeeded,failed,interrupted"`
	Replayed bool      `json:"replayed" doc:"It succeeded before: use its result, do not do it again."`
	Result   ckpt.JSON `json:"result" doc:"From the earlier call, if replayed."`
	Drift    *drift    `json:"drift,omitempty"`
}

func (s *Server) step(ctx context.Context, in *stepIn) (*stepOut, error) {
	r := ckpt.StepRequest{
		Key: in.Key, Name: in.Name, Args: in.Args, Status: ckpt.StepStatus(in.Status), Result: in.Result, Error: ckpt.Ref(in.Error),
		Turn: ckpt.Ref(in.Turn), Outcome: ckpt.Ref(in.Outcome), DurationMS: in.DurationMS,
		InputTokens: in.InputTokens, OutputTokens: in.OutputTokens, CostUSD: in.CostUSD, Progress: in.Progress,
	}
	if r.Key == "" {
		r.Key = "step-" + uuid.NewString()
	}
	if r.Status == "" {
		r.Status = ckpt.StepSucceeded
		if in.Error != "" {
			r.Status = ckpt.StepFailed
		}
	}
	if err := wellformed.Step(&r, false); err != nil {
		return nil, err
	}
	ref, err := s.own(ctx, in.Run)
	if err != nil {
		return nil, err
	}
	step, err := s.putStep(ctx, ref, r)
	if err != nil {
		return nil, s.note(ctx, ref, err)
	}
	out := &stepOut{Key: step.Key, Status: string(step.Status), Replayed: step.Replayed,
		Drift: shownDrift(step.Drift), Message: fmt.Sprintf("Noted: %s has %s.", step.Name, step.Status)}
	if step.Replayed {
		out.Result, out.Message = step.Result, fmt.Sprintf("%s succeeded before, at %s: do not repeat it, use its result.", step.Key, step.EndedAt)
	}
	out.Message += warning(step.Drift)
	return out, nil
}

// putStep begins a step, ends a step that this server has begun, or records a whole
// step.
func (s *Server) putStep(ctx context.Context, ref ckpt.RunRef, r ckpt.StepRequest) (*ckpt.Step, error) {
	which := [2]string{ref.Run, r.Key}
	if s.begun[which] && r.Status != ckpt.StepStarted {
		step, _, err := s.client.FinishStep(ctx, ref, r)
		if ckpt.CodeOf(err) != ckpt.CodeNotFound {
			delete(s.begun, which)
			return step, err
		}
	}
	step, _, err := s.client.BeginStep(ctx, ref, r)
	if err == nil && step.Status == ckpt.StepStarted {
		s.begun[which] = true
	}
	return step, err
}
