package main

import (
	"context"
	"io"
	"os"
	"strings"

	ckpt "github.com/ckptsidecar/ckptsidecar"
	"github.com/ckptsidecar/ckptsidecar/internal/cli"
	"github.com/ckptsidecar/ckptsidecar/internal/cli/term"
	"github.com/ckptsidecar/ckptsidecar/internal/osfile"
)

type exportCmd struct {
	Agents []string `arg:"" optional:"" name:"agent" help:"The agents' names." placeholder:"AGENT"`
	All    bool     `help:"All agents of the owner, in one file."`
	InRun  string   `name:"run" help:"Of a single agent, this run alone." placeholder:"RUN"`
	Output string   `short:"o" help:"Write to this file, whole or not at all, instead of standard output." placeholder:"FILE"`
}

func (c *exportCmd) Run(ctx context.Context, a *app) error {
	r := ckpt.ExportRequest{Agents: c.Agents, Run: c.InRun}
	if err := cli.Checked(r.Check()); err != nil {
		return err
	}
	if c.All == (len(c.Agents) > 0) {
		return cli.Usagef("name the agents to export, or say --all for all of them")
	}
	if c.Output == "" {
		return a.Client().ExportAgents(ctx, r, a.Data())
	}
	p := a.Progress("exporting, bytes:")
	err := osfile.Fill(c.Output, 0o600, func(w io.Writer) error {
		return a.Client().ExportAgents(ctx, r, &counter{w: w, step: p.Step})
	})
	p.Done()
	return err
}

type importCmd struct {
	Files   []string `arg:"" optional:"" help:"The file that export wrote; - or nothing for standard input. With another --format its files, or the folder that has .running and .history." placeholder:"FILE"`
	Agent   string   `help:"Give the agent this name instead of its own." placeholder:"NAME"`
	Format  string   `default:"ndjson" enum:"ndjson,workflow-snapshot,fsm-loop,statement-checkpoint" help:"What the files are: ndjson (what export wrote), workflow-snapshot, fsm-loop or statement-checkpoint. Default: ${default}." placeholder:"FORMAT"`
	DryRun  bool     `help:"Only say what would be imported. Not with ndjson."`
	Stopped bool     `help:"No loop runs any more, whatever process has its number now. With fsm-loop."`
}

func (c *importCmd) Run(ctx context.Context, a *app) error {
	if err := cli.Checked(cli.Given(c.Agent, ckpt.CheckAgentName)); err != nil {
		return err
	}
	switch {
	case c.Format != "ndjson":
		return c.runForeign(ctx, a)
	case c.DryRun || c.Stopped:
		return cli.Usagef("--dry-run and --stopped go with the foreign formats: name one with --format")
	case len(c.Files) > 1:
		return cli.Usagef("one export is imported at a time")
	}
	from := a.Stdin
	if len(c.Files) == 1 && c.Files[0] != "-" {
		f, err := os.Open(c.Files[0])
		if err != nil {
			return err
		}
		defer f.Close()
		from = f
	}
	p := a.Progress("importing, bytes:")
	report, err := a.Client().Import(ctx, ckpt.ImportRequest{Agent: c.Agent}, &counter{r: from, step: p.Step})
	p.Done()
	switch {
	case err != nil:
		return err
	case a.JSON:
		return term.WriteJSON(a.Data(), report)
	}
	term.Printf(a.Stdout, "%s  imported: %s, %s; there already: %s, %s\n", strings.Join(report.Agents, " "), term.Count(report.Runs, "run"),
		term.Count(report.Imported, "checkpoint"), term.Count(report.RunsPresent, "run"), term.Count(report.Present, "checkpoint"))
	for _, u := range report.Uncertain {
		term.Printf(a.Stdout, "%s/%s  is uncertain: nobody knows %s; a person must decide whether it goes on\n", u.Agent, u.Run, u.Reason)
	}
	for old, now := range report.Renamed {
		term.Printf(a.Stdout, "%s  is now %s, because another agent has that id\n", old, now)
	}
	for _, id := range report.Pruned {
		term.Printf(a.Stdout, "%s  pruned: the agent's policy does not keep it\n", id)
	}
	return nil
}

// counter reports how many bytes have passed.
type counter struct {
	r    io.Reader
	w    io.Writer
	n    int64
	step func(done, total int64)
}

func (c *counter) Read(b []byte) (int, error)  { return c.count(c.r.Read(b)) }
func (c *counter) Write(b []byte) (int, error) { return c.count(c.w.Write(b)) }

func (c *counter) count(n int, err error) (int, error) {
	c.n += int64(n)
	c.step(c.n, 0)
	return n, err
}
