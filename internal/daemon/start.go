package daemon

import (
	"cmp"
	"context"
	"errors"
	"os"
	"path/filepath"
	"time"

	ckpt "github.com/ckptsidecar/ckptsidecar"
	"github.com/ckptsidecar/ckptsidecar/internal/db"
	"github.com/ckptsidecar/ckptsidecar/internal/drift"
	"github.com/ckptsidecar/ckptsidecar/internal/ipc/endpoint"
	"github.com/ckptsidecar/ckptsidecar/internal/monitor"
	"github.com/ckptsidecar/ckptsidecar/internal/osfile"
	"github.com/ckptsidecar/ckptsidecar/internal/resume"
	"github.com/ckptsidecar/ckptsidecar/internal/retention"
	"github.com/ckptsidecar/ckptsidecar/internal/secrets"
)

// start takes the steps of the package comment. If a step fails, s has what was started
// until then.
func (s *service) start(ctx context.Context) error {
	for _, step := range []func(context.Context) error{
		s.takeSocket, s.checkIdentity, s.openDatabase, s.openEndpoint, s.openReceiver, s.openScrapes, s.startWorkers, s.startServing,
	} {
		if err := step(ctx); err != nil {
			return err
		}
	}
	s.warnOfPlace() // a daemon that does not start says why in one line
	return nil
}

func (s *service) checkIdentity(context.Context) error {
	if !s.daemon.Config.MultiUser {
		return nil
	}
	return errors.Join(endpoint.CheckIdentityMap(), checkDataFolder(filepath.Dir(s.daemon.Config.Database)))
}

// openDatabase opens the store, and then creates the clock guard from the newest time in
// the store.
func (s *service) openDatabase(ctx context.Context) error {
	c := &s.daemon.Config
	s.drift = drift.New()
	var err error
	s.store, err = db.Open(ctx, db.Options{
		Path:          c.Database,
		Mode:          os.FileMode(c.DatabaseMode),
		Retention:     retention.Plan,
		Resume:        resume.Make,
		Ask:           func(p *ckpt.Plan) (question, reason string) { return resume.Question(p), resume.Reason(p) },
		Fits:          drift.Fits,
		Secrets:       secrets.Scan{},
		Drift:         s.drift,
		Watches:       c.WatchedRuns,
		BeatsKept:     cmp.Or(time.Duration(c.Heartbeats), -1),
		Processes:     &s.processes,
		Now:           s.daemon.Now,
		Trusted:       s.trusted,
		MaxBytes:      int64(c.MaxDatabase),
		MaxOwnerBytes: int64(c.OwnerBytes),
		FreeFloor:     int64(c.FreeFloor),
		OwnerMinimum:  int64(c.OwnerMinimum),
		MaxAgentFiles: int64(c.AgentFiles),
		WriteTimeout:  time.Duration(c.WriteTimeout),
		ReserveBytes:  orNone(c.Reserve),
		LiveBytes:     orNone(c.LiveStates),
		Log:           s.log,
		Version:       s.daemon.Version,
	})
	if err != nil {
		return err
	}
	newest, err := s.store.Newest(ctx)
	s.guard.Store(retention.NewGuard(retention.GuardSettings{Wall: s.daemon.Now, Log: s.log, Newest: newest.Time}))
	if err != nil {
		return err
	}
	if err := s.store.SetDaemonPolicy([]byte(c.Policy)); err != nil {
		return err
	}
	return s.tellIdentities()
}

// orNone returns a setting in the form of the store, which uses its default for 0.
func orNone(s Size) int64 {
	if s == 0 {
		return -1
	}
	return int64(s)
}

// trusted returns the time as the clock guard sees it. Until the database has reported
// its newest time, there is no guard, and the clock is not trusted.
func (s *service) trusted() time.Time {
	if guard := s.guard.Load(); guard != nil {
		return guard.Trusted()
	}
	return time.Time{}
}

// startWorkers starts the background loops. Their context is not the caller's: the loops
// end after the requests, not together with them.
func (s *service) startWorkers(context.Context) error {
	c := &s.daemon.Config
	s.worker = &retention.Worker{
		Store: s.store, Guard: s.guard.Load(), Log: s.log, Interval: time.Duration(c.RetentionInterval), KeyKeep: time.Duration(c.RetentionKeys),
	}
	s.monitor = &monitor.Monitor{
		Store: s.store, Processes: &s.processes, Log: s.log, Interval: time.Duration(c.MonitorInterval),
	}
	s.backups = newBackups(c, s.log, s.daemon.Now)
	s.backups.made = func() { s.store.NoteHead("backup") }
	s.backups.failed = func(ctx context.Context, message string) {
		s.announce(ctx, ckpt.NoticeBackup, message)
	}
	s.archives = &archives{store: s.store, log: s.log}
	s.archives.set(c)
	s.setHooks()
	if s.daemon.Backup != nil {
		s.backups.copy = s.daemon.Backup
	}
	if s.daemon.Restore != nil {
		s.backups.restore = s.daemon.Restore
	}
	s.upkeep, s.stuck = make(chan error, 1), make(chan error, 2)
	ctx, cancel := context.WithCancel(context.Background())
	s.endUpkeep = cancel
	s.workers.Go(func() { s.upkeep <- s.store.Maintain(ctx) })
	s.workers.Go(func() {
		(&ticker{tick: s.store.TickDrift, every: time.Duration(c.DriftInterval), log: s.log, fails: "runs could not be checked for drift"}).run(ctx)
	})
	if c.Heartbeats > 0 {
		keep := func(ctx context.Context) error { return s.store.KeepBeats(ctx, false) }
		s.workers.Go(func() {
			(&ticker{tick: keep, every: time.Second, log: s.log, fails: "heartbeats could not be written"}).run(ctx)
		})
	}
	s.workers.Go(func() { _ = s.watchStorage(ctx) })
	s.workers.Go(func() { s.sweepFiles(ctx) })
	s.startFleet(ctx)
	s.workers.Go(func() {
		if err := s.watchSocket(ctx); err != nil {
			s.stuck <- err
		}
	})
	s.startPaced()
	return nil
}

// startPaced starts the loops whose pace is a setting. They log their own errors and
// continue.
func (s *service) startPaced() {
	ctx, cancel := context.WithCancel(context.Background())
	s.endPaced = cancel
	s.paced.Go(func() { _ = s.worker.Run(ctx) })
	s.paced.Go(func() { _ = s.monitor.Run(ctx) })
	s.paced.Go(func() { _ = s.backups.Run(ctx) })
	s.paced.Go(func() { _ = s.backups.RunDrills(ctx) })
	s.paced.Go(func() { _ = s.archives.Run(ctx) })
	s.paced.Go(func() { _ = s.notifier.Load().Run(ctx) })
	s.paced.Go(func() {
		if err := s.watch(ctx); err != nil {
			s.stuck <- err
		}
	})
}

func (s *service) startServing(context.Context) error {
	s.server = s.newServer()
	s.serving = make(chan error, 1)
	go func() { s.serving <- s.server.Serve(context.Background(), s.listener) }()
	ctx, cancel := context.WithCancel(context.Background())
	endUpkeep := s.endUpkeep
	s.endUpkeep = func() { cancel(); endUpkeep() }
	s.startReceiver(ctx)
	s.startScrapes(s.metrics)
	s.workers.Go(func() {
		newGiver(int64(s.daemon.Config.Garbage), func() int64 { return s.server.Stats().Answered }).run(ctx)
	})
	return nil
}

// warnOfPlace says if the database is where a reboot removes it, or where other hosts can write to it.
func (s *service) warnOfPlace() {
	path := s.daemon.Config.Database
	memory, network := osfile.FileSystem(filepath.Dir(path))
	switch {
	case memory:
		s.log.Warn("the database is on a file system in memory, so a reboot loses every checkpoint: put it on a disk", "database", path)
	case network:
		s.log.Warn("the database is on a network file system, whose locks SQLite cannot trust: put it on a local disk", "database", path)
	}
}
