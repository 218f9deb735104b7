package main

import (
	"context"
	"fmt"
	"strings"

	ckpt "github.com/ckptsidecar/ckptsidecar"
	"github.com/ckptsidecar/ckptsidecar/internal/cli"
	"github.com/ckptsidecar/ckptsidecar/internal/cli/term"
	"github.com/ckptsidecar/ckptsidecar/internal/cli/view"
	"github.com/ckptsidecar/ckptsidecar/internal/osfile"
	"github.com/ckptsidecar/ckptsidecar/internal/wellformed"
)

type operationsCmd struct {
	Agent  string `arg:"" help:"The agent's name."`
	InRun  string `name:"run" help:"The run. Default: under exec its run, else main, else the one that changed last." placeholder:"NAME"`
	Status string `enum:",open,succeeded,failed,uncertain,superseded" default:"" help:"Only of this status: ${operation_statuses}." placeholder:"STATUS"`
	cli.Paged
}

func (c *operationsCmd) Run(ctx context.Context, a *app) error {
	ref, err := a.RefToRead(ctx, c.Agent, c.InRun, c.Paged.Check())
	if err != nil {
		return err
	}
	all := &ckpt.OperationPage{Operations: []ckpt.Operation{}}
	all.Next, err = c.Paged.Read(func(before string, limit int) (ckpt.Ref, error) {
		page, err := a.Client().Operations(ctx, ref, ckpt.ListFilter{Status: c.Status, Before: before, Limit: limit})
		if err != nil {
			return "", err
		}
		all.Operations = append(all.Operations, page.Operations...)
		return page.Next, nil
	})
	switch {
	case err != nil:
		return err
	case a.JSON:
		return a.WriteJSON(all)
	case len(all.Operations) == 0:
		a.Tell("no operation of %s matches", c.Agent)
		return nil
	}
	t := term.NewTable("KEY", "~NAME", ">ATTEMPT", "STATUS", "BEGAN", "?ENDED", "~RESULT OR ERROR", "?#CHECKPOINT")
	uncertain := ""
	for i := range all.Operations {
		o := &all.Operations[i]
		t.Add(o.Key, o.Name, fmt.Sprint(o.Attempt), operationStatusText(o.Status, a.Out), a.Out.Time(o.StartedAt), endedText(o.EndedAt, a.Out),
			outcome(o.Result, o.Error), string(o.Checkpoint))
		if o.Status == ckpt.OperationUncertain {
			uncertain = o.Key
		}
	}
	t.Write(a.Stdout, a.Out)
	c.Paged.More(a.App, all.Next)
	if uncertain != "" {
		a.Tell("uncertain: nobody knows whether it took effect. When you know: %s --reason 'how you know'", ckpt.ResolveCommand(c.Agent, ref.Run, uncertain))
	}
	return nil
}

func endedText(t ckpt.Time, s *term.Style) string {
	if t.IsZero() {
		return "-"
	}
	return s.Time(t)
}

func operationStatusText(status ckpt.OperationStatus, s *term.Style) string {
	switch status {
	case ckpt.OperationSucceeded:
		return s.Green(string(status))
	case ckpt.OperationUncertain:
		return s.Red(string(status))
	case ckpt.OperationFailed:
		return s.Yellow(string(status))
	default:
		return s.Cyan(string(status))
	}
}

type operationCmd struct {
	Begin   operationBeginCmd   `cmd:"" help:"Begin a risky operation: save the state to go back to. Prints open, or succeeded if done before."`
	Succeed operationSucceedCmd `cmd:"" help:"Record that the operation succeeded. Its checkpoint may then be removed."`
	Fail    operationFailCmd    `cmd:"" help:"Record that the operation is known not to have happened, and get the state to go back to."`
	Doubt   operationDoubtCmd   `cmd:"" help:"Record that nobody knows whether the operation took effect."`
	Resolve operationResolveCmd `cmd:"" help:"Record what became of an uncertain operation."`
}

// ofOperation has the arguments that every operation command has.
type ofOperation struct {
	Agent string `arg:"" help:"The agent's name."`
	Key   string `arg:"" help:"The operation's key: the same work has the same key whenever it is tried."`
	InRun string `name:"run" help:"The run. Default: main, or under exec its run." placeholder:"NAME"`
}

type operationBeginCmd struct {
	ofOperation
	Epoch *int64            `help:"The run's epoch that you hold; a newer owner's run then refuses it." placeholder:"N"`
	Name  string            `help:"What is done. Default: the key." placeholder:"TEXT"`
	State string            `help:"The state to go back to, a JSON file; - for standard input. Default: the run's newest." placeholder:"FILE"`
	Label map[string]string `mapsep:"none" help:"A label of the checkpoint; may be repeated." placeholder:"K=V"`

	Args         string `help:"The arguments, as JSON, for the person who is asked if nobody knows how it ended." placeholder:"JSON"`
	Idempotent   bool   `help:"Repeating it with the same key is harmless: after a crash it is begun again without a question."`
	Check        bool   `help:"The code can find out itself whether it took effect: at a resume nobody is asked before the code has looked."`
	ResultSchema string `help:"The JSON Schema of the result that a person must give with it_did: JSON, or @FILE." placeholder:"JSON"`
}

// Run prints only the status on standard output, so that this works in a shell:
//
//	if [ "$(ckptsidecar operation begin …)" = open ]
func (c *operationBeginCmd) Run(ctx context.Context, a *app) error {
	ref := a.Ref(c.Agent, c.InRun, c.Epoch)
	schema, err := a.jsonArgument(ctx, c.ResultSchema)
	if err != nil {
		return err
	}
	r := ckpt.OperationRequest{Key: c.Key, Name: c.Name, Labels: c.Label, Args: jsonOf(c.Args), Idempotent: c.Idempotent, SelfCheck: c.Check, ResultSchema: schema}
	if r.Name == "" {
		r.Name = c.Key
	}
	if err := cli.Checked(ref.Check(), wellformed.Operation(&r)); err != nil {
		return err
	}
	if c.State != "" {
		state, err := a.readState(ctx, c.State, ckpt.ContentTypeJSON, false)
		if err != nil {
			return err
		}
		r.State = state
		if err := cli.Checked(wellformed.Operation(&r)); err != nil {
			return err
		}
	}
	o, _, err := a.Client().BeginOperation(ctx, ref, r)
	switch {
	case err != nil:
		return err
	case a.JSON:
		return a.WriteJSON(o)
	}
	term.Println(a.Stdout, o.Status)
	switch {
	case o.Replayed:
		a.Tell("operation %s was already done, at %s: do not repeat it%s", o.Key, term.Moment(o.EndedAt), resultText(o.Result))
	case o.Checkpoint == "":
		a.Tell("%s %s, attempt %d; the run has no state yet, so there is none to go back to", a.Err.Green("open:"), o.Key, o.Attempt)
	default:
		a.Tell("%s %s, attempt %d; the state to go back to is checkpoint %s", a.Err.Green("open:"), o.Key, o.Attempt, o.Checkpoint)
	}
	view.TellDrift(ctx, a.App, o.Drift, ref)
	return nil
}

type operationSucceedCmd struct {
	ofOperation
	Epoch  *int64 `help:"The run's epoch that you hold; a newer owner's run then refuses it." placeholder:"N"`
	Result string `help:"What came out, as JSON." placeholder:"JSON"`
}

func (c *operationSucceedCmd) Run(ctx context.Context, a *app) error {
	return c.end(ctx, a, c.Epoch, ckpt.OperationEnd{Status: ckpt.OperationSucceeded, Result: jsonOf(c.Result)}, "")
}

type operationFailCmd struct {
	ofOperation
	Epoch  *int64 `help:"The run's epoch that you hold; a newer owner's run then refuses it." placeholder:"N"`
	Error  string `help:"Why it was not done." placeholder:"TEXT"`
	Output string `short:"o" help:"Write the state to go back to to this file, whole or not at all." placeholder:"FILE"`
}

func (c *operationFailCmd) Run(ctx context.Context, a *app) error {
	return c.end(ctx, a, c.Epoch, ckpt.OperationEnd{Status: ckpt.OperationFailed, Error: ckpt.Ref(c.Error)}, c.Output)
}

type operationDoubtCmd struct {
	ofOperation
	Epoch *int64 `help:"The run's epoch that you hold; a newer owner's run then refuses it." placeholder:"N"`
	Error string `help:"What is known of its end, for the person who is asked." placeholder:"TEXT"`
}

func (c *operationDoubtCmd) Run(ctx context.Context, a *app) error {
	return c.end(ctx, a, c.Epoch, ckpt.OperationEnd{Status: ckpt.OperationUncertain, Error: ckpt.Ref(c.Error)}, "")
}

type operationResolveCmd struct {
	Agent   string `arg:"" help:"The agent's name."`
	Key     string `arg:"" help:"The operation's key."`
	Choice  string `arg:"" enum:"it_did,it_did_not,repeat" help:"${operation_choices}"`
	InRun   string `name:"run" help:"The run. Default: main, or under exec its run." placeholder:"NAME"`
	Attempt int64  `help:"Which attempt. Default: the newest that is uncertain." placeholder:"N"`
	Reason  string `help:"How it is known, for the audit log." placeholder:"TEXT"`
	Result  string `help:"With it_did: what came out, as JSON, for the agent's code." placeholder:"JSON"`
	Check   bool   `help:"The agent's own code has looked, and says so: no person has."`
}

func (c *operationResolveCmd) Run(ctx context.Context, a *app) error {
	ref := a.Ref(c.Agent, c.InRun, nil)
	ref.Epoch = nil // a person needs none
	r := ckpt.OperationResolution{Key: c.Key, Attempt: c.Attempt, Choice: ckpt.PromptChoice(c.Choice), Result: jsonOf(c.Result), Reason: c.Reason, ByCheck: c.Check}
	if err := cli.Checked(ref.Check(), wellformed.OperationResolution(&r)); err != nil {
		return err
	}
	if err := sendSpooled(ctx, a, c.Agent, ref.Run); err != nil { // the operation may be among them
		return err
	}
	o, _, err := a.Client().ResolveOperation(ctx, ref, r)
	if err != nil {
		return err
	}
	return a.showEnded(o, "")
}

func (c *ofOperation) end(ctx context.Context, a *app, epoch *int64, r ckpt.OperationEnd, output string) error {
	ref := a.Ref(c.Agent, c.InRun, epoch)
	r.Key = c.Key
	if err := cli.Checked(ref.Check(), wellformed.OperationEnd(&r)); err != nil {
		return err
	}
	o, _, err := a.Client().EndOperation(ctx, ref, r)
	if err != nil {
		return err
	}
	if output != "" && o.Restore != nil {
		if err := osfile.Write(output, o.Restore.State, 0o600); err != nil {
			return fmt.Errorf("the failure was recorded, but the state was not written: %w", err)
		}
	}
	return a.showEnded(o, output)
}

func (a *app) showEnded(o *ckpt.OperationEnded, output string) error {
	if a.JSON {
		return a.WriteJSON(endedShapeOf(o))
	}
	operationEnded(a, o, output)
	return nil
}

// endedShape is the answer with the state to go back to, in the JSON form of the API.
type endedShape struct {
	*ckpt.OperationEnded
	Restore *view.CheckpointShape `json:"restore,omitempty"`
}

func endedShapeOf(o *ckpt.OperationEnded) endedShape {
	shape := endedShape{OperationEnded: o}
	if o.Restore != nil {
		shape.Restore = view.CheckpointShapeOf(o.Restore)
	}
	return shape
}

func operationEnded(a *app, o *ckpt.OperationEnded, output string) {
	term.Println(a.Stdout, o.Status)
	switch {
	case o.Replayed:
		a.Tell("operation %s was %s already, at %s", o.Key, o.Status, term.Moment(o.EndedAt))
	case o.Status == ckpt.OperationUncertain && o.Prompt != "":
		a.Tell("prompt %s asks a person what became of it", o.Prompt)
	case o.Status == ckpt.OperationSuperseded && !o.Idempotent:
		a.Tell("attempt %d is superseded: the operation may be begun again, and may then happen twice", o.Attempt)
	case len(o.Released) > 0:
		a.Tell("let go, because it succeeded: checkpoint %s", strings.Join(o.Released, ", "))
	case o.Restore != nil && output != "":
		a.Tell("the state to go back to, number %d of run %s, is in %s", o.Restore.Seq, o.Restore.Run, output)
	case o.Restore != nil:
		a.Tell("to go back: ckptsidecar restore %s%s --checkpoint %s", o.Restore.Agent, cli.RunFlag(o.Restore.Run), o.Restore.ID)
	}
}
