package democmd

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	ckpt "github.com/ckptsidecar/ckptsidecar"
	"github.com/ckptsidecar/ckptsidecar/internal/cli"
	"github.com/ckptsidecar/ckptsidecar/internal/cli/program"
	"github.com/ckptsidecar/ckptsidecar/internal/cli/term"
	"github.com/ckptsidecar/ckptsidecar/internal/cli/view"
)

// Command is the command demo.
type Command struct {
	Steps int  `default:"200" help:"How many steps the agent has to do. Default: ${default}."`
	Keep  bool `help:"Keep the folder with the database."`

	Data bool    `help:"Fill your daemon with made-up runs of a busy host instead, to look at in the console. Refuses a daemon that has agents."`
	Pace float64 `default:"30" help:"With --data: how many times faster than they tell the made-up agents work. Default: ${default}."`
}

// demo is one performance of the demo. It prints its results as they come, and keeps them
// for --json.
type demo struct {
	a      *cli.App
	daemon *program.Daemon
	steps  int
	began  time.Time
	report demoReport
}

type demoReport struct {
	Database     string     `json:"database"`
	Steps        int        `json:"steps"`
	KilledAt     int        `json:"killed_at_step"`
	Acknowledged int        `json:"last_acknowledged_step"`
	Restored     int        `json:"restored_step"`
	Result       string     `json:"result"`
	Expected     string     `json:"expected"`
	Right        bool       `json:"right"`
	Seconds      float64    `json:"seconds"`
	Events       []demoNote `json:"events"`
}

type demoNote struct {
	At   float64 `json:"at_seconds"`
	What string  `json:"what"`
}

// Run plays the demo, or fills a daemon.
func (c *Command) Run(ctx context.Context, a *cli.App) error {
	if c.Data {
		if err := checkPace(c.Pace); err != nil {
			return err
		}
		return fillBusyHost(ctx, a, c.Pace)
	}
	if c.Steps < 10 || c.Steps > 10_000 {
		return cli.Usagef("--steps must be between 10 and 10000; got %d", c.Steps)
	}
	ctx, stop := term.UntilUnread(ctx)
	defer stop()
	d := &demo{a: a, steps: c.Steps, began: time.Now()}
	if !a.JSON {
		term.Println(a.Stdout, "An agent is killed in the middle of its work and goes on where it was.")
	}
	err := d.perform(ctx, c.Keep)
	if err != nil || !a.JSON {
		return err
	}
	return a.WriteJSON(d.report)
}

func (d *demo) perform(ctx context.Context, keep bool) error {
	var err error
	if d.daemon, err = d.a.StartDaemon(ctx, ""); err != nil {
		return err
	}
	defer func() {
		_ = d.daemon.Stop()
		if !keep {
			d.daemon.Remove()
		}
	}()
	d.report.Database, d.report.Steps = d.daemon.Database, d.steps
	d.note("a daemon is ready (pid %d, %s)", d.daemon.Cmd.Process.Pid, d.daemon.Database)
	for _, act := range []func(context.Context) error{d.untilKilled, d.restore, d.untilDone, d.judge, d.audit} {
		if err := act(ctx); err != nil {
			return err
		}
	}
	if keep {
		d.say("\nThe folder %s is yours to look into.", d.daemon.Folder)
	} else {
		d.say("\nThe folder is removed now; `ckptsidecar demo --keep` leaves it.")
	}
	return nil
}

// untilKilled lets the first agent work to the middle and kills it with SIGKILL: no
// handler runs, nothing is flushed.
func (d *demo) untilKilled(ctx context.Context) error {
	child, lines, err := d.agent(ctx)
	if err != nil {
		return err
	}
	d.note("the agent begins %d steps (pid %d); after each it saves its progress and waits for the disk", d.steps, child.Process.Pid)
	acknowledged, err := follow(lines, d.steps/2)
	if err != nil {
		_ = child.Wait()
		return fmt.Errorf("the first agent ended by itself: %w", err)
	}
	if err := child.Process.Kill(); err != nil {
		return err
	}
	d.note("kill -9 of the agent, right after step %d of %d", acknowledged, d.steps)
	for { // the last output of the agent
		more, err := follow(lines, 0)
		if err != nil {
			break
		}
		acknowledged = more
	}
	_ = child.Wait()
	d.report.KilledAt, d.report.Acknowledged = d.steps/2, acknowledged
	return nil
}

// restore shows what is left of the dead agent.
func (d *demo) restore(ctx context.Context) error {
	got, _, err := d.daemon.Client().Restore(ctx, ckpt.RestoreRequest{Agent: demoAgent, Reason: "the demo killed it"})
	if err != nil {
		return err
	}
	var state work
	if err := json.Unmarshal(got.State, &state); err != nil {
		return fmt.Errorf("the restored state is not what the agent saves: %w", err)
	}
	d.report.Restored = state.Step
	if state.Step < d.report.Acknowledged {
		return fmt.Errorf("step %d was acknowledged, but step %d was restored: a save was lost", d.report.Acknowledged, state.Step)
	}
	d.note("restored checkpoint %s: step %d, saved at %s, %s", got.ID, state.Step, got.CreatedAt, term.Bytes(got.Size))
	return nil
}

func (d *demo) untilDone(ctx context.Context) error {
	child, lines, err := d.agent(ctx)
	if err != nil {
		return err
	}
	d.note("a second agent (pid %d) restores it and goes on with step %d", child.Process.Pid, d.report.Restored+1)
	if _, err := follow(lines, d.steps); err != nil {
		_ = child.Wait()
		return fmt.Errorf("the second agent did not finish: %w", err)
	}
	return child.Wait()
}

// judge compares the final saved state with the same work done without interruption.
func (d *demo) judge(ctx context.Context) error {
	last, err := d.daemon.Client().Latest(ctx, ckpt.CheckpointFilter{Agent: demoAgent}, true)
	if err != nil {
		return err
	}
	var got work
	if err := json.Unmarshal(last.State, &got); err != nil {
		return err
	}
	want := work{}
	for range d.steps {
		want = want.next()
	}
	d.report.Result, d.report.Expected, d.report.Right = got.Hash, want.Hash, got == want
	d.report.Seconds = time.Since(d.began).Seconds()
	if got != want {
		return fmt.Errorf("the result is wrong: step %d, sum %d, %s; without interruption it is step %d, sum %d, %s",
			got.Step, got.Sum, got.Hash, want.Step, want.Sum, want.Hash)
	}
	d.note("finished: %d steps, result %s", got.Step, view.HashHead(got.Hash))
	d.note("%s the same work without interruption gives %s; every step was done once", d.a.Out.Green("right:"), view.HashHead(want.Hash))
	return nil
}

// agent starts a process that continues the work.
func (d *demo) agent(ctx context.Context) (*exec.Cmd, *bufio.Scanner, error) {
	child, err := d.a.Again(ctx, "demo-agent", "--socket", d.daemon.Socket, "--steps", fmt.Sprint(d.steps))
	if err != nil {
		return nil, nil, err
	}
	child.Stderr = term.Raw(d.a.Stderr)
	out, err := child.StdoutPipe()
	if err != nil {
		return nil, nil, err
	}
	return child, bufio.NewScanner(out), child.Start()
}

// follow reads the agent's lines, one for each acknowledged step, up to the given step.
func follow(lines *bufio.Scanner, until int) (step int, err error) {
	for lines.Scan() {
		if _, err := fmt.Sscanf(lines.Text(), "step %d saved", &step); err != nil {
			return step, fmt.Errorf("the agent printed %q", lines.Text())
		}
		if step >= until {
			return step, nil
		}
	}
	return step, fmt.Errorf("the agent printed nothing after step %d: %w", step, io.ErrUnexpectedEOF)
}

func (d *demo) note(format string, args ...any) {
	n := demoNote{At: time.Since(d.began).Seconds(), What: fmt.Sprintf(format, args...)}
	d.report.Events = append(d.report.Events, n)
	d.say("%s  %s", d.a.Out.Dim(fmt.Sprintf("%5.2f s", n.At)), n.What)
}

func (d *demo) say(format string, args ...any) {
	if !d.a.JSON {
		term.Printf(d.a.Stdout, format+"\n", args...)
	}
}

// audit shows what a person can see who only has the sqlite3 command.
func (d *demo) audit(ctx context.Context) error {
	tool, err := exec.LookPath("sqlite3")
	if err != nil {
		d.say("\nThe sqlite3 command is not installed here; it would show the checkpoints and the audit log of %s.", filepath.Base(d.daemon.Database))
		return nil
	}
	for _, query := range []string{
		"SELECT seq, kind, created_at, size, substr(sha256, 1, 16) AS sha256 FROM audit_checkpoints WHERE agent = 'demo' ORDER BY seq",
		"SELECT action, outcome, count(*) AS times, min(at) AS first, max(at) AS last FROM audit_log WHERE agent = 'demo' GROUP BY action, outcome",
		"SELECT count(*) AS violations FROM audit_violations",
	} {
		show := exec.CommandContext(ctx, tool, "-readonly", "-header", "-column", d.daemon.Database, query)
		out, err := show.CombinedOutput()
		if err != nil {
			return fmt.Errorf("sqlite3 cannot read the database: %s", out)
		}
		d.say("\n%s", d.a.Out.Bold(fmt.Sprintf("$ sqlite3 -readonly -header -column %s \"%s\"", d.daemon.Database, query)))
		if !d.a.JSON {
			term.Block(d.a.Stdout, strings.TrimSuffix(string(out), "\n"))
		}
	}
	return nil
}
