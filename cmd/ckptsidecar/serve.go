package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"path/filepath"
	"slices"
	"strings"

	"github.com/ckptsidecar/ckptsidecar/internal/cli"
	"github.com/ckptsidecar/ckptsidecar/internal/daemon"
)

type serveCmd struct {
	DB          string            `name:"db" help:"The database file." placeholder:"FILE"`
	Config      string            `help:"The configuration file. Default: $$CKPTSIDECAR_CONFIG, then the usual place, where none need be." placeholder:"FILE"`
	System      bool              `help:"Serve every user of this machine, from the system's folders, instead of you alone."`
	LogFormat   string            `help:"The form of the log: text or json." placeholder:"FORM"`
	LogLevel    string            `help:"What is logged: debug, info, warn or error." placeholder:"LEVEL"`
	Set         map[string]string `mapsep:"none" help:"Any other setting, by its name in the configuration file; may be repeated." placeholder:"KEY=VALUE"`
	PrintConfig bool              `help:"Print the settings as a configuration file that explains itself, and serve nothing."`
	WhileStdin  bool              `hidden:"" help:"Stop when standard input ends: a child that outlives no parent."`
	AsService   bool              `hidden:"" help:"The service manager of Windows has started this."`
}

func (c *serveCmd) Run(ctx context.Context, a *app) error {
	if c.AsService {
		return c.runService(a)
	}
	config, err := c.settings(a)
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
	log, level := config.Logger(a.Log(), false)
	d := c.daemon(a, config)
	d.Log, d.Level, d.Manager, d.Reload = log, level, manager, reloads(a.Interactive)
	return d.Run(ctx)
}

// daemon is the daemon of these settings, with nobody who manages it yet.
func (c *serveCmd) daemon(a *app, config daemon.Config) *daemon.Daemon {
	return &daemon.Daemon{
		Config: config, Version: programVersion(), Hurry: a.Hurry, Backup: a.backupAside,
		Load: func() (daemon.Config, error) { return c.settings(a) },
	}
}

// settings puts flag over environment over file over default, and names every
// mistake in them.
func (c *serveCmd) settings(a *app) (daemon.Config, error) {
	config := daemon.Default(c.System, a.Env)
	mistakes := errors.Join(c.readFile(&config, a.Env), config.Environment(a.Env))
	if err := c.flags(&config, a.Socket); err != nil {
		return config, cli.Usagef("%v", err)
	}
	if err := errors.Join(mistakes, config.Check()); err != nil {
		return config, daemon.Misconfigured(err)
	}
	return config, nil
}

func (c *serveCmd) readFile(config *daemon.Config, env daemon.Environment) error {
	for _, named := range []string{c.Config, env("CKPTSIDECAR_CONFIG")} {
		if named != "" {
			return config.Load(named)
		}
	}
	return config.LoadIfThere(daemon.DefaultFile(c.System, env))
}

func (c *serveCmd) flags(config *daemon.Config, socket string) error {
	given := []struct{ key, value, flag string }{
		{"socket", socket, "--socket"}, {"log.format", c.LogFormat, "--log-format"}, {"log.level", c.LogLevel, "--log-level"},
	}
	if c.DB != "" {
		path, err := filepath.Abs(c.DB)
		if err != nil {
			return err
		}
		given = append(given, struct{ key, value, flag string }{"database", path, "--db"})
	}
	for _, key := range slices.Sorted(maps.Keys(c.Set)) {
		given = append(given, struct{ key, value, flag string }{key, c.Set[key], "--set"})
	}
	for _, g := range given {
		if g.value == "" && g.flag != "--set" {
			continue
		}
		if err := config.Set(g.key, g.value, g.flag); err != nil {
			return fmt.Errorf("%s: %w", g.flag, err)
		}
	}
	return nil
}

// untilEnd ends the context when nothing more can be read.
func untilEnd(ctx context.Context, r io.Reader) context.Context {
	ctx, cancel := context.WithCancel(ctx)
	go func() {
		_, _ = io.Copy(io.Discard, r)
		cancel()
	}()
	return ctx
}

// backupAside makes a scheduled backup in a process of its own: it takes a
// hundred megabytes to check a large database, which the daemon would keep.
func (a *app) backupAside(ctx context.Context, database, out string) error {
	cmd, err := a.Again(ctx, "backup", out, "--db", database)
	if err != nil {
		return err
	}
	said, err := cmd.CombinedOutput()
	if text := strings.TrimPrefix(strings.TrimSpace(string(said)), "ckptsidecar: "); err != nil && text != "" {
		return errors.New(text)
	}
	return err
}
