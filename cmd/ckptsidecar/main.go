// Command ckptsidecar is the flight recorder of AI agents: the daemon, and every command that a
// person or a script needs to talk to it.
//
// This package may import the root package, internal/cli and the packages below it,
// internal/daemon, internal/fleet, internal/hook, internal/ipc/client, internal/jsontext,
// internal/mcpserver, internal/osfile, internal/survey, internal/wellformed and client.
package main

import (
	"context"
	"os"
	"os/signal"

	"github.com/ckptsidecar/ckptsidecar/internal/cli/term"
)

func main() {
	ctx, hurry := untilSignal(stopSignals...)
	os.Exit(run(ctx, os.Args[1:], process{
		stdin: os.Stdin, stdout: os.Stdout, stderr: os.Stderr, interactive: term.IsTerminal(os.Stdin),
		env: os.Getenv, environ: os.Environ(), hurry: hurry,
	}))
}

// untilSignal returns a context that ends at the first signal and a channel that closes at the
// second. A third signal kills the process. This is safe, because all acknowledged data is on disk.
func untilSignal(which ...os.Signal) (context.Context, <-chan struct{}) {
	ctx, stop := context.WithCancel(context.Background())
	signals, hurry := make(chan os.Signal, 2), make(chan struct{})
	signal.Notify(signals, which...)
	go func() {
		<-signals
		stop()
		<-signals
		signal.Reset(which...)
		close(hurry)
	}()
	return ctx, hurry
}
