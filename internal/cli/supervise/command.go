package supervise

import (
	"errors"
	"os"
	"os/exec"
	"time"

	ckpt "github.com/ckptsidecar/ckptsidecar"
	"github.com/ckptsidecar/ckptsidecar/internal/cli"
)

// Command runs a command as an agent.
type Command struct {
	Agent            string        `help:"The agent's name. Default: $$CKPTSIDECAR_AGENT." placeholder:"NAME"`
	InRun            string        `name:"run" help:"The run. Default: main." placeholder:"NAME"`
	OnAsk            string        `enum:"wait,exit" default:"wait" help:"Where a person must decide first: wait for the answer and go on, or exit with 20. Default: ${default}." placeholder:"WHAT"`
	Restart          string        `enum:"never,on-failure,on-drift" default:"on-failure" help:"${restart} Default: ${default}." placeholder:"WHEN"`
	MaxRestarts      int           `default:"5" help:"${max_restarts} Default: ${default}." placeholder:"N"`
	Backoff          ckpt.Duration `default:"1s" help:"The pause before a restart; it doubles each time. Default: ${default}." placeholder:"TIME"`
	MaxBackoff       ckpt.Duration `default:"30s" help:"The longest such pause. Default: ${default}." placeholder:"TIME"`
	Heartbeat        ckpt.Duration `default:"10s" help:"How often to send a heartbeat. Default: ${default}." placeholder:"TIME"`
	HeartbeatTimeout ckpt.Duration `default:"30s" help:"${exec_heartbeat_timeout} Default: ${default}." placeholder:"TIME"`
	ProgressTimeout  ckpt.Duration `help:"The agent is frozen after this time without reported progress. Default: its policy." placeholder:"TIME"`
	Standby          bool          `help:"Wait until the run's host in the fleet is gone or lets go of it, claim the run, and go on with it here."`
	Here             bool          `help:"Look at this host only: claim no run of another host of the fleet."`
	Force            bool          `help:"Take the run over from an owner that is alive."`
	Reason           string        `help:"Why, for the audit log." placeholder:"TEXT"`
	Command          []string      `arg:"" passthrough:"" help:"The command and its arguments, after --."`
}

// Help returns the additional text of `exec --help`.
func (c *Command) Help() string {
	return "The command runs as you, in a process group of its own, and finds in its environment:\n\n" +
		"CKPTSIDECAR_SOCKET  where the daemon listens\n" +
		"CKPTSIDECAR_AGENT, CKPTSIDECAR_RUN, CKPTSIDECAR_EPOCH  what to name in each write\n" +
		"CKPTSIDECAR_PLAN    a file with the resume plan as JSON, the state included\n\n" +
		"It ends with the command's exit code (128 + the signal's number where one killed it), " +
		"with 20 where an operator must decide first and --on-ask=exit is given, with 30 where it is not safe to start, " +
		"and with 4 where somebody else took the run over. Exit code 0 ends the run as completed, " +
		"unless the agent has ended it itself or was asked to stop; anything else as interrupted, to be resumed. " +
		"A daemon that is away for a while does no harm.\n\n" +
		"Where an operator must decide first, exec prints the question once, waits for the answer, and starts the command then.\n\n" +
		"On a host of a fleet, where the agent's policy has on_lease_lost: stop, exec stops the command " +
		"when this host may have lost the run, and starts it again when the host holds its lease again " +
		"and still owns the run."
}

// check refuses wrong arguments before anything is started or sent.
func (c *Command) check(a *cli.App) error {
	switch {
	case c.Agent == "":
		return cli.Usagef("name the agent: --agent NAME, or $CKPTSIDECAR_AGENT")
	case len(c.Command) == 0:
		return cli.Usagef("give the command to run: ckptsidecar exec --agent %s -- COMMAND", c.Agent)
	case a.Owner != "":
		return cli.Usagef("exec does not take --owner: the command runs as you, so its agent is yours")
	case c.Standby && (c.Here || c.Force):
		return cli.Usagef("--standby waits for another host: it does not go with --here or --force")
	case c.MaxRestarts < 0:
		return cli.Usagef("--max-restarts must be 0 (none) or more; got %d", c.MaxRestarts)
	case time.Duration(c.Heartbeat) < 10*time.Millisecond:
		return cli.Usagef("--heartbeat must be at least 10ms; got %s", c.Heartbeat)
	case c.HeartbeatTimeout != 0 && c.HeartbeatTimeout <= c.Heartbeat:
		return cli.Usagef("--heartbeat-timeout is %s: it must be longer than --heartbeat, which is %s", c.HeartbeatTimeout, c.Heartbeat)
	case c.Backoff <= 0 || c.MaxBackoff < c.Backoff:
		return cli.Usagef("--backoff is %s and --max-backoff is %s: --backoff must be more than 0, and --max-backoff at least as long",
			c.Backoff, c.MaxBackoff)
	}
	r := c.request(0)
	return cli.Checked(r.Check())
}

// request returns the request that claims the run for a process.
func (c *Command) request(pid int) ckpt.ResumeRequest {
	r := ckpt.ResumeRequest{
		Agent: c.Agent, Run: c.InRun, PID: pid, Command: c.recorded(), HeartbeatTimeout: &c.HeartbeatTimeout, Force: c.Force, Reason: c.Reason,
	}
	if r.Standby = c.Standby; c.OnAsk != onAskExit && pid > 0 {
		r.Waits = os.Getpid()
	}
	if c.Here {
		r.Fleet = new(bool)
	}
	if c.ProgressTimeout != 0 {
		r.ProgressTimeout = &c.ProgressTimeout
	}
	if r.Reason == "" {
		r.Reason = "exec"
	}
	return r
}

const onAskExit = "exit"

// recorded is the command as it stays with the run.
func (c *Command) recorded() *ckpt.Command {
	folder, _ := os.Getwd()
	return &ckpt.Command{Argv: c.Command, Folder: folder}
}

// The exit codes for a command that could not be started, as in shells.
const (
	exitNotExecutable = 126
	exitNoCommand     = 127
)

// lookCommand finds the program before the run is claimed for it.
func lookCommand(name string) (string, error) {
	path, err := exec.LookPath(name)
	switch {
	case err == nil, errors.Is(err, exec.ErrDot): // the user named it so
		return path, nil
	case errors.Is(err, os.ErrPermission):
		return "", &cli.ExitError{Code: exitNotExecutable, Message: "cannot run " + name + ": it is not executable"}
	}
	return "", &cli.ExitError{Code: exitNoCommand, Message: "cannot run " + name + ": there is no such command"}
}
