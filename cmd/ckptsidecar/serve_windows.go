package main

import (
	"context"

	"github.com/ckptsidecar/ckptsidecar/internal/cli"
	"github.com/ckptsidecar/ckptsidecar/internal/daemon"
)

// runService serves under the service control manager. Nobody reads standard error there, so the
// end of the daemon is written to the event log.
func (c *serveCmd) runService(a *app) error {
	s := &daemon.Service{Run: func(ctx context.Context, m daemon.Manager, reload, hurry <-chan struct{}) error {
		config, err := c.Settings(a.App)
		log, level := config.Logger(a.Log(), true)
		if err == nil {
			d := c.daemon(a, config)
			d.Log, d.Level, d.Manager, d.Reload, d.Hurry = log, level, m, reload, hurry
			err = d.Run(ctx)
		}
		if err != nil {
			log.Error(daemon.MessageEnded, "error", err, "exit_code", cli.ExitCode(err))
		}
		return err
	}}
	return s.Serve()
}
