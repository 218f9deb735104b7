package main

import (
	"io"

	"github.com/ckptsidecar/ckptsidecar/internal/cli"
	"github.com/ckptsidecar/ckptsidecar/internal/daemon"
)

// process is what the program sees of its process, so that tests can be one.
type process struct {
	stdin          io.Reader
	stdout, stderr io.Writer
	env            daemon.Environment
	environ        []string        // the same, whole, for children
	interactive    bool            // a person sits at stdin
	hurry          <-chan struct{} // closes when a person asks a second time to stop
}

// app is what every command gets.
type app struct{ *cli.App }
