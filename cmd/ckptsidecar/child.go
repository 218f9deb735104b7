package main

import (
	"context"
	"os/exec"

	"github.com/ckptsidecar/ckptsidecar/internal/cli/program"
)

// again is this program as a child, without the settings of its environment.
func (a *app) again(ctx context.Context, args ...string) (*exec.Cmd, error) {
	self, err := program.Self(a.environ)
	if err != nil {
		return nil, err
	}
	return self.Command(ctx, args...), nil
}

// startDaemon starts a daemon of this command's own and waits until it is ready.
func (a *app) startDaemon(ctx context.Context, dir string) (*program.Daemon, error) {
	self, err := program.Self(a.environ)
	if err != nil {
		return nil, err
	}
	return self.StartDaemon(ctx, dir)
}
