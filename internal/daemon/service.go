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

// service is what a running daemon is made of, in the order of starting.
type service struct {
	daemon    *Daemon
	manager   Manager
	processes monitor.Processes
	log       *slog.Logger
	inherited net.Listener // from systemd, nil where there is none
	endpoint  string       // where the daemon listens
	guard     atomic.Pointer[retention.Guard]
	store     *db.Store
	settings  atomic.Pointer[[]survey.Setting] // those in force, for who asks
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

	otlp           ckpt.OTLPStatus // where OpenTelemetry's spans are taken
	spanListeners  []net.Listener
	inheritedSpans []net.Listener     // from systemd, at most one
	receiver       *receiver.Receiver // nil where none are

	serving chan error // how serving ended
	upkeep  chan error // how the store's maintenance ended
	stuck   chan error // why the writer is given up, or the socket

	workers   sync.WaitGroup // the upkeep
	endUpkeep context.CancelFunc
	paced     sync.WaitGroup // the loops that a reload starts anew
	endPaced  context.CancelFunc
}

// Daemon is the whole service. Config must have been checked; the other fields may be zero.
type Daemon struct {
	Config  Config
	Version string
	Log     *slog.Logger
	Level   *slog.LevelVar   // of Log, for a reload to change; nil where it cannot be
	Now     func() time.Time // the wall clock; nil means the system's
	Hurry   <-chan struct{}  // closed when a stop shall wait for nobody any more
	Manager Manager          // who started it; nil for a person

	// Backup makes a verified copy of the database and gives it a name. nil makes
	// it in this process, which then keeps some of the memory that it takes.
	Backup func(ctx context.Context, database, out string) error

	Reload <-chan struct{}        // each one asks to read the settings anew
	Load   func() (Config, error) // reads them; nil where they cannot be
}

// The messages by which others know what happened. MessageEnded is for who runs
// a Daemon where nobody sees its error.
const (
	messageReady   = "ready"
	messageStopped = "stopped"
	MessageEnded   = "ended"
)
