package transfercmd

import (
	"context"
	"io"

	ckpt "github.com/ckptsidecar/ckptsidecar"
	"github.com/ckptsidecar/ckptsidecar/internal/cli"
	"github.com/ckptsidecar/ckptsidecar/internal/cli/term"
	"github.com/ckptsidecar/ckptsidecar/internal/osfile"
)

// Export is the command export.
type Export struct {
	Agents  []string `arg:"" optional:"" name:"agent" help:"The agents' names." placeholder:"AGENT"`
	All     bool     `help:"All agents of the owner, in one file."`
	InRun   string   `name:"run" help:"Of a single agent, this run alone." placeholder:"RUN"`
	NoFiles bool     `help:"Without the files that checkpoints name."`
	Output  string   `short:"o" help:"Write to this file, whole or not at all. - is standard output, which is the default if it is no terminal." placeholder:"FILE"`
}

// Run writes an export.
func (c *Export) Run(ctx context.Context, a *cli.App) error {
	r := ckpt.ExportRequest{Agents: c.Agents, Run: c.InRun, NoFiles: c.NoFiles}
	if err := cli.Checked(r.Check()); err != nil {
		return err
	}
	if c.All == (len(c.Agents) > 0) {
		return cli.Usagef("name the agents to export, or add --all")
	}
	if c.Output == "" && a.Out.Terminal {
		return cli.Usagef("an export is a database, not a text: name a file with -o FILE.ckpt")
	}
	if c.Output == "" || c.Output == "-" {
		return a.Client().ExportAgents(ctx, r, a.Data())
	}
	p := a.Progress("exporting", term.ByBytes)
	err := osfile.Fill(c.Output, 0o600, func(w io.Writer) error {
		return a.Client().ExportAgents(ctx, r, &counter{w: w, step: p.Step})
	})
	p.Done()
	return err
}

// counter reports how many bytes have passed.
type counter struct {
	r    io.Reader
	w    io.Writer
	n    int64
	all  int64 // 0 if it is unknown
	step func(done, total int64)
}

func (c *counter) Read(b []byte) (int, error)  { return c.count(c.r.Read(b)) }
func (c *counter) Write(b []byte) (int, error) { return c.count(c.w.Write(b)) }

func (c *counter) count(n int, err error) (int, error) {
	c.n += int64(n)
	c.step(c.n, c.all)
	return n, err
}
