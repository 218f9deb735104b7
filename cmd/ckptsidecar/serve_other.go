//go:build !windows

package main

import "github.com/ckptsidecar/ckptsidecar/internal/cli"

func (c *serveCmd) runService(*app) error {
	return cli.Usagef("only the Windows service manager may pass --as-service: leave it out")
}
