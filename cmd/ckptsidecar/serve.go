package main

import (
	"context"
	"errors"
	"io"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/ckptsidecar/ckptsidecar/internal/cli"
	"github.com/ckptsidecar/ckptsidecar/internal/cli/term"
	"github.com/ckptsidecar/ckptsidecar/internal/daemon"
)

type serveCmd struct {
	cli.SettingFlags `embed:""`

	PrintConfig bool `help:"Print the settings as a commented configuration file, and exit."`
	WhileStdin  bool `hidden:"" help:"Stop when standard input ends: a child that outlives no parent."`
	AsService   bool `hidden:"" help:"The service manager of Windows has started this."`
}

func (c *serveCmd) Run(ctx context.Context, a *app) error {
	if c.AsService {
		return c.runService(a)
	}
	config, err := c.Settings(a.App)
	switch {
	case err != nil:
		daemon.RefuseCallers()
		return err
	case c.PrintConfig:
		return config.Print(a.Stdout)
	}
	if c.WhileStdin {
		ctx = untilEnd(ctx, a.Stdin)
	}
	manager, err := daemon.Systemd(a.Env)
	if err != nil {
		return daemon.Misconfigured(err)
	}
	term.OutliveReaders()
	log, level := config.Logger(a.Log(), false)
	d := c.daemon(a, config)
	d.Log, d.Level, d.Manager, d.Reload = log, level, manager, reloads(a.Interactive)
	return d.Run(ctx)
}

// daemon returns the daemon for these settings, without a manager.
func (c *serveCmd) daemon(a *app, config daemon.Config) *daemon.Daemon {
	return &daemon.Daemon{
		Config: config, Version: programVersion(), Hurry: a.Hurry, Backup: a.backupAside, Restore: a.restoreAside,
		Load: func() (daemon.Config, error) { return c.Settings(a.App) },
	}
}

// untilEnd returns a context that ends when nothing more can be read.
func untilEnd(ctx context.Context, r io.Reader) context.Context {
	ctx, cancel := context.WithCancel(ctx)
	go func() {
		_, _ = io.Copy(io.Discard, r)
		cancel()
	}()
	return ctx
}

// backupAside makes a scheduled backup in a separate process. Checking a large database takes a
// hundred megabytes of memory, which the daemon would keep.
func (a *app) backupAside(ctx context.Context, database, out string) error {
	cmd, err := a.Again(ctx, "backup", out, "--db", database)
	if err != nil {
		return err
	}
	return backUp(cmd, filepath.Dir(out))
}

// restoreAside restores a backup on trial in a separate process, for the same reason.
func (a *app) restoreAside(ctx context.Context, backup, database string) error {
	cmd, err := a.Again(ctx, "restore-backup", backup, "--db", database)
	if err != nil {
		return err
	}
	return sayOf(cmd.CombinedOutput())
}

// backUp runs a command that makes a backup in a folder. A command that is killed, because the daemon stops or reads
// its settings again, leaves nothing there.
func backUp(cmd *exec.Cmd, folder string) error {
	said, err := cmd.CombinedOutput()
	if err != nil && cmd.Process != nil {
		err = errors.Join(err, daemon.RemoveUnfinished(folder, cmd.Process.Pid))
	}
	return sayOf(said, err)
}

// sayOf returns what a command of this program that failed has said.
func sayOf(said []byte, err error) error {
	if text := strings.TrimPrefix(strings.TrimSpace(string(said)), "ckptsidecar: "); err != nil && text != "" {
		return errors.New(text)
	}
	return err
}
