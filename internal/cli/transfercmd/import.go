package transfercmd

import (
	"context"
	"os"
	"slices"
	"strings"

	ckpt "github.com/ckptsidecar/ckptsidecar"
	"github.com/ckptsidecar/ckptsidecar/internal/cli"
	"github.com/ckptsidecar/ckptsidecar/internal/cli/term"
	"github.com/ckptsidecar/ckptsidecar/internal/foreign"
)

// Import is the command import.
type Import struct {
	Files   []string `arg:"" optional:"" help:"${import_files}" placeholder:"FILE"`
	Agent   string   `help:"Give the agent this name instead of its own." placeholder:"NAME"`
	DryRun  bool     `help:"Only say what would be imported. Only with a foreign format."`
	Stopped bool     `help:"Assume that no loop runs any more, even if a process has its number. With fsm-loop."`
}

// ownFormat is the format of export.
const ownFormat = "ckpt"

// importFormats are the possible formats of the files.
var importFormats = []string{ownFormat, "workflow-snapshot", "fsm-loop", "statement-checkpoint"}

// Help returns the additional text of `import --help`.
func (c *Import) Help() string {
	return "--format says what the files are: ckpt (what export wrote; the default), workflow-snapshot, fsm-loop or statement-checkpoint."
}

// Run imports an export, or files of another system.
func (c *Import) Run(ctx context.Context, a *cli.App) error {
	if err := cli.Checked(cli.Given(c.Agent, ckpt.CheckAgentName)); err != nil {
		return err
	}
	format := ownFormat
	if a.Format != "" && !cli.IsTemplate(a.Format) {
		format = a.Format
	}
	switch {
	case !slices.Contains(importFormats, format):
		return cli.Usagef("--format must be one of %s; got %s", strings.Join(importFormats, ", "), format)
	case format != ownFormat:
		return c.runForeign(ctx, a, foreign.Format(format))
	case c.DryRun || c.Stopped:
		return cli.Usagef("--dry-run and --stopped work only with a foreign format: name one with --format")
	case len(c.Files) > 1:
		return cli.Usagef("import takes one export at a time: name one file")
	}
	from, size := a.Stdin, int64(0)
	if len(c.Files) == 1 && c.Files[0] != "-" {
		f, err := os.Open(c.Files[0])
		if err != nil {
			return err
		}
		defer f.Close()
		if info, err := f.Stat(); err == nil && info.Mode().IsRegular() {
			size = info.Size()
		}
		from = f
	}
	p := a.Progress("importing", term.ByBytes)
	report, err := a.Client().Import(ctx, ckpt.ImportRequest{Agent: c.Agent}, &counter{r: from, all: size, step: p.Step})
	p.Done()
	switch {
	case err != nil:
		return err
	case a.JSON:
		return a.WriteJSON(report)
	}
	term.Printf(a.Stdout, "%s  imported: %s, %s; there already: %s, %s\n", strings.Join(report.Agents, " "), term.Count(report.Runs, "run"),
		term.Count(report.Imported, "checkpoint"), term.Count(report.RunsPresent, "run"), term.Count(report.Present, "checkpoint"))
	for _, u := range report.Uncertain {
		term.Printf(a.Stdout, "%s/%s  is uncertain: it is unknown whether %s took effect; a person must decide whether it goes on\n", u.Agent, u.Run, u.Reason)
	}
	for old, now := range report.Renamed {
		term.Printf(a.Stdout, "%s  is now %s, because another agent has that id\n", old, now)
	}
	for _, id := range report.Pruned {
		term.Printf(a.Stdout, "%s  pruned: the agent's policy does not keep it\n", id)
	}
	return nil
}

// runForeign imports files of another system.
func (c *Import) runForeign(ctx context.Context, a *cli.App, format foreign.Format) error {
	if len(c.Files) == 0 {
		return cli.Usagef("name what to import: the files, or for fsm-loop the folder")
	}
	m := &mover{a: a, options: foreign.Options{Agent: c.Agent, Owner: idOwner(a)}}
	if !c.Stopped {
		m.options.Alive = processLives
	}
	m.report = foreignReport{Format: format, DryRun: c.DryRun, Runs: []foreignRun{}, Problems: []foreign.Problem{}}
	read := m.readFiles
	if m.report.Format == foreign.FSMLoop {
		read = m.readFolders
	}
	if err := read(ctx, c.Files); err != nil {
		return err
	}
	if a.JSON {
		if err := a.WriteJSON(m.report); err != nil {
			return err
		}
	}
	switch {
	case m.stopped != nil:
		return m.stopped
	case m.failed:
		return &cli.ExitError{Code: cli.ExitFailed}
	}
	return nil
}
