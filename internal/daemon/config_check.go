package daemon

import (
	"errors"
	"fmt"
	"path/filepath"
	"time"

	ckpt "github.com/ckptsidecar/ckptsidecar"
	"github.com/ckptsidecar/ckptsidecar/internal/db"
	"github.com/ckptsidecar/ckptsidecar/internal/drift"
	"github.com/ckptsidecar/ckptsidecar/internal/wellformed"
)

// Check refuses settings that cannot work. It lists each of them by its name in the file, with its
// source.
func (c *Config) Check() error {
	k := checking{c: c}
	k.places()
	k.access()
	k.log()
	k.limits()
	k.times()
	k.backups()
	k.policy()
	k.metrics()
	k.otlp()
	k.fleet()
	return errors.Join(k.mistakes...)
}

type checking struct {
	c        *Config
	mistakes []error
}

// bad records a mistake.
func (k *checking) bad(key, format string, args ...any) {
	what := fmt.Sprintf(format, args...)
	if from := k.c.from[key]; from != "" {
		k.mistakes = append(k.mistakes, fmt.Errorf("%s: the setting %s %s", from, key, what))
		return
	}
	k.mistakes = append(k.mistakes, fmt.Errorf("the setting %s %s", key, what))
}

func (k *checking) places() {
	c := k.c
	switch {
	case c.Database == "":
		k.bad("database", "is not set, and the environment (%s) names no folder for it: give --db FILE", homeVariables)
	case !filepath.IsAbs(c.Database):
		k.bad("database", "is %q: give an absolute path, because a service has no working folder of its own", c.Database)
	}
	if c.Socket == "" {
		k.bad("socket", "is not set, and the environment (%s) names no folder for it: give --socket PATH", homeVariables)
	}
}

func (k *checking) access() {
	c := k.c
	if c.SocketMode&^0o660 != 0 || c.SocketMode&0o600 != 0o600 {
		k.bad("access.socket_mode", "is %v: it must be 0600, or 0660 to let a group in", c.SocketMode)
	}
	if c.DatabaseMode != 0o600 && c.DatabaseMode != 0o640 {
		k.bad("access.database_mode", "is %v: it must be 0600, or 0640 to let a group of auditors read", c.DatabaseMode)
	}
}

func (k *checking) log() {
	c := k.c
	if c.LogFormat != LogAuto && c.LogFormat != LogText && c.LogFormat != LogJSON {
		k.bad("log.format", "is %q: it must be auto, text or json", c.LogFormat)
	}
	if _, err := c.Level(); err != nil {
		k.bad("log.level", "is wrong: %v", err)
	}
}

func (k *checking) limits() {
	const most = Size(1 << 30) // SQLite's own limit for a value
	c := k.c
	if c.MaxBody < 1<<10 || c.MaxBody > most {
		k.bad("limits.max_body", "is %v: it must be between 1KiB and 1GiB", c.MaxBody)
	}
	if c.MaxDatabase != 0 && c.MaxDatabase < 1<<20 {
		k.bad("limits.max_database", "is %v: it must be at least 1MiB, or 0 for no limit", c.MaxDatabase)
	}
	if c.Reserve != 0 && c.Reserve < 1<<20 {
		k.bad("limits.reserve", "is %v: it must be at least 1MiB, or 0 for none", c.Reserve)
	}
	if c.Garbage != 0 && c.Garbage < 1<<20 {
		k.bad("limits.garbage", "is %v: it must be at least 1MiB, or 0 to leave it to GOGC", c.Garbage)
	}
	if c.LiveStates != 0 && c.LiveStates < 1<<20 {
		k.bad("limits.live_states", "is %v: it must be at least 1MiB, or 0 for none", c.LiveStates)
	}
	if c.OwnerBytes < 0 {
		k.bad("limits.owner_bytes", "is negative: give a size, or 0 for no limit")
	}
	if c.AgentFiles < 0 {
		k.bad("limits.agent_files", "is negative: give a size, or 0 for no limit")
	}
	if c.FreeFloor < 0 {
		k.bad("limits.free_floor", "is negative: give a size, or 0 for none")
	}
	if c.OwnerMinimum < 0 {
		k.bad("limits.owner_minimum", "is negative: give a size, or 0 for none")
	}
	if c.OwnerWritesPerSecond < 0 {
		k.bad("limits.owner_writes_per_second", "is negative: give a number, or 0 for no limit")
	}
	if c.OwnerConnections < 1 {
		k.bad("limits.owner_connections", "must be at least 1")
	}
	if c.Connections < 1 {
		k.bad("limits.connections", "must be at least 1")
	}
	if c.WatchedRuns < 1 || c.WatchedRuns > 1_000_000 {
		k.bad("drift.watched_runs", "is %d: it must be between 1 and 1000000", c.WatchedRuns)
	}
}

func (k *checking) times() {
	c := k.c
	k.between("limits.write_timeout", c.WriteTimeout, 100*time.Millisecond, 5*time.Minute)
	k.between("retention.interval", c.RetentionInterval, time.Second, ckpt.Day)
	k.between("retention.keys", c.RetentionKeys, time.Hour, 3650*ckpt.Day)
	if c.AuditKeep != 0 {
		k.between("audit.keep", c.AuditKeep, db.ArchiveMinAge, 3650*ckpt.Day)
	}
	k.between("monitor.interval", c.MonitorInterval, 50*time.Millisecond, time.Minute)
	if c.Heartbeats != 0 {
		k.between("monitor.heartbeats", c.Heartbeats, time.Second, 10*time.Minute)
	}
	k.between("drift.interval", c.DriftInterval, 100*time.Millisecond, 10*time.Minute)
	k.between("stop_timeout", c.StopTimeout, 100*time.Millisecond, 5*time.Minute)
	if c.StuckAfter != 0 {
		k.between("limits.stuck_after", c.StuckAfter, 5*time.Second, ckpt.Day)
	}
}

func (k *checking) backups() {
	c := k.c
	if c.BackupInterval != 0 {
		k.between("backup.interval", c.BackupInterval, time.Minute, 365*ckpt.Day)
	}
	if c.BackupKeep < 1 || c.BackupKeep > 10000 {
		k.bad("backup.keep", "is %d: it must be between 1 and 10000; for no backups set backup.interval to 0s", c.BackupKeep)
	}
	k.between("backup.after_timeout", c.BackupAfterTimeout, time.Second, 7*ckpt.Day)
	if c.BackupAfter != "" && !filepath.IsAbs(c.BackupAfter) {
		k.bad("backup.after", "is %q: give the absolute path of one program, without arguments; a script can hold them", c.BackupAfter)
	}
	if c.BackupDrill != 0 {
		k.between("backup.drill", c.BackupDrill, time.Minute, 365*ckpt.Day)
	}
	if c.AuditFolder != "" && !filepath.IsAbs(c.AuditFolder) {
		k.bad("audit.folder", "is %q: give an absolute path, because a service has no working folder of its own", c.AuditFolder)
	}
	if c.BackupFolder != "" && !filepath.IsAbs(c.BackupFolder) {
		k.bad("backup.folder", "is %q: give an absolute path, because a service has no working folder of its own", c.BackupFolder)
	}
}

// policy checks the parts of the policy that only the drift detectors can check.
func (k *checking) policy() {
	if k.c.Policy == "" {
		return
	}
	p, err := wellformed.ParsePolicy([]byte(k.c.Policy))
	if err == nil {
		err = drift.New().Check(&p)
	}
	if err != nil {
		k.bad("policy", "is wrong: %s", ckpt.AsError(err).Message)
	}
}

func (k *checking) between(key string, is ckpt.Duration, least, most time.Duration) {
	if d := time.Duration(is); d < least || d > most {
		k.bad(key, "is %v: it must be between %v and %v", is, ckpt.Duration(least), ckpt.Duration(most))
	}
}
