package daemon

import (
	"fmt"
	"log/slog"
	"time"

	ckpt "github.com/ckptsidecar/ckptsidecar"
	"github.com/ckptsidecar/ckptsidecar/internal/fleet"
	"github.com/ckptsidecar/ckptsidecar/internal/ipc/endpoint"
	"github.com/ckptsidecar/ckptsidecar/internal/monitor"
	"github.com/ckptsidecar/ckptsidecar/internal/otlp/observed"
	"github.com/ckptsidecar/ckptsidecar/internal/retention"
)

// Config is every setting of the daemon. settings names them for the file and
// the environment, and documents each.
type Config struct {
	Database  string
	Socket    string
	MultiUser bool

	Policy PolicyText // for the agents of all owners
	Notify NotifyText // who gets notices

	DatabaseMode FileMode
	SocketMode   FileMode
	SocketGroup  string
	AdminGroup   string

	BackupInterval ckpt.Duration
	BackupKeep     int
	BackupFolder   string

	BackupAfter        string
	BackupAfterTimeout ckpt.Duration
	BackupDrill        ckpt.Duration

	LogFormat string
	LogLevel  string

	MaxBody              Size
	MaxDatabase          Size
	Reserve              Size
	OwnerBytes           Size
	FreeFloor            Size
	OwnerMinimum         Size
	AgentFiles           Size
	OwnerWritesPerSecond int
	OwnerConnections     int
	Connections          int
	LiveStates           Size
	Garbage              Size
	WriteTimeout         ckpt.Duration
	StuckAfter           ckpt.Duration

	RetentionInterval ckpt.Duration
	RetentionKeys     ckpt.Duration
	AuditKeep         ckpt.Duration
	AuditFolder       string
	MonitorInterval   ckpt.Duration
	Heartbeats        ckpt.Duration
	DriftInterval     ckpt.Duration
	WatchedRuns       int
	StopTimeout       ckpt.Duration

	MetricsListen string

	FleetEngine   string // the file with the engine's URL
	FleetName     string
	FleetInterval ckpt.Duration
	FleetBatch    Size
	FleetShip     string // which agents are shipped: fleet.ShipAll or fleet.ShipPolicy
	FleetAssume   bool   // assume that the engine replicates, whatever it reports
	FleetKeys     string // the file with the keys that encrypt what is shipped
	FleetLease    ckpt.Duration
	FleetGrace    ckpt.Duration

	FleetPrincipals NamesText // the principals of this host's users in the fleet
	FleetRealms     NamesText // ranges of uids that a directory assigns on every host

	OTLP         bool
	OTLPLoopback string
	OTLPContent  string

	OTLPStrangers int // connections to OTLPLoopback that have shown no token yet
	OTLPTokenTime ckpt.Duration

	from map[string]string // the source of each setting that is not its default
}

// The forms of the log.
const (
	LogAuto = "auto" // the form that suits the destination of the log
	LogText = "text"
	LogJSON = "json"
)

// Default returns the configuration of a system service, or of a user's own daemon, before any
// file is read. If the environment names no folder, the files have no names, and Check says what
// to do.
func Default(system bool, env Environment) Config {
	p := defaultPaths(system, env)
	c := Config{
		Database:             p.database,
		Socket:               endpoint.Default(system),
		MultiUser:            system || servesAll(),
		DatabaseMode:         0o600,
		SocketMode:           0o600,
		BackupKeep:           3,
		BackupAfterTimeout:   ckpt.Duration(time.Hour),
		LogFormat:            LogAuto,
		LogLevel:             "info",
		MaxBody:              64 << 20,
		Reserve:              4 << 20,
		OwnerWritesPerSecond: 0,
		OwnerConnections:     1024,
		Connections:          4096,
		LiveStates:           64 << 20,
		Garbage:              128 << 20,
		WriteTimeout:         ckpt.Duration(10 * time.Second),
		StuckAfter:           ckpt.Duration(2 * time.Minute),
		RetentionInterval:    ckpt.Duration(time.Minute),
		RetentionKeys:        ckpt.Duration(retention.DefaultKeyKeep),
		MonitorInterval:      ckpt.Duration(monitor.DefaultInterval),
		Heartbeats:           ckpt.Duration(30 * time.Second),
		DriftInterval:        ckpt.Duration(10 * time.Second),
		WatchedRuns:          4000,
		StopTimeout:          ckpt.Duration(5 * time.Second),
		AgentFiles:           1 << 30,
		FleetInterval:        ckpt.Duration(100 * time.Millisecond),
		FleetBatch:           8 << 20,
		FleetShip:            fleet.ShipAll,
		FleetLease:           ckpt.Duration(15 * time.Second),
		FleetGrace:           ckpt.Duration(5 * time.Second),
		OwnerMinimum:         16 << 20,
		OTLPContent:          string(observed.Hash),
		OTLPStrangers:        256,
		OTLPTokenTime:        ckpt.Duration(5 * time.Second),
	}
	if system {
		c.DatabaseMode = 0o640 // the auditors' group can read it
		c.SocketMode = 0o660
		c.SocketGroup = serviceGroup
		c.BackupInterval, c.BackupDrill = ckpt.Duration(ckpt.Day), ckpt.Duration(7*ckpt.Day)
		c.MaxDatabase, c.OwnerBytes, c.FreeFloor = 64<<30, 16<<30, 1<<30 // many owners share it
		c.OwnerWritesPerSecond = 5000
	}
	return c
}

// Level returns the lowest level that is logged.
func (c *Config) Level() (slog.Level, error) {
	var l slog.Level
	if err := l.UnmarshalText([]byte(c.LogLevel)); err != nil {
		return 0, fmt.Errorf("%q is not a level: use debug, info, warn or error", c.LogLevel)
	}
	return l, nil
}
