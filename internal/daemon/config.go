package daemon

import (
	"fmt"
	"log/slog"
	"path/filepath"
	"time"

	ckpt "github.com/ckptsidecar/ckptsidecar"
	"github.com/ckptsidecar/ckptsidecar/internal/ipc/endpoint"
	"github.com/ckptsidecar/ckptsidecar/internal/monitor"
)

// Config is every setting of the daemon. settings names them for the file and
// the environment, and documents each.
type Config struct {
	Database  string
	Socket    string
	MultiUser bool

	DatabaseMode FileMode
	SocketMode   FileMode
	SocketGroup  string
	AdminGroup   string

	LogFormat string
	LogLevel  string

	MaxBody             Size
	MaxDatabase         Size
	OwnerBytes          Size
	OwnerSavesPerSecond int
	OwnerConnections    int
	Connections         int
	LiveStates          Size
	WriteTimeout        ckpt.Duration

	RetentionInterval ckpt.Duration
	MonitorInterval   ckpt.Duration
	StopTimeout       ckpt.Duration
}

// The forms of the log.
const (
	LogText = "text"
	LogJSON = "json"
)

// Default is the configuration of a system service, or of a user's own daemon,
// before any file was read. Where the environment names no folder for it, the
// files stay unnamed, and Check says what to do.
func Default(system bool, env Environment) Config {
	p := defaultPaths(system, env)
	c := Config{
		Database:            p.database,
		Socket:              endpoint.Default(system),
		MultiUser:           system || servesAll(),
		DatabaseMode:        0o600,
		SocketMode:          0o600,
		LogFormat:           LogText,
		LogLevel:            "info",
		MaxBody:             64 << 20,
		OwnerSavesPerSecond: 0,
		OwnerConnections:    1024,
		Connections:         4096,
		LiveStates:          64 << 20,
		WriteTimeout:        ckpt.Duration(10 * time.Second),
		RetentionInterval:   ckpt.Duration(time.Minute),
		MonitorInterval:     ckpt.Duration(monitor.DefaultInterval),
		StopTimeout:         ckpt.Duration(5 * time.Second),
	}
	if system {
		c.DatabaseMode = 0o640 // auditors' group reads
		c.SocketMode = 0o660
		c.SocketGroup = serviceGroup
	}
	return c
}

// serviceGroup is the group whose members may speak to the system service.
const serviceGroup = "ckptsidecar"

// Check refuses settings that cannot work, naming the setting as the file does.
func (c *Config) Check() error {
	switch {
	case c.Database == "":
		return badSetting("database", "is not set, and the environment ("+homeVariables+") names no folder for it: give --db FILE")
	case !filepath.IsAbs(c.Database):
		return badSetting("database", fmt.Sprintf("is %q: give an absolute path, because a service has no working folder to speak of", c.Database))
	case c.Socket == "":
		return badSetting("socket", "is not set, and the environment ("+homeVariables+") names no folder for it: give --socket PATH")
	case c.LogFormat != LogText && c.LogFormat != LogJSON:
		return badSetting("log.format", fmt.Sprintf("is %q: it is text or json", c.LogFormat))
	case c.SocketMode&^0o660 != 0 || c.SocketMode&0o600 != 0o600:
		return badSetting("access.socket_mode", fmt.Sprintf("is %v: it is 0600, or 0660 to let a group in", c.SocketMode))
	case c.DatabaseMode != 0o600 && c.DatabaseMode != 0o640:
		return badSetting("access.database_mode", fmt.Sprintf("is %v: it is 0600, or 0640 to let a group of auditors read", c.DatabaseMode))
	}
	if _, err := c.Level(); err != nil {
		return err
	}
	return c.checkLimits()
}

func (c *Config) checkLimits() error {
	const most = Size(1 << 30) // SQLite's own limit of a value
	switch {
	case c.MaxBody < 1<<10 || c.MaxBody > most:
		return badSetting("limits.max_body", fmt.Sprintf("is %v: it must be between 1KiB and 1GiB", c.MaxBody))
	case c.MaxDatabase != 0 && c.MaxDatabase < 1<<20:
		return badSetting("limits.max_database", fmt.Sprintf("is %v: it must be at least 1MiB, or 0 for no limit", c.MaxDatabase))
	case c.OwnerBytes < 0:
		return badSetting("limits.owner_bytes", "is below zero: say a size, or 0 for no limit")
	case c.OwnerSavesPerSecond < 0:
		return badSetting("limits.owner_saves_per_second", "is below zero: say a number, or 0 for no limit")
	case c.OwnerConnections < 1:
		return badSetting("limits.owner_connections", "must be at least 1")
	case c.Connections < 1:
		return badSetting("limits.connections", "must be at least 1")
	case c.LiveStates != 0 && c.LiveStates < 1<<20:
		return badSetting("limits.live_states", fmt.Sprintf("is %v: it must be at least 1MiB, or 0 for none", c.LiveStates))
	}
	return c.checkTimes()
}

func (c *Config) checkTimes() error {
	for _, t := range []struct {
		key         string
		is          ckpt.Duration
		least, most time.Duration
	}{
		{"limits.write_timeout", c.WriteTimeout, 100 * time.Millisecond, 5 * time.Minute},
		{"retention.interval", c.RetentionInterval, time.Second, ckpt.Day},
		{"monitor.interval", c.MonitorInterval, 50 * time.Millisecond, time.Minute},
		{"stop_timeout", c.StopTimeout, 100 * time.Millisecond, 5 * time.Minute},
	} {
		if is := time.Duration(t.is); is < t.least || is > t.most {
			return badSetting(t.key, fmt.Sprintf("is %v: it must be between %v and %v",
				t.is, ckpt.Duration(t.least), ckpt.Duration(t.most)))
		}
	}
	return nil
}

// Level is the level below which nothing is logged.
func (c *Config) Level() (slog.Level, error) {
	var l slog.Level
	if err := l.UnmarshalText([]byte(c.LogLevel)); err != nil {
		return 0, badSetting("log.level", fmt.Sprintf("is %q: it is debug, info, warn or error", c.LogLevel))
	}
	return l, nil
}

func badSetting(key, what string) error {
	return fmt.Errorf("the setting %s %s", key, what)
}
