package main

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"path/filepath"

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
}

func (c *serveCmd) Run(ctx context.Context, a *app) error {
	config, err := c.settings(a)
	if err != nil {
		return err
	}
	if c.PrintConfig {
		return config.Print(a.stdout)
	}
	if c.WhileStdin {
		ctx = untilEnd(ctx, a.stdin)
	}
	d := &daemon.Daemon{Config: config, Version: programVersion(), Log: logger(a, &config), Hurry: a.hurry}
	return d.Run(ctx)
}

// settings puts flag over environment over file over default.
func (c *serveCmd) settings(a *app) (daemon.Config, error) {
	config := daemon.Default(c.System, a.env)
	if err := c.readFile(&config, a.env); err != nil {
		return config, daemon.Misconfigured(err)
	}
	if err := config.Environment(a.env); err != nil {
		return config, daemon.Misconfigured(err)
	}
	if err := c.flags(&config, a.cli.Socket); err != nil {
		return config, usagef("%v", err)
	}
	if err := config.Check(); err != nil {
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
	given := map[string]string{"socket": socket, "log.format": c.LogFormat, "log.level": c.LogLevel}
	if c.DB != "" {
		path, err := filepath.Abs(c.DB)
		if err != nil {
			return err
		}
		given["database"] = path
	}
	for key, value := range given {
		if value == "" {
			continue
		}
		if err := config.Set(key, value); err != nil {
			return err
		}
	}
	for key, value := range c.Set {
		if err := config.Set(key, value); err != nil {
			return fmt.Errorf("--set: %w", err)
		}
	}
	return nil
}

// logger writes to standard error, where service managers listen.
func logger(a *app, config *daemon.Config) *slog.Logger {
	level, _ := config.Level() // checked before
	options := &slog.HandlerOptions{Level: level}
	if config.LogFormat == daemon.LogJSON {
		return slog.New(slog.NewJSONHandler(a.stderr, options))
	}
	return slog.New(slog.NewTextHandler(a.stderr, options))
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
