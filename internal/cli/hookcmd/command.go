package hookcmd

import (
	"context"
	"fmt"
	"io"
	"os"
	"slices"
	"time"

	"github.com/alecthomas/kong"

	"github.com/ckptsidecar/ckptsidecar/internal/cli"
	"github.com/ckptsidecar/ckptsidecar/internal/cli/term"
	"github.com/ckptsidecar/ckptsidecar/internal/hook"
	"github.com/ckptsidecar/ckptsidecar/internal/ipc/client"
)

// mostInput is the maximum size of the input of a hook.
const mostInput = 32 << 20

// Command is the command hook with its subcommands.
type Command struct {
	Handle    handleCmd    `cmd:"" default:"withargs" help:"Handle a hook event from standard input. This is the default subcommand."`
	Install   installCmd   `cmd:"" help:"Add the hooks to the settings of a coding agent. Shows the change first."`
	Uninstall uninstallCmd `cmd:"" help:"Remove the hooks from the settings of a coding agent."`
}

// Help returns the additional text of `hook --help`.
func (c *Command) Help() string {
	return "Without a subcommand it reads the JSON that Claude Code, Codex or Gemini CLI give to a hook, and notes it: " +
		"a run for each session, a step for each tool call, " +
		"an operation around what is risky, checkpoints. It prints what the model should know, and nothing otherwise. It " +
		"never stops an agent: whatever goes wrong, " +
		"it ends with 0 within --timeout, 300 ms. docs/HOOKS.md says all of it."
}

type handleCmd struct {
	forProduct
	options
	PID   int  `name:"pid" help:"The agent's process. Default: the nearest above this one that is no shell." placeholder:"N"`
	Debug bool `help:"Report errors on standard error. The exit code is still 0."`
}

// Run never returns an error: its recorder must not stop an agent.
func (c *handleCmd) Run(ctx context.Context, a *cli.App) error {
	limit, deadline := c.timeout(a.Env), c.most(a.Env) // handle uses the longer one for risky calls only
	ctx, cancel := context.WithTimeout(ctx, deadline)
	defer cancel()
	type outcome struct {
		say []byte
		err error
	}
	handled := make(chan outcome, 1)
	go func() {
		defer func() {
			if p := recover(); p != nil {
				handled <- outcome{err: fmt.Errorf("panic: %v", p)}
			}
		}()
		say, err := c.handle(ctx, a, limit)
		handled <- outcome{say, err}
	}()
	var o outcome
	select {
	case o = <-handled:
	case <-ctx.Done():
		o.err = fmt.Errorf("not done in %s", deadline)
	}
	if o.err != nil && c.Debug {
		a.Tell("ckptsidecar hook: %s", cli.MessageOf(o.err))
	}
	_, _ = term.Raw(a.Stdout).Write(o.say)
	return nil
}

func (c *handleCmd) handle(ctx context.Context, a *cli.App, limit time.Duration) ([]byte, error) {
	text, err := io.ReadAll(io.LimitReader(a.Stdin, mostInput))
	if err != nil {
		return nil, err
	}
	in, err := hook.Read(text)
	if err != nil {
		return nil, err
	}
	h := &hook.Handler{
		Product: hook.Product(c.For), Agent: a.NamedAgent(c.Agent), Project: hook.ProjectOf(c.folder(a, in)),
		PID: c.owner(), Risky: c.risky(), SaveEvery: c.SaveEvery,
	}
	if run := a.InRun(h.Agent, ""); h.Agent != "" && run != "" {
		ref := a.Ref(h.Agent, "", nil) // exec has started the run, and supervises it
		h.Run, h.Epoch = ref.Run, ref.Epoch
	}
	if c.Files {
		h.Files, h.FilesWait, h.Prompts = newSnaps(a, c.Include, c.Exclude), c.FilesWait, c.Prompts
	}
	ctx, cancel := context.WithTimeout(ctx, limit+h.Extra(in))
	defer cancel()
	h.Client = &client.Client{Socket: a.Socket, Owner: a.Owner}
	defer h.Client.Close()
	return h.Handle(ctx, in)
}

// folder returns the folder in which the coding agent works. The products name the project
// in the environment.
func (c *handleCmd) folder(a *cli.App, in *hook.Input) string {
	for _, name := range []string{"CLAUDE_PROJECT_DIR", "GEMINI_PROJECT_DIR"} {
		if folder := a.Env(name); folder != "" {
			return folder
		}
	}
	return in.Folder
}

func (c *handleCmd) owner() int {
	if c.PID != 0 {
		return c.PID
	}
	return hook.OwnerOf(os.Getppid())
}

// Handles reports whether these are the arguments of a hook call.
func Handles(args []string) bool {
	if len(args) == 0 || args[0] != "hook" {
		return false
	}
	elsewhere := []string{"install", "uninstall", "-h", "--help"}
	return !slices.ContainsFunc(args, func(arg string) bool { return slices.Contains(elsewhere, arg) })
}

// grammar is the part of the command line's grammar that a hook needs. Reading the whole
// grammar would cost an agent more at every call than the call itself.
type grammar struct {
	Socket string
	Owner  string
	JSON   bool `name:"json"`
	handleCmd
}

// Main is the whole program as a hook. It always returns 0. Exit code 2 would forbid the
// agent's next action, so not even a wrong flag may cause it.
func Main(ctx context.Context, a *cli.App, args []string) int {
	if len(args) > 0 && args[0] == "handle" {
		args = args[1:]
	}
	cli.EndsSoon()
	term.OutliveReaders() // a product may have closed its end
	var g grammar
	parser, err := kong.New(&g, kong.Name("ckptsidecar hook"), kong.Writers(a.Stderr, a.Stderr), kong.NoDefaultHelp())
	if err == nil {
		_, err = parser.Parse(args)
	}
	if err != nil {
		a.Tell("ckptsidecar hook: %v", err)
		return cli.ExitDone
	}
	a.Socket, a.Owner = g.Socket, g.Owner
	_ = g.handleCmd.Run(ctx, a) // it returns no errors
	return cli.ExitDone
}
