package main

import (
	"context"
	"io"
	"os"
	"time"

	ckpt "github.com/ckptsidecar/ckptsidecar"
	"github.com/ckptsidecar/ckptsidecar/internal/cli"
	"github.com/ckptsidecar/ckptsidecar/internal/cli/term"
	"github.com/ckptsidecar/ckptsidecar/internal/ipc/client"
	"github.com/ckptsidecar/ckptsidecar/internal/mcpserver"
)

// mcpRetry is how long a tool waits for a daemon that is busy or restarts.
const mcpRetry = time.Second

type mcpCmd struct {
	Agent string `help:"Whose checkpoints. Default: $$CKPTSIDECAR_AGENT, then the project folder's name and a hash of its path." placeholder:"NAME"`
	InRun string `name:"run" help:"The run where a tool names none. Default: main, or under exec its run." placeholder:"NAME"`
}

// Help returns the text that `mcp --help` adds.
func (c *mcpCmd) Help() string {
	return "A host such as Claude Code, Cursor or VS Code starts this command and speaks to it over standard input and output. " +
		"Settings for the usual hosts are in docs/MCP.md."
}

func (c *mcpCmd) Run(ctx context.Context, a *app) error {
	folder, err := os.Getwd()
	if err != nil {
		return err
	}
	o := mcpserver.Options{Agent: a.projectAgent(c.Agent, folder), Version: programVersion()}
	o.Run = a.InRun(o.Agent, c.InRun)
	if err := cli.Checked((ckpt.RunRef{Agent: o.Agent, Run: o.Run}).Check()); err != nil {
		return err
	}
	o.Client = &client.Client{Socket: a.Socket, Owner: a.Owner, Retry: mcpRetry}
	defer o.Client.Close()
	return mcpserver.New(o).Serve(ctx, closable(a.Stdin), unclosed{term.Raw(a.Stdout)})
}

// closable returns standard input in a form that can be closed to end a waiting read.
func closable(r io.Reader) io.ReadCloser {
	if c, ok := r.(io.ReadCloser); ok {
		return c
	}
	return io.NopCloser(r)
}

// unclosed is standard output. It stays open for messages at the end.
type unclosed struct{ io.Writer }

func (unclosed) Close() error { return nil }
