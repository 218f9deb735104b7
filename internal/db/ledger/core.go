package ledger

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	ckpt "github.com/ckptsidecar/ckptsidecar"
	"github.com/ckptsidecar/ckptsidecar/internal/db/blob"
	"github.com/ckptsidecar/ckptsidecar/internal/db/sqlite"
	"github.com/ckptsidecar/ckptsidecar/internal/db/usage"
	"github.com/jmoiron/sqlx"
)

// Core is what every part of the store works on.
type Core struct {
	Opt       Options
	Log       *slog.Logger
	Engine    *sqlite.Engine
	RO        *sqlx.DB  // the engine's connections that read
	Head      ChainHead // the end of the audit log; the writer's
	shown     shownHead // head, for those who are not the writer
	Hot       hotRuns   // the writer's
	agents    agentCache
	States    *blob.States
	Preparer  blob.Preparer // of states, before they go to the writer
	Damages   damages       // checkpoints that are known to be damaged
	Trust     trust         // what is known to be wrong with the audit log
	Usage     *usage.Meter
	following foreignReads
	ID        string // of this database, made when it was

	// forgetPast forgets what is kept of a run in memory. onDamage makes a finding
	// of a damaged checkpoint. Drift sets both.
	ForgetPast func(runID int64)
	OnDamage   func(tx *Tx, runID, seq int64, damage *blob.DamageError) error
	// rolledBack forgets what a transaction may have changed in memory.
	RolledBack func(tx *Tx)

	closed atomic.Bool // Close was called
	noted  time.Time   // when maintenance last noted the head of the audit log
}

// NewCore is a core whose database is not open yet.
func NewCore(opt Options) (*Core, error) {
	opt.SetDefaults()
	if opt.Retention == nil {
		return nil, errors.New("db.Open: Options.Retention is required")
	}
	s := &Core{Opt: opt, Log: opt.Log, noted: time.Now()}
	s.States = blob.NewStates(opt.LiveBytes)
	s.Preparer = blob.Preparer{States: s.States, Scan: opt.Secrets, Mode: s.SecretsMode, Reading: s.Reading, Timeout: opt.WriteTimeout, Log: opt.Log}
	s.Usage = &usage.Meter{
		Limits: usage.Limits{MaxOwnerBytes: opt.MaxOwnerBytes, OwnerShare: opt.OwnerShare}, Daemon: Daemon, Reading: s.Reading, Log: opt.Log,
	}
	return s, nil
}

// Open opens the database: see the package's Open.
func (s *Core) Open(ctx context.Context) (err error) {
	opt := &s.Opt
	s.Engine, err = sqlite.Open(ctx, sqlite.Options{
		Path: opt.Path, Mode: opt.Mode, Schema: schemaOf(opt.Now), Hooks: hooks{s}, Now: opt.Now, MaxBytes: opt.MaxBytes,
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

// shownHead is the end of the audit log as everybody may read it.
type shownHead struct {
	mu   sync.Mutex
	head ChainHead
}

// setHead notes where the audit log ends. The caller is the writer, or nobody
// writes yet.
func (s *Core) setHead(head ChainHead) {
	s.Head = head
	s.shown.mu.Lock()
	defer s.shown.mu.Unlock()
	s.shown.head = head
}

// showHead is where the audit log ends on disk.
func (s *Core) showHead() ChainHead {
	s.shown.mu.Lock()
	defer s.shown.mu.Unlock()
	return s.shown.head
}

// Options are the settings of a store. The zero value of each has a default.
type Options struct {
	Path          string                                     // of the database file
	Mode          fs.FileMode                                // of the files made; 0600, or 0640 where auditors' group reads
	Retention     ckpt.Retention                             // what stays; required
	Resume        ckpt.Resumer                               // how to go on after a death; Resume needs it
	Ask           func(*ckpt.Plan) (question, reason string) // the words of a prompt
	Secrets       blob.Scan                                  // looks for secrets in states; nil does not look
	Drift         ckpt.DriftWatch                            // watches runs for drift; nil does not
	Processes     ckpt.Processes                             // looks at processes; nil knows none
	Now           func() time.Time                           // the wall clock
	Trusted       func() time.Time                           // the clock as the clock guard sees it, zero while it holds ages back; nil trusts Now
	MaxBytes      int64                                      // of the database; 0 for no limit
	MaxOwnerBytes int64                                      // of all that one owner has stored; 0 for no limit
	OwnerShare    int                                        // percent that one owner may have of his bytes and the room that is left; 0 for no limit
	WriteTimeout  time.Duration                              // how long a write may wait for the database; 10 s
	MaxWaiting    int                                        // writes that may wait before busy is answered; 4096
	MaxWaitBytes  int64                                      // and their bytes; 512 MiB
	Readers       int                                        // read connections; 4
	Watches       int                                        // runs that are watched at the same time; 1000. The one that was written to last is let go of, and read anew when it is written to again
	ReserveBytes  int64                                      // room on the disk that is kept for deletes; 4 MiB, below 0 for none
	LiveBytes     int64                                      // memory for the newest states of runs, which the next ones are compared with; 64 MiB, below 0 for none: then all are stored whole
	Log           *slog.Logger
	Version       string

	Lock *os.File // held already, by RestoreBackup, which alone may open what an interrupted restore has left
}

func (o *Options) SetDefaults() {
	setDefault(&o.Mode, 0o600)
	setDefault(&o.WriteTimeout, 10*time.Second)
	setDefault(&o.LiveBytes, 64<<20)
	setDefault(&o.Watches, 1000)
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.Trusted == nil {
		o.Trusted = o.Now
	}
	if o.Ask == nil {
		o.Ask = plainQuestion
	}
	if o.Processes == nil {
		o.Processes = noProcesses{}
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
}

func setDefault[T comparable](field *T, value T) {
	var zero T
	if *field == zero {
		*field = value
	}
}

// noProcesses knows nothing of processes.
type noProcesses struct{}

func (noProcesses) Owner(int) string { return "" }

func (noProcesses) Identify(pid int) ckpt.Process { return ckpt.Process{PID: pid} }

func (noProcesses) Alive(ckpt.Process) ckpt.Liveness { return ckpt.LivenessUnknown }

// plainQuestion is asked where nobody has said how to ask.
func plainQuestion(plan *ckpt.Plan) (question, reason string) {
	return fmt.Sprintf("Run %s of agent %s stopped. Resume it, re-initialize it (begin with nothing), or abandon it?", plan.Run, plan.Agent), strings.Join(plan.Reasons, " ")
}

// load reads what the store keeps in memory, and looks whether what nobody may
// rewrite by hand is as it was left.
func (s *Core) load(ctx context.Context) error {
	for _, step := range []func(context.Context) error{s.loadUsage, s.loadDamages, s.lookAtCopy, s.restoreGuards, s.checkHead} {
		if err := step(ctx); err != nil {
			return s.Engine.OpenError(err)
		}
	}
	return nil
}

// startUp proves by a row that the store can write.
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

// recordStart writes a row and so shows that a save would succeed.
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
		s.Log.Warn("no room for a new row: serving reads and deletes until there is", "path", s.Opt.Path)
		return nil
	}
	if sqlite.Classify(err) == sqlite.ClassOperator { // a file that only this user may not write is opened without a word
		return s.Engine.OpenError(err)
	}
	return err
}

// Newest is the time of the newest audit row: the database has seen no later one.
func (s *Core) Newest(ctx context.Context) (ckpt.Time, error) {
	var at ckpt.Time
	err := s.RO.GetContext(ctx, &at, `SELECT at FROM audit_log ORDER BY n DESC LIMIT 1`)
	return at, sqlite.ReadError(err)
}

// Close ends the writer after what waits in it, and closes the database. What
// stays are the database with all that was saved, an empty write-ahead log and
// its index, so that a read-only auditor can still read, and the reserve.
func (s *Core) Close() error {
	if s.closed.Swap(true) {
		return s.Engine.Close()
	}
	if err := s.keepUsage(); err != nil {
		s.Log.Warn("what was counted for quotas could not be kept: it is counted anew at the next start", "error", err)
	}
	s.Engine.Drain()
	s.NoteHead("stop")
	return s.Engine.Close()
}

// Maintain does the maintenance until the context ends or the store must stop: it
// watches the files, copies the log and gives free pages back. It answers a
// *FatalError at a fail-stop.
func (s *Core) Maintain(ctx context.Context) error { return s.Engine.Maintain(ctx) }

// Upkeep does at once what Maintain does when it is due: it copies the log and
// gives free pages back.
func (s *Core) Upkeep(ctx context.Context) error { return s.Engine.Upkeep(ctx) }

// Failed is closed when the store has stopped acknowledging; the process
// should end, and a fresh one decide.
func (s *Core) Failed() <-chan struct{} { return s.Engine.Failed() }

// Fault is why the store has stopped acknowledging, nil while it has not.
func (s *Core) Fault() error { return s.Engine.Fault() }

// Stalled is for how long the writer has had work and not got on with it.
func (s *Core) Stalled() time.Duration { return s.Engine.Stalled() }

// Behind is for how long the writer has had work and committed nothing of it: it
// stands still, or it is kept from its lock, however often it tries.
func (s *Core) Behind() time.Duration { return s.Engine.Behind() }

// GiveUp is a fail-stop of a writer that has been behind for too long.
func (s *Core) GiveUp(behind time.Duration) { s.Engine.GiveUp(behind) }
