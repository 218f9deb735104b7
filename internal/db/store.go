package db

import (
	"context"
	"errors"
	"os"
	"sync/atomic"
	"time"

	ckpt "github.com/ckptsidecar/ckptsidecar"
	"github.com/ckptsidecar/ckptsidecar/internal/db/sqlite"
)

// What the engine answers where a start or a write must not go on.
type (
	// OperatorError is what stops a start until somebody has mended it.
	OperatorError = sqlite.OperatorError
	// FatalError is a fail-stop: the store has stopped acknowledging because what
	// is on disk is not known any more. A fresh process decides.
	FatalError = sqlite.FatalError
)

// ErrLocked is the error of Open where another daemon has the database.
var ErrLocked = sqlite.ErrLocked

// SQLiteVersion is the version of the SQLite that is built in.
func SQLiteVersion() string { return sqlite.Version() }

// Store is one open database.
type Store struct {
	*base
	*drifts
	*saves
	*threads
	*archive
	events   changes
	keysSeen atomic.Pointer[keyPlace] // where Expire goes on
	closed   atomic.Bool              // Close was called
	noted    time.Time                // when maintenance last noted the head of the audit log
}

// Open opens the database, makes it where there is none, brings its schema up
// to date, and checks it where the last daemon stopped because of a fault.
//
// Its errors are ErrLocked where another daemon has the database, and
// *OperatorError where somebody must mend something first.
func Open(ctx context.Context, opt Options) (_ *Store, err error) {
	opt.setDefaults()
	if opt.Retention == nil {
		return nil, errors.New("db.Open: Options.Retention is required")
	}
	b := &base{opt: opt, log: opt.Log, statements: map[string]statement{}}
	v := &saves{&drifts{base: b}}
	s := &Store{base: b, drifts: v.drifts, saves: v, threads: &threads{v}, archive: &archive{v.drifts, graphImported}, noted: time.Now()}
	s.forgetPast, s.onDamage = s.watches.drop, s.findDamage
	s.live.most, s.watches.most = opt.LiveBytes, opt.Watches
	s.engine, err = sqlite.Open(ctx, sqlite.Options{
		Path: opt.Path, Mode: opt.Mode, Schema: schemaOf(opt.Now), Hooks: hooks{s}, Now: opt.Now, MaxBytes: opt.MaxBytes,
		WriteTimeout: opt.WriteTimeout, MaxWaiting: opt.MaxWaiting, MaxWaitBytes: opt.MaxWaitBytes, Readers: opt.Readers,
		ReserveBytes: opt.ReserveBytes, Log: opt.Log, Lock: opt.lock, Restoring: opt.lock != nil,
	})
	if err != nil {
		return nil, err
	}
	s.ro = s.engine.Readers()
	for _, step := range []func(context.Context) error{s.load, s.engine.Start, s.startUp} {
		if err := step(ctx); err != nil {
			_ = s.engine.Abandon()
			return nil, err
		}
	}
	return s, nil
}

// load reads what the store keeps in memory, and looks whether what nobody may
// rewrite by hand is as it was left.
func (s *Store) load(ctx context.Context) error {
	for _, step := range []func(context.Context) error{s.loadUsage, s.loadDamages, s.lookAtCopy, s.restoreGuards, s.checkHead} {
		if err := step(ctx); err != nil {
			return s.engine.OpenError(err)
		}
	}
	return nil
}

// startUp proves by a row that the store can write.
func (s *Store) startUp(ctx context.Context) error {
	if err := s.recordStart(); err != nil {
		return err
	}
	s.lookAtRoom()
	if err := s.ro.GetContext(ctx, &s.id, `SELECT value FROM meta WHERE key = 'database_id'`); err != nil {
		return s.engine.OpenError(err)
	}
	s.NoteHead("start")
	return nil
}

// recordStart writes a row and so shows that a save would succeed.
func (s *Store) recordStart() error {
	if s.engine.ReadOnly() != "" {
		return nil
	}
	detail := map[string]any{"version": s.opt.Version}
	if doubt := s.trust.problem(); doubt != "" {
		detail["doubt"] = doubt
	}
	if len(s.trust.guards) > 0 {
		detail["guards"] = s.trust.guards
	}
	err := s.write(&op{claim: sqlite.GoesOn, apply: func(tx *tx) error {
		return tx.audit(auditEntry{Who: daemon, PID: os.Getpid(), Action: "start", Outcome: outcomeDone, Detail: detail})
	}})
	if ckpt.CodeOf(err) == ckpt.CodeStorageFull {
		s.log.Warn("no room for a new row: serving reads and deletes until there is", "path", s.opt.Path)
		return nil
	}
	if sqlite.Classify(err) == sqlite.ClassOperator { // a file that only this user may not write is opened without a word
		return s.engine.OpenError(err)
	}
	return err
}

// Newest is the time of the newest audit row: the database has seen no later one.
func (s *Store) Newest(ctx context.Context) (ckpt.Time, error) {
	var at ckpt.Time
	err := s.ro.GetContext(ctx, &at, `SELECT at FROM audit_log ORDER BY n DESC LIMIT 1`)
	return at, sqlite.ReadError(err)
}

// Close ends the writer after what waits in it, and closes the database. What
// stays are the database with all that was saved, an empty write-ahead log and
// its index, so that a read-only auditor can still read, and the reserve.
func (s *Store) Close() error {
	if s.closed.Swap(true) {
		return s.engine.Close()
	}
	if err := s.keepUsage(); err != nil {
		s.log.Warn("what was counted for quotas could not be kept: it is counted anew at the next start", "error", err)
	}
	s.engine.Drain()
	s.NoteHead("stop")
	return s.engine.Close()
}

// Maintain does the maintenance until the context ends or the store must stop: it
// watches the files, copies the log and gives free pages back. It answers a
// *FatalError at a fail-stop.
func (s *Store) Maintain(ctx context.Context) error { return s.engine.Maintain(ctx) }

// Upkeep does at once what Maintain does when it is due: it copies the log and
// gives free pages back.
func (s *Store) Upkeep(ctx context.Context) error { return s.engine.Upkeep(ctx) }

// Failed is closed when the store has stopped acknowledging; the process
// should end, and a fresh one decide.
func (s *Store) Failed() <-chan struct{} { return s.engine.Failed() }

// Fault is why the store has stopped acknowledging, nil while it has not.
func (s *Store) Fault() error { return s.engine.Fault() }

// Stalled is for how long the writer has had work and not got on with it.
func (s *Store) Stalled() time.Duration { return s.engine.Stalled() }

// Behind is for how long the writer has had work and committed nothing of it: it
// stands still, or it is kept from its lock, however often it tries.
func (s *Store) Behind() time.Duration { return s.engine.Behind() }

// GiveUp is a fail-stop of a writer that has been behind for too long.
func (s *Store) GiveUp(behind time.Duration) { s.engine.GiveUp(behind) }
