package main

import (
	"io"

	"github.com/ckptsidecar/ckptsidecar/internal/cli"
	"github.com/ckptsidecar/ckptsidecar/internal/daemon"
)

// process is the program's view of its process, which tests can replace.
type process struct {
	stdin          io.Reader
	stdout, stderr io.Writer
	env            daemon.Environment
	environ        []string        // the whole environment of env, for children
	interactive    bool            // a person is at stdin
	hurry          <-chan struct{} // closes when the user asks a second time to stop
}

// app is what every command gets.
type app struct {
	*cli.App
	helpPage string // of `help more` and `help flags`
	helped   bool   // a page of the help was printed

	noCommand bool // the command line names none
}
