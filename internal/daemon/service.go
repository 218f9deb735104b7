package daemon

import (
	"context"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	ckpt "github.com/ckptsidecar/ckptsidecar"
	"github.com/ckptsidecar/ckptsidecar/internal/db"
	"github.com/ckptsidecar/ckptsidecar/internal/drift/observer"
	"github.com/ckptsidecar/ckptsidecar/internal/fleet/host"
	"github.com/ckptsidecar/ckptsidecar/internal/ipc/receiver"
	"github.com/ckptsidecar/ckptsidecar/internal/ipc/server"
	"github.com/ckptsidecar/ckptsidecar/internal/monitor"
	"github.com/ckptsidecar/ckptsidecar/internal/notify"
	"github.com/ckptsidecar/ckptsidecar/internal/retention"
	"github.com/ckptsidecar/ckptsidecar/internal/survey"
)

// service holds the parts of a running daemon, in the order of starting.
type service struct {
	daemon    *Daemon
	manager   Manager
	processes monitor.Processes
	log       *slog.Logger
	inherited net.Listener // from systemd, nil if there is none
	endpoint  string       // where the daemon listens
	guard     atomic.Pointer[retention.Guard]
	store     *db.Store
	settings  atomic.Pointer[[]survey.Setting] // the settings in use, for status requests
	drift     observer.Watcher
	worker    *retention.Worker
	monitor   *monitor.Monitor
	backups   *backups
	archives  *archives
	fleet     *host.Member
	notifier  atomic.Pointer[notify.Worker]
	listener  net.Listener
	server    *server.Server

	metrics http.Handler
	scrapes scrapes

	otlp           ckpt.OTLPStatus // where the daemon receives OpenTelemetry spans
	spanListeners  []net.Listener
	inheritedSpans []net.Listener     // from systemd, at most one
	receiver       *receiver.Receiver // nil if no spans are received

	serving chan error // the result of serving
	upkeep  chan error // the result of the store's maintenance
	stuck   chan error // why the daemon gives up the writer or the socket

	workers   sync.WaitGroup // the background loops
	endUpkeep context.CancelFunc
	paced     sync.WaitGroup // the loops that a reload starts again
	endPaced  context.CancelFunc
}

// Daemon is the whole service. Config must have been checked; the other fields can be zero.
type Daemon struct {
	Config  Config
	Version string
	Log     *slog.Logger
	Level   *slog.LevelVar   // of Log, for a reload to change; nil if it cannot be changed
	Now     func() time.Time // the wall clock; nil means the system's
	Hurry   <-chan struct{}  // closed when a stop must not wait any longer
	Manager Manager          // the program that started the daemon; nil for a person

	// Backup makes a verified copy of the database and gives it a name. If it is nil, this
	// process makes the copy, and then keeps some of the memory that the copy needs.
	Backup func(ctx context.Context, database, out string) error
	// Restore restores a backup as a new database, and verifies it; nil for the daemon's own process.
	Restore func(ctx context.Context, backup, database string) error

	Reload <-chan struct{}        // each message asks to read the settings again
	Load   func() (Config, error) // reads the settings; nil if they cannot be read again
}

// The log messages by which other programs know what happened. MessageEnded is for a
// program that runs a Daemon whose error no person sees.
const (
	messageReady   = "ready"
	messageStopped = "stopped"
	MessageEnded   = "ended"
)
