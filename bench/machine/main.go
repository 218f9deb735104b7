// The command machine measures this machine and its disk, as `ckptsidecar bench save` does: how
// fast states are restored, how small histories stay, and what gets slower with many checkpoints.
// docs/BENCHMARKS.md describes it; `make bench-machine` runs it.
//
// It measures daemons of a built program (--server).
//
// This package may import the root, internal/cli and the packages below it, internal/daemon and
// internal/ipc of the product.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"

	"github.com/alecthomas/kong"

	"github.com/ckptsidecar/ckptsidecar/internal/cli"
	"github.com/ckptsidecar/ckptsidecar/internal/cli/measure"
	"github.com/ckptsidecar/ckptsidecar/internal/cli/program"
	"github.com/ckptsidecar/ckptsidecar/internal/cli/term"
)

// grammar is the command line.
type grammar struct {
	Server string `help:"The program of ckptsidecar. Default: ${default}." default:"dist/ckptsidecar" placeholder:"FILE"`
	JSON   bool   `name:"json" help:"Write JSON instead of text for people."`

	Restore restoreCmd `cmd:"" help:"Restoring over the socket: states of several sizes and ages."`
	History historyCmd `cmd:"" help:"States that grow over many saves: how small the database stays, and how fast saving and restoring."`
	Files   filesCmd   `cmd:"" help:"The files of a folder: kept, brought back, and how large they get, beside a shadow git."`
	Scale   scaleCmd   `cmd:"" help:"Up to a million checkpoints in the database: what gets slower, and how long a start takes."`
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // a second Ctrl-C does not wait for the cleanup
	os.Exit(run(ctx, os.Args[1:], os.Stdin, os.Stdout, os.Stderr))
}

// helpVars are parts of the help: the texts that differ from those of ckptsidecar bench, and the
// texts that are too long for a tag.
var helpVars = kong.Vars{
	"disk": "the working folder",
	"histories": "Which: chat (a conversation that only grows), compacting (a quarter of it and a summary stay " +
		"whenever it is too long), edited (20 files, of which one is edited each time).",
	"restored": "How many saves of a state that keeps its size while messages come and go; the newest, the one in " +
		"the middle and the oldest of them are restored, and a state that was saved alone.",
	"rows": "How many checkpoints there are, for example 10k,100k,1m; the first is what the others are compared " +
		"with. A million takes minutes and some 5 GB.",
}

// run is the whole program except for signals and os.Exit.
func run(ctx context.Context, args []string, stdin io.Reader, stdout, stderr io.Writer) int {
	g := new(grammar)
	ended := -1
	parser, err := kong.New(g, kong.Name("machine"), kong.Description("Measures this machine."), kong.Writers(stdout, stderr),
		kong.Exit(func(code int) { ended = code }), kong.ConfigureHelp(kong.HelpOptions{Compact: true}), helpVars)
	if err != nil {
		return fail(stderr, err)
	}
	parsed, err := parser.Parse(args)
	if ended >= 0 { // --help has printed its text
		return ended
	}
	if err != nil {
		return fail(stderr, cli.Usagef("%v", err))
	}
	parsed.BindTo(ctx, (*context.Context)(nil))
	return fail(stderr, parsed.Run(g.env(ctx, stdin, stdout, stderr), g))
}

// env returns what the measurements need from this program.
func (g *grammar) env(ctx context.Context, stdin io.Reader, stdout, stderr io.Writer) *measure.Env {
	server, _ := filepath.Abs(g.Server)
	return &measure.Env{
		Stdin: stdin, Stdout: stdout, Stderr: stderr, JSON: g.JSON,
		Out: term.NewStyle(stdout, os.Getenv), Err: term.NewStyle(stderr, os.Getenv),
		Version: version(ctx, server), Where: os.Getwd,
		Start: func(ctx context.Context, dir string) (*program.Daemon, error) {
			return program.At(server, os.Environ()).StartDaemon(ctx, dir)
		},
	}
}

// version asks the program of ckptsidecar for its version. If the program does not answer, the
// error of a later start gives the reason.
func version(ctx context.Context, server string) string {
	var v struct {
		Version string `json:"version"`
	}
	text, err := program.At(server, os.Environ()).Command(ctx, "version", "--json").Output()
	if err != nil || json.Unmarshal(text, &v) != nil {
		return "unknown"
	}
	return v.Version
}

// fail prints the error and returns the exit code, as ckptsidecar itself does.
func fail(stderr io.Writer, err error) int {
	var usage *cli.UsageError
	switch {
	case err == nil:
		return cli.ExitDone
	case errors.Is(err, context.Canceled):
		err = errors.New("interrupted before it finished")
	}
	fmt.Fprintln(stderr, "machine:", err)
	if errors.As(err, &usage) {
		return cli.ExitUsage
	}
	return cli.ExitFailed
}
