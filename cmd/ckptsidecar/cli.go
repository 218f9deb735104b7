package main

import (
	"context"
	"errors"

	"github.com/alecthomas/kong"

	"github.com/ckptsidecar/ckptsidecar/internal/cli"
	"github.com/ckptsidecar/ckptsidecar/internal/cli/consolecmd"
	"github.com/ckptsidecar/ckptsidecar/internal/cli/democmd"
	"github.com/ckptsidecar/ckptsidecar/internal/cli/doctor"
	"github.com/ckptsidecar/ckptsidecar/internal/cli/driftcmd"
	"github.com/ckptsidecar/ckptsidecar/internal/cli/filescmd"
	"github.com/ckptsidecar/ckptsidecar/internal/cli/fleetcmd"
	"github.com/ckptsidecar/ckptsidecar/internal/cli/hookcmd"
	"github.com/ckptsidecar/ckptsidecar/internal/cli/manual"
	"github.com/ckptsidecar/ckptsidecar/internal/cli/policycmd"
	"github.com/ckptsidecar/ckptsidecar/internal/cli/service"
	"github.com/ckptsidecar/ckptsidecar/internal/cli/supervise"
	"github.com/ckptsidecar/ckptsidecar/internal/cli/term"
	"github.com/ckptsidecar/ckptsidecar/internal/cli/transfercmd"
)

// grammar is the command line. Each command is in one file or in a part of a file.
type grammar struct {
	cli.Flags

	Serve         serveCmd               `cmd:"" group:"daemon" help:"Run the daemon."`
	Save          saveCmd                `cmd:"" group:"checkpoints" help:"Save a checkpoint of an agent and print its id."`
	Restore       restoreCmd             `cmd:"" group:"checkpoints" help:"Print a saved state, and record the restore."`
	List          listCmd                `cmd:"" group:"checkpoints" help:"List an agent's checkpoints, newest first."`
	Tree          treeCmd                `cmd:"" group:"checkpoints" help:"Draw an agent's checkpoints as a tree, oldest first, with every branch."`
	Show          showCmd                `cmd:"" group:"checkpoints" help:"Show one checkpoint."`
	Diff          diffCmd                `cmd:"" group:"checkpoints" help:"Show what changed between two checkpoints."`
	Tag           tagCmd                 `cmd:"" group:"checkpoints" help:"Set or remove labels of a checkpoint."`
	Pin           pinCmd                 `cmd:"" group:"checkpoints" help:"Keep a checkpoint for good: retention never removes it."`
	Unpin         unpinCmd               `cmd:"" group:"checkpoints" help:"Let retention remove a checkpoint again."`
	Delete        deleteCmd              `cmd:"" group:"checkpoints" help:"Delete one checkpoint."`
	Files         filescmd.Command       `cmd:"" group:"checkpoints" help:"Save a folder's files with checkpoints, and restore them."`
	Rewind        filescmd.RewindCommand `cmd:"" group:"checkpoints" help:"Go back to before a prompt of a coding agent, and restore its files."`
	Resume        resumeCmd              `cmd:"" group:"runs" help:"Claim a run whose owner ended, and print how to go on safely."`
	Exec          supervise.Command      `cmd:"" group:"runs" help:"Run a command as an agent, and restart it after a crash or freeze."`
	Runs          runsCmd                `cmd:"" group:"runs" help:"List runs, the last changed first."`
	Run           runCmd                 `cmd:"" group:"runs" help:"Start, keep alive, end or show one run."`
	Steps         stepsCmd               `cmd:"" group:"runs" help:"List a run's steps, oldest first."`
	Step          stepCmd                `cmd:"" group:"runs" help:"Begin, finish or record one step."`
	Operations    operationsCmd          `cmd:"" group:"runs" help:"List a run's risky operations, newest first."`
	Operation     operationCmd           `cmd:"" group:"runs" help:"Begin, end or resolve one risky operation."`
	Events        eventsCmd              `cmd:"" group:"runs" help:"Show, follow or append to a run's journal."`
	Log           logCmd                 `cmd:"" group:"runs" help:"Tell what happened to an agent or a run, in order."`
	Drift         driftcmd.Command       `cmd:"" group:"runs" help:"Show whether an agent drifts, and the checkpoint to go back to."`
	Prompts       promptsCmd             `cmd:"" group:"runs" help:"Show and answer the questions that wait for a person, or ask one."`
	MCP           mcpCmd                 `cmd:"" name:"mcp" group:"hosts" help:"Serve an agent's checkpoints over the Model Context Protocol."`
	Hook          hookcmd.Command        `cmd:"" group:"hosts" help:"Record Claude Code, Codex or Gemini CLI by their hooks."`
	OTLP          otlpCmd                `cmd:"" name:"otlp" group:"hosts" help:"Receive traces of agents that use OpenTelemetry."`
	Token         tokenCmd               `cmd:"" group:"hosts" help:"Create, list and revoke tokens for senders of traces."`
	Export        transfercmd.Export     `cmd:"" group:"agents" help:"Export agents with all that they have, as a SQLite file."`
	Import        transfercmd.Import     `cmd:"" group:"agents" help:"Import a file that export wrote, or files of other systems."`
	Prune         pruneCmd               `cmd:"" group:"agents" help:"Apply the retention policies now."`
	Erase         eraseCmd               `cmd:"" group:"agents" help:"Erase an agent and everything that belongs to it, for good."`
	Chown         chownCmd               `cmd:"" group:"agents" help:"Give agents to another owner, for example after a move to another machine."`
	Agents        agentsCmd              `cmd:"" group:"agents" help:"List agents."`
	Policy        policycmd.Command      `cmd:"" group:"agents" help:"Show or change the settings of an agent."`
	Changes       changesCmd             `cmd:"" group:"runs" help:"Print changes, one on each line, until stopped."`
	Overview      overviewCmd            `cmd:"" group:"runs" help:"Show what waits for a person, and the runs."`
	Console       consolecmd.Command     `cmd:"" group:"daemon" help:"Open a page that shows what agents do, and lets you act."`
	Status        statusCmd              `cmd:"" group:"daemon" help:"Show the state of the daemon."`
	Notify        notifyCmd              `cmd:"" group:"daemon" help:"Show who gets notices, and send a test."`
	Verify        verifyCmd              `cmd:"" group:"daemon" help:"Check the whole database: its file, hashes, chain and invariants."`
	Audit         auditCmd               `cmd:"" group:"daemon" help:"List, check and archive the audit log."`
	Backup        backupCmd              `cmd:"" group:"daemon" help:"Copy the database, also while a daemon runs, and verify the copy."`
	RestoreBackup restoreBackupCmd       `cmd:"" group:"daemon" help:"Replace the database with a backup. The old database is kept."`
	Spool         spoolCmd               `cmd:"" group:"daemon" help:"List or send writes that clients spooled while the daemon was away."`
	Fleet         fleetcmd.Command       `cmd:"" group:"daemon" help:"Copy this host's commits to an engine that hosts share; claim runs of lost hosts."`
	Doctor        doctor.Command         `cmd:"" group:"daemon" help:"Report problems on this machine and how to fix them."`
	Config        configCmd              `cmd:"" group:"daemon" help:"Check and show the settings."`
	Service       service.Command        `cmd:"" group:"daemon" help:"Install and manage the daemon as a service of this machine."`
	Demo          democmd.Command        `cmd:"" group:"more" help:"Kill a working agent and watch it continue where it was."`
	Bench         benchCmd               `cmd:"" group:"more" help:"Measure this machine."`
	Version       versionCmd             `cmd:"" group:"more" help:"Show the version of this program and of the daemon."`
	ShowVersion   kong.VersionFlag       `name:"version" help:"Print only the version."`
	Help          helpCmd                `cmd:"" whole:"" group:"more" help:"Show the help of a command, all commands, or the global flags."`
	Completion    manual.Completion      `cmd:"" whole:"" group:"more" help:"Print a completion script for a shell."`
	Man           manual.Man             `cmd:"" whole:"" hidden:"" help:"Print the manual page."`
	CompleteNames manual.CompleteNames   `cmd:"" whole:"" hidden:"" help:"Print names that complete a word."`
	DemoAgent     democmd.Agent          `cmd:"" hidden:"" help:"The agent of the demo."`
	supervise.PlatformCommands
}

var groups = []kong.Group{
	{Key: "checkpoints", Title: "Checkpoints"},
	{Key: "runs", Title: "Runs"},
	{Key: "hosts", Title: "Coding agents and hosts of models"},
	{Key: "agents", Title: "Agents"},
	{Key: "daemon", Title: "Daemon"},
	{Key: "more", Title: "More"},
}

const summary = "The flight recorder of AI agents: what is acknowledged is safe on disk."

const description = summary + "\n\n" +
	"Exit codes: 0 done, 1 failed, 2 wrong usage, 3 not found, 4 conflict, 5 damaged data, 75 no daemon or try again later. " +
	"`resume` also: 10 go on with changes, 20 somebody must decide first, 30 unsafe. `exec` ends with the code of its command, or with 20 or 30. " +
	"`serve` also: 4 already running, 74 it stopped itself to be started again, 78 somebody must act first."

// run is the whole program except for signals and os.Exit.
func run(ctx context.Context, args []string, p process) int {
	g := &grammar{}
	a := &app{App: &cli.App{
		Flags: &g.Flags, Stdin: p.stdin, Env: p.env, Environ: p.environ, Interactive: p.interactive, Hurry: p.hurry,
		Version: programVersion(),
		Out:     term.NewStyle(p.stdout, p.env), Err: term.NewStyle(p.stderr, p.env),
	}}
	out, errs := term.NewWriter(p.stdout, a.Out), term.NewWriter(p.stderr, a.Err)
	a.Stdout, a.Stderr = out, errs
	code := a.command(ctx, g, args)
	if err := errors.Join(out.Flush(), errs.Flush()); err != nil && code == cli.ExitDone {
		return cli.ExitFailed
	}
	return code
}

// command parses the command line and runs the command.
func (a *app) command(ctx context.Context, g *grammar, args []string) int {
	if hookcmd.Handles(args) {
		return hookcmd.Main(ctx, a.App, args[1:])
	}
	if a.noCommand = len(args) == 0; a.noCommand {
		args = []string{"--help"}
	}
	if len(args) == 1 && args[0] == "--version" { // building the grammar takes longer than the rest
		term.Println(a.Stdout, "ckptsidecar "+a.Version)
		return cli.ExitDone
	}
	ended := -1
	options := []kong.Option{
		kong.Name("ckptsidecar"), kong.Description(description),
		kong.Writers(a.Stdout, a.Stderr), kong.Exit(func(code int) { ended = code }),
		kong.ExplicitGroups(groups), kong.ConfigureHelp(kong.HelpOptions{Compact: true}), kong.Help(a.printHelp),
		kong.WithHyphenPrefixedParameters(true), helpVars, kong.Vars{"version": "ckptsidecar " + a.Version},
	}
	parser, err := parserFor(g, args, options)
	if err != nil {
		return a.Fail(err)
	}
	parsed, err := parser.Parse(args)
	switch {
	case ended >= 0 && a.noCommand:
		return cli.ExitUsage
	case ended >= 0: // --help has printed its text
		return ended
	}
	if err != nil {
		return a.Fail(cli.UsageOf(err))
	}
	a.Out.Choose(g.Color, g.Wide)
	a.Err.Choose(g.Color, g.Wide)
	if err := errors.Join(splitRunName(parsed), a.shape(parsed)); err != nil {
		return a.Fail(err)
	}
	parsed.BindTo(ctx, (*context.Context)(nil))
	return a.Fail(parsed.Run(a, a.App, a.measuring(), parser, manual.Groups(groups)))
}

// shape reads -q and --format. import has its own --format, which is not a template.
func (a *app) shape(parsed *kong.Context) error {
	if a.Format != "" && !cli.IsTemplate(a.Format) && parsed.Command() != "import" && parsed.Command() != "import <files>" {
		return cli.Usagef("--format takes a Go template such as '{{.id}}'; got %s", a.Format)
	}
	return a.SetShape()
}
