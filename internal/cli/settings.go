package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"time"

	ckpt "github.com/ckptsidecar/ckptsidecar"
	"github.com/ckptsidecar/ckptsidecar/internal/daemon"
)

// SettingFlags are the settings of the daemon on the command line.
type SettingFlags struct {
	DB        string            `name:"db" help:"The database file." placeholder:"FILE"`
	Config    string            `help:"The configuration file. Default: $$CKPTSIDECAR_CONFIG, then the usual place." placeholder:"FILE"`
	System    bool              `help:"Serve every user of this machine, from the system's folders, instead of you alone."`
	LogFormat string            `help:"The form of the log: text or json." placeholder:"FORM"`
	LogLevel  string            `help:"What is logged: debug, info, warn or error." placeholder:"LEVEL"`
	Set       map[string]string `mapsep:"none" help:"Any other setting, named as in the configuration file; may be repeated." placeholder:"KEY=VALUE"`
}

// Settings merges the settings: a flag overrides the environment, which overrides the
// file, which overrides the default. An error lists every mistake in them.
func (c *SettingFlags) Settings(a *App) (daemon.Config, error) {
	config := daemon.Default(c.System, a.Env)
	mistakes := errors.Join(c.readFile(&config, a.Env), config.Environment(a.Env))
	if err := c.flags(&config, a.Socket); err != nil {
		return config, Usagef("%v", err)
	}
	if config.Socket == "" && filepath.IsAbs(config.Database) { // without a home, --db alone is enough
		config.Socket = filepath.Join(filepath.Dir(config.Database), "ckptsidecar.sock")
	}
	if err := errors.Join(mistakes, config.Check()); err != nil {
		return config, daemon.Misconfigured(err)
	}
	return config, nil
}

func (c *SettingFlags) readFile(config *daemon.Config, env daemon.Environment) error {
	file, named := c.File(env)
	if named {
		return config.Load(file)
	}
	return config.LoadDefault(file)
}

// File returns the configuration file. If it was not named, it need not exist.
func (c *SettingFlags) File(env daemon.Environment) (file string, named bool) {
	if file = cmp.Or(c.Config, env("CKPTSIDECAR_CONFIG")); file != "" {
		return file, true
	}
	return daemon.DefaultFile(c.System, env), false
}

func (c *SettingFlags) flags(config *daemon.Config, socket string) error {
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

// DatabaseFlag names the database for commands that read it themselves. They also work
// without a daemon.
type DatabaseFlag struct {
	DB     string `name:"db" help:"The database file. Default: $$CKPTSIDECAR_DB, then the daemon's, then the configured one." placeholder:"FILE"`
	System bool   `help:"The system service's database, where no daemon runs."`
}

// Path returns the path of the database. It asks the daemon if neither the flag nor the environment names it.
func (f *DatabaseFlag) Path(ctx context.Context, a *App) (string, error) {
	return f.path(a, func() *ckpt.Status {
		ctx, cancel := context.WithTimeout(ctx, 3*time.Second)
		defer cancel()
		s, _ := a.Client().Status(ctx)
		return s
	})
}

// PathWith is Path for a command that has asked the daemon already. The status is nil if no daemon answered.
func (f *DatabaseFlag) PathWith(s *ckpt.Status, a *App) (string, error) {
	return f.path(a, func() *ckpt.Status { return s })
}

func (f *DatabaseFlag) path(a *App, ask func() *ckpt.Status) (string, error) {
	if f.DB != "" {
		return filepath.Abs(f.DB)
	}
	if named := a.Env("CKPTSIDECAR_DB"); named != "" {
		return filepath.Abs(named)
	}
	if s := ask(); s != nil && s.Database.Path != "" {
		return s.Database.Path, nil
	}
	config, err := (&SettingFlags{System: f.System}).Settings(a)
	return config.Database, err
}

// Existing returns the path of a database that exists.
func (f *DatabaseFlag) Existing(ctx context.Context, a *App) (string, error) {
	path, err := f.Path(ctx, a)
	if err != nil {
		return "", err
	}
	if _, err := os.Stat(path); errors.Is(err, fs.ErrNotExist) {
		return "", &ExitError{Code: ExitNotFound, Message: fmt.Sprintf("there is no database %s: name one with --db", path)}
	}
	return path, nil
}
