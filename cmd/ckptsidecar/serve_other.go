//go:build !windows

package main

func (c *serveCmd) runService(*app) error {
	return usagef("--as-service is what the service manager of Windows gives")
}
