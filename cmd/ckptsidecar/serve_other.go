//go:build !windows

package main

import "github.com/ckptsidecar/ckptsidecar/internal/cli"

func (c *serveCmd) runService(*app) error {
	return cli.Usagef("--as-service is what the service manager of Windows gives")
}
