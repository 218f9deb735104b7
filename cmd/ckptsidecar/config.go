package main

import (
	"context"
	"os"

	"github.com/ckptsidecar/ckptsidecar/internal/cli"
	"github.com/ckptsidecar/ckptsidecar/internal/cli/term"
	"github.com/ckptsidecar/ckptsidecar/internal/daemon"
	"github.com/ckptsidecar/ckptsidecar/internal/ipc/client"
)

type configCmd struct {
	Check configCheckCmd `cmd:"" help:"Report every mistake in the settings with its line. Exits with 78 if there is one."`
	Show  configShowCmd  `cmd:"" help:"Print the settings and where each comes from, as a commented file."`
}

// configFlags choose the daemon whose settings are used.
type configFlags struct {
	System bool `help:"The system's daemon instead of your own."`
}

func (f *configFlags) settings(a *app, file string) (daemon.Config, error) {
	return (&cli.SettingFlags{System: f.System, Config: file}).Settings(a.App)
}

type configCheckCmd struct {
	configFlags `embed:""`
	File        string `arg:"" optional:"" help:"The configuration file. Default: $$CKPTSIDECAR_CONFIG, then the usual place." placeholder:"FILE"`
}

func (c *configCheckCmd) Run(a *app) error {
	if _, err := c.settings(a, c.File); err != nil {
		return err
	}
	if a.JSON {
		return a.WriteJSON(struct {
			Sound bool `json:"sound"`
		}{true})
	}
	file, named := (&cli.SettingFlags{System: c.System, Config: c.File}).File(a.Env)
	if _, err := os.Stat(file); err != nil && !named {
		term.Printf(a.Stdout, "%s  the settings are sound; no file was read: there is no %s\n", a.Out.Green("ok"), file)
		return nil
	}
	term.Printf(a.Stdout, "%s  the settings are sound; they were read from %s\n", a.Out.Green("ok"), file)
	return nil
}

type configShowCmd struct {
	configFlags `embed:""`
	Config      string `help:"The configuration file. Default: $$CKPTSIDECAR_CONFIG, then the usual place." placeholder:"FILE"`
	Daemon      bool   `help:"The settings that the running daemon has in force. For administrators."`
	Example     bool   `help:"Print the defaults instead, commented out: a file to start from."`
}

// settingShape is one setting in JSON.
type settingShape struct {
	Key   string `json:"key"`
	Value string `json:"value"`
	SetBy string `json:"set_by"` // "" for the default
	Env   string `json:"environment"`
	Live  bool   `json:"live"` // a reload is enough
	Doc   string `json:"doc"`
}

func (c *configShowCmd) Run(ctx context.Context, a *app) error {
	if c.Daemon {
		return c.ofDaemon(ctx, a)
	}
	if c.Example {
		return daemon.Default(c.System, a.Env).Example(a.Stdout)
	}
	config, err := c.settings(a, c.Config)
	if err != nil {
		return err
	}
	if !a.JSON {
		return config.Print(a.Stdout)
	}
	var list []settingShape
	for _, s := range config.Settings() {
		list = append(list, settingShape{s.Key, s.Text(), config.SetBy(s.Key), s.Env, s.Live, s.Doc})
	}
	return a.WriteJSON(list)
}

// ofDaemon prints the settings that the running daemon uses.
func (c *configShowCmd) ofDaemon(ctx context.Context, a *app) error {
	if c.Example || c.Config != "" || c.System {
		return cli.Usagef("--daemon reads the settings of the running daemon: leave the file and --system out")
	}
	v, err := client.Operator{Client: a.Client()}.Settings(ctx)
	switch {
	case err != nil:
		return err
	case a.JSON:
		return a.WriteJSON(v.Settings)
	}
	t := term.NewTable("SETTING", "VALUE", "SET BY").Whole()
	for _, s := range v.Settings {
		by := s.SetBy
		if by == "" {
			by = "default"
		}
		t.Add(s.Key, s.Value, by)
	}
	t.Write(a.Stdout, a.Out)
	return nil
}
