package ledger

import (
	"context"
	"errors"
	"os"
	"time"

	ckpt "github.com/ckptsidecar/ckptsidecar"
	"github.com/ckptsidecar/ckptsidecar/internal/db/blob"
	"github.com/ckptsidecar/ckptsidecar/internal/db/sqlite"
	"github.com/ckptsidecar/ckptsidecar/internal/db/usage"
	"github.com/jmoiron/sqlx"
)

// NewCore makes a core whose database is not open yet.
func NewCore(opt Options) (*Core, error) {
	opt.SetDefaults()
	if opt.Retention == nil {
		return nil, errors.New("db.Open: Options.Retention is required")
	}
	s := &Core{Opt: opt, Log: opt.Log, RunCache: runCache{}, noted: time.Now()}
	s.States = blob.NewStates(opt.LiveBytes)
	s.Preparer = blob.Preparer{States: s.States, Scan: opt.Secrets, Mode: s.SecretsMode, Reading: s.Reading, Timeout: opt.WriteTimeout, Log: opt.Log}
	s.Usage = &usage.Meter{
		Limits: usage.Limits{MaxOwnerBytes: opt.MaxOwnerBytes, FreeFloor: opt.FreeFloor, OwnerMinimum: opt.OwnerMinimum}, Daemon: Daemon, Reading: s.Reading, Log: opt.Log,
		Disk: func() (free int64, err error) { free, _, err = s.disk(); return free, err },
	}
	return s, nil
}

// Open opens the database: see the package's Open.
func (s *Core) Open(ctx context.Context) (err error) {
	opt := &s.Opt
	s.Engine, err = sqlite.Open(ctx, sqlite.Options{
		Path: opt.Path, Mode: opt.Mode, Schema: schemaOf(opt.Now), Hooks: s.engineHooks(), Now: opt.Now, MaxBytes: opt.MaxBytes,
		WriteTimeout: opt.WriteTimeout, MaxWaiting: opt.MaxWaiting, MaxWaitBytes: opt.MaxWaitBytes, Readers: opt.Readers,
		ReserveBytes: opt.ReserveBytes, Log: opt.Log, Lock: opt.Lock, Restoring: opt.Lock != nil,
	})
	if err != nil {
		return err
	}
	s.RO = s.Engine.Readers()
	for _, step := range []func(context.Context) error{s.load, s.Engine.Start, s.startUp} {
		if err := step(ctx); err != nil {
			_ = s.Engine.Abandon()
			return err
		}
	}
	return nil
}

// load reads what the store keeps in memory, and checks whether the parts that must not be changed
// by hand are as the daemon left them.
func (s *Core) load(ctx context.Context) error {
	for _, step := range []func(context.Context) error{
		s.loadChainKey, s.loadUsage, s.loadDamages, s.lookAtCopy, s.restoreGuards, s.refreshViews, s.checkHead,
	} {
		if err := step(ctx); err != nil {
			return s.Engine.OpenError(err)
		}
	}
	return nil
}

// startUp writes a row, which proves that the store can write.
func (s *Core) startUp(ctx context.Context) error {
	if err := s.recordStart(); err != nil {
		return err
	}
	s.lookAtRoom()
	if err := s.RO.GetContext(ctx, &s.ID, `SELECT value FROM meta WHERE key = 'database_id'`); err != nil {
		return s.Engine.OpenError(err)
	}
	s.NoteHead("start")
	return nil
}

// recordStart writes a row, which shows that a save would succeed.
func (s *Core) recordStart() error {
	if s.Engine.ReadOnly() != "" {
		return nil
	}
	detail := map[string]any{"version": s.Opt.Version}
	if doubt := s.Trust.Problem(); doubt != "" {
		detail["doubt"] = doubt
	}
	if len(s.Trust.Guards) > 0 {
		detail["guards"] = s.Trust.Guards
	}
	err := s.Submit(&Op{Claim: sqlite.GoesOn, Do: func(tx *Tx) error {
		return tx.Audit(AuditEntry{Who: Daemon, PID: os.Getpid(), Action: "start", Outcome: OutcomeDone, Detail: detail})
	}})
	if ckpt.CodeOf(err) == ckpt.CodeStorageFull {
		s.Log.Warn("no room for a new row: serving only reads and deletes until there is room", "path", s.Opt.Path)
		return nil
	}
	if sqlite.Classify(err) == sqlite.ClassOperator { // SQLite opens a file that this user may not write without an error
		return s.Engine.OpenError(err)
	}
	return err
}

// loadDamages reads which checkpoints were found damaged before the start.
func (s *Core) loadDamages(ctx context.Context) error {
	var ids []string
	err := sqlx.SelectContext(ctx, s.RO, &ids, `SELECT substr(key, 9) FROM meta WHERE key >= 'damaged:' AND key < 'damaged;'`)
	for _, id := range ids {
		s.Damages.done(id)
	}
	return err
}

func (s *Core) loadUsage(ctx context.Context) error { return s.Usage.Load(ctx, s.Engine.Writing()) }

// Close ends the writer after it has run the operations in its queue, and closes the database. It
// leaves the database with everything that was saved, an empty write-ahead log and its index, so
// that a read-only auditor can still read, and the reserve.
func (s *Core) Close() error {
	if s.closed.Swap(true) {
		return s.Engine.Close()
	}
	s.recordReads(true)
	if err := s.keepUsage(); err != nil {
		s.Log.Warn("the counts for quotas could not be saved: the next start counts again", "error", err)
	}
	s.Engine.Drain()
	s.NoteHead("stop")
	return s.Engine.Close()
}

// Newest is the time of the newest audit row, which is the latest time that the database has
// recorded.
func (s *Core) Newest(ctx context.Context) (ckpt.Time, error) {
	var at ckpt.Time
	err := s.RO.GetContext(ctx, &at, `SELECT at FROM audit_log ORDER BY n DESC LIMIT 1`)
	return at, sqlite.ReadError(err)
}

// Ready returns nil while saves are acknowledged, else the reason why they are not.
func (s *Core) Ready(context.Context) error {
	return s.Engine.Ready()
}
