package main

import (
	"context"
	"fmt"
	"strconv"
	"time"

	ckpt "github.com/ckptsidecar/ckptsidecar"
	"github.com/ckptsidecar/ckptsidecar/internal/cli"
	"github.com/ckptsidecar/ckptsidecar/internal/cli/fleetcmd"
	"github.com/ckptsidecar/ckptsidecar/internal/cli/term"
	"github.com/ckptsidecar/ckptsidecar/internal/cli/view"
	"github.com/ckptsidecar/ckptsidecar/internal/survey"
	"github.com/ckptsidecar/ckptsidecar/internal/wellformed"
)

type runsCmd struct {
	Agent    string            `arg:"" optional:"" help:"The agent's name. Default: every agent."`
	Workflow string            `help:"Only runs of this workflow." placeholder:"TEXT"`
	Label    map[string]string `mapsep:"none" help:"Only runs with this label; may be repeated." placeholder:"K=V"`
	Goal     string            `help:"Only runs whose goal has all of these words; deploy* is the beginning of one." placeholder:"WORDS"`
	Since    string            `help:"Only runs that were started then or later: a time, or how long ago, such as 2h or 7d." placeholder:"TIME"`
	Until    string            `help:"Only runs that were started before: likewise." placeholder:"TIME"`
	Severity string            `help:"${bad_run}" placeholder:"SEVERITY"`
	Sort     string            `help:"${run_order}" default:"updated" placeholder:"ORDER"`

	Status string `help:"Only runs of this status: ${run_statuses}." placeholder:"STATUS"`
	Fleet  bool   `help:"List the runs of all hosts of the fleet, as ckptsidecar fleet runs does."`
	cli.Paged
	cli.Following
}

func (c *runsCmd) Run(ctx context.Context, a *app) error {
	if c.Fleet {
		return c.ofFleet(ctx, a)
	}
	filter, err := c.filter(time.Now())
	if err := cli.Checked(err, c.Paged.Check(), c.Following.Check(&c.Paged), cli.Given(c.Status, view.CheckRunStatus), filter.Check()); err != nil {
		return err
	}
	if c.Follow {
		return c.follow(ctx, a, filter)
	}
	all := &ckpt.RunPage{Runs: []ckpt.Run{}}
	all.Next, err = c.Paged.Read(func(before string, limit int) (ckpt.Ref, error) {
		filter.Before, filter.Limit = before, limit
		page, err := a.Client().Runs(ctx, filter)
		if err != nil {
			return "", err
		}
		all.Runs = append(all.Runs, page.Runs...)
		return page.Next, nil
	})
	switch {
	case err != nil:
		return err
	case a.JSON:
		return a.WriteJSON(all)
	case len(all.Runs) == 0:
		a.Tell("no run matches")
		return nil
	}
	runTable(all.Runs, a.Out).Write(a.Stdout, a.Out)
	c.Paged.More(a.App, all.Next)
	return nil
}

func runTable(runs []ckpt.Run, s *term.Style) *term.Table {
	t := term.NewTable("AGENT", "RUN", "STATUS", "CHANGED", ">WORKED", "~GOAL", ">?EPOCH", ">?ATTEMPT", ">?PID")
	for i := range runs {
		r := &runs[i]
		t.Add(r.Agent, r.Run, view.RunStatus(r.Status, s), s.Time(r.UpdatedAt), view.WorkedText(r.AccumulatedMS),
			view.FirstLine(string(r.Goal)), fmt.Sprint(r.Epoch), fmt.Sprint(r.Attempt), pidText(r.PID))
	}
	return t
}

// follow prints runs as they begin, end, or change their owner or their goal. A save alone does not
// print a run again.
func (c *runsCmd) follow(ctx context.Context, a *app, filter ckpt.RunFilter) error {
	filter.Limit = c.Limit
	watched := cli.Watched[ckpt.Run]{
		Concerns: func(change *survey.Change) bool { return c.Agent == "" || change.Agent == c.Agent },
		Read: func(before string) ([]ckpt.Run, ckpt.Ref, error) {
			filter.Before = before
			page, err := a.Client().Runs(ctx, filter)
			switch {
			case ckpt.CodeOf(err) == ckpt.CodeNotFound:
				return nil, "", nil
			case err != nil:
				return nil, "", err
			}
			return page.Runs, page.Next, nil
		},
		Version: func(r *ckpt.Run) string {
			return fmt.Sprint(r.Agent, "/", r.Run, r.Status, r.Epoch, r.Attempt, r.PID, r.Goal, r.StartedAt)
		},
		Table: func(runs []ckpt.Run) *term.Table { return runTable(runs, a.Out) },
	}
	if filter.Sort == ckpt.SortUpdated {
		watched.Changed = func(r *ckpt.Run) ckpt.Time { return r.UpdatedAt }
	}
	return cli.Follow(ctx, a.App, watched)
}

func (c *runsCmd) filter(now time.Time) (f ckpt.RunFilter, err error) {
	f = ckpt.RunFilter{
		Agent: c.Agent, Status: ckpt.RunStatus(c.Status), Workflow: c.Workflow, Labels: c.Label, Goal: c.Goal,
		Severity: ckpt.Severity(c.Severity), Sort: ckpt.RunSort(c.Sort), Lives: c.All,
	}
	if f.Since, err = instant("--since", c.Since, now); err != nil {
		return f, err
	}
	f.Until, err = instant("--until", c.Until, now)
	return f, err
}

// instant reads a time that a user typed: a date, an instant, or how long ago.
func instant(flag, typed string, now time.Time) (ckpt.Time, error) {
	if typed == "" {
		return ckpt.Time{}, nil
	}
	if ago, err := ckpt.ParseDuration(typed); err == nil {
		return ckpt.At(now.Add(-time.Duration(ago))), nil
	}
	if at, err := ckpt.ParseTime(typed); err == nil {
		return at, nil
	}
	for _, form := range []string{"2006-01-02", "2006-01-02 15:04", "2006-01-02 15:04:05"} {
		if at, err := time.ParseInLocation(form, typed, time.Local); err == nil {
			return ckpt.At(at), nil
		}
	}
	return ckpt.Time{}, fmt.Errorf("%s %q is not a time: write 2h, 7d, 2026-03-01, or 2026-03-01T12:00:00Z", flag, typed)
}

// ofFleet lists runs of the fleet for `runs --fleet`.
func (c *runsCmd) ofFleet(ctx context.Context, a *app) error {
	q := fleetcmd.RunsQuery{Agent: c.Agent, Status: c.Status, Paged: c.Paged}
	if c.Workflow != "" || len(c.Label) > 0 || c.Goal != "" || c.Since != "" || c.Until != "" || c.Severity != "" || c.Follow {
		return cli.Usagef("--fleet takes an agent, --status, --limit, --before and --all: what else chooses runs is known to their own host alone")
	}
	return q.List(ctx, a.App, "")
}

func pidText(pid int) string {
	if pid == 0 {
		return "-"
	}
	return fmt.Sprint(pid)
}

type runCmd struct {
	Start runStartCmd `cmd:"" help:"Register a run and print its epoch."`
	Beat  runBeatCmd  `cmd:"" help:"Send a heartbeat, and the run's progress."`
	End   runEndCmd   `cmd:"" help:"End a run, or its present segment."`
	Show  runShowCmd  `cmd:"" help:"Show one run."`

	Recorder runRecorderCmd `cmd:"" help:"Show who ran a run when, and what it did: its flight recorder."`
	Fork     runForkCmd     `cmd:"" help:"Start a new run from an edited state of a checkpoint."`
	Clear    runClearCmd    `cmd:"" help:"Remove the checkpoints of a run that nothing needs."`
	Delete   runDeleteCmd   `cmd:"" help:"Remove a run and everything that belongs to it."`
}

type runStartCmd struct {
	Agent            string            `arg:"" help:"The agent's name."`
	InRun            string            `name:"run" help:"The run. Default: main, or under exec its run." placeholder:"NAME"`
	Workflow         string            `help:"What kind of run it is." placeholder:"TEXT"`
	Goal             string            `help:"What it is for." placeholder:"TEXT"`
	ParentRun        string            `help:"The run of the same agent that it is a part of." placeholder:"NAME"`
	ForkFrom         string            `help:"The agent's checkpoint to begin with: ${checkpoint}, or its number in main." placeholder:"CHECKPOINT"`
	ExternalSession  string            `help:"The name of its session elsewhere." placeholder:"TEXT"`
	Label            map[string]string `mapsep:"none" help:"A label; may be repeated." placeholder:"K=V"`
	PID              int               `name:"pid" help:"The process that owns it. ${owner_default}" placeholder:"N"`
	HeartbeatTimeout *ckpt.Duration    `help:"${heartbeat_timeout}" placeholder:"TIME"`
	ProgressTimeout  *ckpt.Duration    `help:"${progress_timeout}" placeholder:"TIME"`
	LeaveUncertain   bool              `help:"Begin an ended run anew although nobody knows whether an operation of it took effect: it stays uncertain. Needs a --reason."`
	Reason           string            `help:"Why, for the audit log." placeholder:"TEXT"`
}

// Run prints only the epoch on standard output, so that epoch=$(ckptsidecar run start …) works.
func (c *runStartCmd) Run(ctx context.Context, a *app) error {
	if err := c.resolve(ctx, a); err != nil {
		return err
	}
	r := ckpt.RunRequest{
		Agent: c.Agent, Run: a.InRun(c.Agent, c.InRun), Workflow: ckpt.Ref(c.Workflow), PID: a.OwnerPID(c.PID), ParentRun: ckpt.Ref(c.ParentRun),
		ForkFrom: ckpt.Ref(c.ForkFrom), HeartbeatTimeout: c.HeartbeatTimeout, ProgressTimeout: c.ProgressTimeout,
		Goal: ckpt.Ref(c.Goal), ExternalSession: ckpt.Ref(c.ExternalSession), Labels: c.Label,
		LeaveUncertain: c.LeaveUncertain, Reason: c.Reason,
	}
	if err := cli.Checked(r.Check()); err != nil {
		return err
	}
	run, _, err := a.Client().StartRun(ctx, r)
	switch {
	case err != nil:
		return err
	case a.JSON:
		return a.WriteJSON(run)
	}
	term.Println(a.Stdout, run.Epoch)
	a.Tell("%s run %s of %s, attempt %d, owned by process %s; name --epoch %d in its writes", a.Err.Green("started:"), run.Run,
		run.Agent, run.Attempt, pidText(run.PID), run.Epoch)
	return nil
}

// resolve looks up the checkpoint to begin with.
func (c *runStartCmd) resolve(ctx context.Context, a *app) error {
	if c.ForkFrom == "" {
		return nil
	}
	err := cli.Checked(ckpt.CheckAgentName(c.Agent), cli.CheckCheckpointNameOf(c.ForkFrom))
	if err == nil {
		c.ForkFrom, err = a.CheckpointIDOf(ctx, c.Agent, "", c.ForkFrom)
	}
	return err
}

type runBeatCmd struct {
	Agent    string   `arg:"" help:"The agent's name."`
	InRun    string   `name:"run" help:"The run. Default: main, or under exec its run." placeholder:"NAME"`
	Epoch    *int64   `help:"The run's epoch that you hold; a newer owner's run then refuses the beat." placeholder:"N"`
	Progress *float64 `help:"The run's progress, best as a share from 0 to 1: the console shows percent. It should only grow." placeholder:"X"`
}

func (c *runBeatCmd) Run(ctx context.Context, a *app) error {
	ref := a.Ref(c.Agent, c.InRun, c.Epoch)
	if err := cli.Checked(ref.Check()); err != nil {
		return err
	}
	run, err := a.Client().Beat(ctx, ref, ckpt.Heartbeat{Progress: c.Progress})
	switch {
	case err != nil:
		return err
	case a.JSON:
		return a.WriteJSON(run)
	}
	term.Println(a.Stdout, run.Status)
	view.TellDrift(ctx, a.App, run.Drift, ref)
	return nil
}

type runEndCmd struct {
	Agent              string `arg:"" help:"The agent's name."`
	Status             string `arg:"" enum:"completed,failed,suspended,awaiting_continuation,interrupted,timed_out" help:"${end_statuses}"`
	InRun              string `name:"run" help:"The run. Default: main, or under exec its run." placeholder:"NAME"`
	Epoch              *int64 `help:"The run's epoch that you hold; a newer owner's run then refuses it." placeholder:"N"`
	State              string `help:"Save this JSON file as the final checkpoint; - for standard input." placeholder:"FILE"`
	Result             string `help:"What came out, as JSON." placeholder:"JSON"`
	Error              string `help:"What went wrong." placeholder:"TEXT"`
	ContinuationPrompt string `help:"What to tell whoever resumes it." placeholder:"TEXT"`
	LeaveUncertain     bool   `help:"End it although nobody knows how an operation ended. The operation stays uncertain. Needs --reason."`
	Reason             string `help:"Why, for the audit log." placeholder:"TEXT"`
}

func (c *runEndCmd) Run(ctx context.Context, a *app) error {
	ref := a.Ref(c.Agent, c.InRun, c.Epoch)
	r := ckpt.EndRequest{
		Status: ckpt.RunStatus(c.Status), ContinuationPrompt: ckpt.Ref(c.ContinuationPrompt), Error: ckpt.Ref(c.Error), Result: jsonOf(c.Result),
		LeaveUncertain: c.LeaveUncertain, Reason: c.Reason,
	}
	if err := cli.Checked(ref.Check(), wellformed.RunEnd(&r)); err != nil {
		return err
	}
	if c.State != "" {
		var err error
		if r.State, err = a.readState(ctx, c.State, ckpt.ContentTypeJSON, false); err != nil {
			return err
		}
		if err := cli.Checked(wellformed.RunEnd(&r)); err != nil {
			return err
		}
	}
	run, _, err := a.Client().EndRun(ctx, ref, r)
	if err != nil {
		return err
	}
	return a.showRun(run)
}

type runShowCmd struct {
	Agent string `arg:"" help:"The agent's name."`
	InRun string `name:"run" help:"The run. Default: under exec its run, else main, else the one that changed last." placeholder:"NAME"`
}

func (c *runShowCmd) Run(ctx context.Context, a *app) error {
	ref, err := a.RefToRead(ctx, c.Agent, c.InRun)
	if err != nil {
		return err
	}
	run, err := a.Client().Run(ctx, ref)
	if err != nil {
		return err
	}
	return a.showRun(run)
}

func (a *app) showRun(r *ckpt.Run) error {
	if a.JSON {
		return a.WriteJSON(r)
	}
	p := &term.Pairs{}
	p.Add("run", a.Out.Bold(r.Run)+" of "+r.Agent)
	p.Add("status", view.RunStatus(r.Status, a.Out))
	p.Add("owner", fmt.Sprintf("%s, process %s, epoch %d, attempt %d", r.Owner, pidText(r.PID), r.Epoch, r.Attempt))
	if r.Host != "" {
		p.Add("fleet", fmt.Sprintf("%s by host %s, term %d, durability %s", r.Ownership, r.Host, r.Term, r.Durability))
	}
	if r.Source == ckpt.SourceOTLP {
		text := "observed through OpenTelemetry: it has no owner"
		if r.Partial {
			text += ", and not all of it was sent"
		}
		p.Add("source", text)
	}
	p.Add("worked for", view.WorkedText(r.AccumulatedMS))
	p.Add("started", term.Moment(r.StartedAt))
	p.Add("changed", term.Moment(r.UpdatedAt))
	if !r.EndedAt.IsZero() {
		p.Add("ended", term.Moment(r.EndedAt))
	}
	if r.Progress != nil {
		p.Add("progress", strconv.FormatFloat(*r.Progress, 'g', 4, 64))
	}
	if r.HeartbeatTimeout > 0 || r.ProgressTimeout > 0 {
		p.Add("limits", fmt.Sprintf("heartbeat %s, progress %s", limitText(r.HeartbeatTimeout), limitText(r.ProgressTimeout)))
	}
	for _, more := range [][2]string{
		{"workflow", string(r.Workflow)}, {"goal", string(r.Goal)}, {"parent run", string(r.ParentRun)}, {"forked from", string(r.ForkedFrom)},
		{"session", string(r.ExternalSession)}, {"labels", labelText(r.Labels)}, {"continue with", string(r.ContinuationPrompt)},
		{"result", came(r.Result, "")}, {"error", string(r.Error)},
	} {
		if more[1] != "" {
			p.Add(more[0], more[1])
		}
	}
	p.Write(a.Stdout, a.Out)
	if r.Ownership == ckpt.OwnershipFenced {
		a.Tell("host %s of the fleet owns this run: go on there, and answer its prompts there", r.Host)
	} else if r.Status.Resumable() && r.Status != ckpt.RunRunning && r.Status != ckpt.RunStarting {
		if r.WaitingPID != 0 {
			a.Tell("it %s", ckpt.WaitsText(r.WaitingPID))
		} else {
			a.Tell("to go on: %s", view.GoOn(r.Agent, r.Run, r.Command))
		}
	}
	return nil
}

func limitText(d ckpt.Duration) string {
	if d == 0 {
		return "none"
	}
	return d.String()
}
