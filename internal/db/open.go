package db

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"sync/atomic"
	"time"

	"github.com/cenkalti/backoff/v4"
	"github.com/jmoiron/sqlx"
	sqlite3 "modernc.org/sqlite/lib"

	ckpt "github.com/ckptsidecar/ckptsidecar"
)

// Options are the settings of a store. The zero value of each has a default.
type Options struct {
	Path          string                                     // of the database file
	Mode          fs.FileMode                                // of the files made; 0600, or 0640 where auditors' group reads
	Retention     ckpt.Retention                             // what stays; required
	Resume        ckpt.Resumer                               // how to go on after a death; Resume needs it
	Ask           func(*ckpt.Plan) (question, reason string) // the words of a prompt
	Secrets       secretScan                                 // looks for secrets in states; nil does not look
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

	lock      *os.File // held already, by RestoreBackup, which gives it back
	restoring bool     // by RestoreBackup, which alone may open what an interrupted restore has left
}

func (o *Options) setDefaults() {
	setDefault(&o.Mode, 0o600)
	setDefault(&o.WriteTimeout, 10*time.Second)
	setDefault(&o.MaxWaiting, 4096)
	setDefault(&o.MaxWaitBytes, 512<<20)
	setDefault(&o.Readers, 4)
	setDefault(&o.LiveBytes, 64<<20)
	setDefault(&o.ReserveBytes, 4<<20)
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

func (noProcesses) Owner(int) string                 { return "" }
func (noProcesses) Identify(pid int) ckpt.Process    { return ckpt.Process{PID: pid} }
func (noProcesses) Alive(ckpt.Process) ckpt.Liveness { return ckpt.LivenessUnknown }

// Store is one open database.
type Store struct {
	opt     Options
	log     *slog.Logger
	lock    *os.File
	watch   *fileWatch
	writer  *writer
	rw      *sqlx.DB // one connection: the writer's
	ro      *sqlx.DB // the readers'
	side    *sqlx.DB // one connection: WAL checkpoints in the background
	agents  agentCache
	live    live
	watches watches

	calibrations calibrations
	shared       shared
	ticked       map[int64]time.Time // by run: when TickDrift last asked its watch
	tickedTo     int64               // the run up to which it got, 0 where it saw all
	damages      damages             // checkpoints that are known to be damaged
	trust        trust               // what is known to be wrong with the audit log
	usage        usage
	health       health
	wal          wal
	reserve      reserve
	events       changes
	following    foreignReads
	keysSeen     atomic.Pointer[keyPlace] // where Expire goes on
	closed       atomic.Bool              // Close was called
	id           string                   // of this database, made when it was
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
	s := &Store{opt: opt, log: opt.Log}
	s.live.most, s.watches.most = opt.LiveBytes, opt.Watches
	defer func() {
		if err != nil {
			_ = s.close()
		}
	}()
	steps := []func(context.Context) error{
		s.takeLock, s.prepareFile, s.openReserve, s.openWriter, s.migrate, s.openReaders, s.recover, s.startUp,
	}
	for _, step := range steps {
		if err := step(ctx); err != nil {
			return nil, err
		}
	}
	return s, nil
}

func (s *Store) takeLock(context.Context) error {
	if s.opt.lock != nil {
		return nil
	}
	if err := os.MkdirAll(filepath.Dir(s.opt.Path), 0o750); err != nil {
		return &OperatorError{"the folder of the database cannot be made", err}
	}
	var err error
	s.lock, err = lockSoon(s.opt.Path + ".lock")
	if err == nil || errors.Is(err, ErrLocked) {
		return err
	}
	return &OperatorError{fmt.Sprintf("the folder of %s cannot be written: check who owns it", s.opt.Path), err}
}

// lockSoon tries for a moment: a process that has just ended, or a child that
// another has just made and that has not yet begun its own program, may hold
// the lock a little longer.
func lockSoon(path string) (f *os.File, err error) {
	for range 20 {
		if f, err = lockFile(path); !errors.Is(err, ErrLocked) {
			return f, err
		}
		time.Sleep(15 * time.Millisecond)
	}
	return nil, err
}

// prepareFile makes the empty file with the right mode whatever the umask, and
// refuses what is not a plain file of ours. It closes a file only before
// SQLite has opened any.
func (s *Store) prepareFile(context.Context) error {
	if !s.opt.restoring {
		if err := s.refuseHalfRestored(); err != nil {
			return err
		}
	}
	info, err := os.Lstat(s.opt.Path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		if err := s.refuseLeftovers("gone"); err != nil {
			return err
		}
		return s.makeFile()
	case err != nil:
		return &OperatorError{"the database cannot be looked at", err}
	case !info.Mode().IsRegular():
		return &OperatorError{fmt.Sprintf("%s is not a plain file (%s): name another with --db", s.opt.Path, info.Mode().Type()), nil}
	case links(info) > 1:
		return &OperatorError{fmt.Sprintf("%s has a second name (a hard link): remove one, so that two daemons cannot open it", s.opt.Path), nil}
	case info.Size() == 0:
		return s.refuseLeftovers("empty")
	}
	return nil
}

// refuseLeftovers protects the write-ahead log of a database that is gone or
// was emptied: SQLite would delete it, and the saves that are in it alone. And
// what a fault has ended is not silently begun anew.
func (s *Store) refuseLeftovers(database string) error {
	path := s.opt.Path
	if info, err := os.Lstat(path + "-wal"); err == nil && info.Size() > 0 {
		return &OperatorError{fmt.Sprintf("%s is %s, but its write-ahead log %s-wal is there: put the database back, or move the log away to begin anew", path, database, path), nil}
	}
	if _, err := os.Lstat(s.marker()); err == nil {
		return &OperatorError{fmt.Sprintf("%s is %s since the last daemon stopped because of a fault: restore a backup, or remove %s to begin anew", path, database, s.marker()), nil}
	}
	return nil
}

func (s *Store) makeFile() error {
	if _, err := os.Lstat(s.marker()); err == nil {
		return &OperatorError{fmt.Sprintf("%s is gone, and the last daemon stopped because of a fault: bring it or a backup back; to begin with an empty database instead, remove %s", s.opt.Path, s.marker()), nil}
	}
	f, err := os.OpenFile(s.opt.Path, os.O_RDWR|os.O_CREATE|os.O_EXCL, s.opt.Mode)
	if err != nil {
		return &OperatorError{"the database cannot be made", err}
	}
	defer f.Close()
	if err := f.Chmod(s.opt.Mode); err != nil {
		return &OperatorError{"the database cannot be made readable for its auditors", err}
	}
	return nil
}

// openWriter opens the database. Where there is no room even for the log's index, the reserve has some.
func (s *Store) openWriter(ctx context.Context) error {
	err := s.openToWrite(ctx)
	if noRoom(err) && s.letGo() {
		_ = s.rw.Close()
		return s.openToWrite(ctx)
	}
	return err
}

func (s *Store) openToWrite(ctx context.Context) error {
	var err error
	if s.rw, err = pool(s.opt.Path, "rw", 1, writerPragmas); err != nil {
		return err
	}
	if err := s.refuseForeign(ctx); err != nil {
		return err
	}
	if err := s.format(ctx); err != nil {
		return err
	}
	s.lookAtLocks()
	return s.readBack(ctx)
}

// refuseForeign looks before anything is written.
func (s *Store) refuseForeign(ctx context.Context) error {
	var appID, version, tables int64
	err := s.rw.QueryRowContext(ctx, `SELECT (SELECT application_id FROM pragma_application_id()),
		(SELECT user_version FROM pragma_user_version()), (SELECT count(*) FROM sqlite_schema)`).Scan(&appID, &version, &tables)
	switch {
	case err != nil:
		return s.openError(err)
	case appID == 0 && tables == 0:
		return nil
	case appID != ckpt.ApplicationID:
		return &OperatorError{fmt.Sprintf("%s is a database of another program (application_id %d): name another with --db", s.opt.Path, appID), nil}
	case version > ckpt.SchemaVersion:
		return &OperatorError{fmt.Sprintf("%s has schema version %d, this program knows up to %d: use the newer ckptsidecar that made it", s.opt.Path, version, ckpt.SchemaVersion), nil}
	}
	return nil
}

// openError says what to do about a file that cannot be opened.
func (s *Store) openError(err error) error {
	path, hint := s.opt.Path, ""
	if s.hasLog() {
		hint = "; " + copiedHint
	}
	switch code := sqliteCode(err); {
	case code == 26:
		return &OperatorError{fmt.Sprintf("%s is not a SQLite database, or its first page is damaged: nothing was changed; restore a backup or name another file with --db%s", path, hint), err}
	case code == 11 || code&0xff == 11:
		return &OperatorError{fmt.Sprintf("%s is damaged: nothing was changed; run ckptsidecar verify --db %s, then restore a backup%s", path, path, hint), err}
	case code&0xff == 8:
		return &OperatorError{fmt.Sprintf("%s cannot be written: the file, its folder or its file system is read-only for this user", path), err}
	case code&0xff == 14:
		return &OperatorError{fmt.Sprintf("%s cannot be opened: check that this user may read and write it and its folder", path), err}
	case classify(err) == classTransient:
		return ckpt.Wrap(ckpt.CodeBusy, err, "%s has %s locked", s.lockHolder(), path)
	case classify(err) == classFull || code == 4874: // IOERR_SHMSIZE
		return &OperatorError{"the disk is full: " + path, err}
	case classify(err) == classFatal:
		return &FatalError{err}
	}
	return &OperatorError{fmt.Sprintf("%s cannot be opened", path), err}
}

// format gives a new file its page size, vacuum mode and journal, in the one
// order in which SQLite takes them.
func (s *Store) format(ctx context.Context) error {
	return s.patiently(ctx, func() error {
		var pages int64
		if err := s.rw.GetContext(ctx, &pages, `PRAGMA page_count`); err != nil {
			return err
		}
		statements := []string{`PRAGMA journal_mode = WAL`}
		if pages == 0 {
			statements = []string{fmt.Sprintf(`PRAGMA page_size = %d`, pageSize), `PRAGMA auto_vacuum = INCREMENTAL`, `PRAGMA journal_mode = WAL`}
		}
		for _, statement := range statements {
			if _, err := s.rw.ExecContext(ctx, statement); err != nil {
				return err
			}
		}
		return nil
	})
}

// readBack trusts no pragma that was not read back.
func (s *Store) readBack(ctx context.Context) error {
	want := map[string]string{
		"journal_mode": "wal", "synchronous": "2", "foreign_keys": "1", "auto_vacuum": "2",
		"wal_autocheckpoint": "0", "secure_delete": "2", "trusted_schema": "0",
	}
	for pragma, value := range want {
		var got string
		if err := s.rw.GetContext(ctx, &got, `PRAGMA `+pragma); err != nil {
			return s.openError(err)
		}
		if got != value {
			return &OperatorError{fmt.Sprintf("SQLite keeps PRAGMA %s at %s where %s is needed (is the file on a network file system?)", pragma, got, value), nil}
		}
	}
	return nil
}

func (s *Store) openReaders(context.Context) error {
	var err error
	if s.ro, err = readers(s.opt.Path, s.opt.Readers, s.metRead); err != nil {
		return err
	}
	s.side, err = pool(s.opt.Path, "rw", 1, writerPragmas)
	return err
}

// startUp makes the writer, which keeps the one writing connection, proves by a row that it can write, and begins to
// watch the files.
func (s *Store) startUp(ctx context.Context) (err error) {
	if err := s.limitSize(ctx); err != nil {
		return s.openError(err)
	}
	if err := s.loadUsage(ctx); err != nil {
		return s.openError(err)
	}
	if err := s.loadDamages(ctx); err != nil {
		return s.openError(err)
	}
	if err := s.lookAtCopy(ctx); err != nil {
		return s.openError(err)
	}
	if err := s.restoreGuards(ctx); err != nil {
		return s.openError(err)
	}
	head, err := s.checkHead(ctx)
	if err != nil {
		return s.openError(err)
	}
	if s.writer, err = newWriter(ctx, s, head); err != nil {
		return s.openError(err)
	}
	if s.watch, err = watchFile(s.opt.Path, s.lock); err != nil {
		return &OperatorError{"the database changed while it was opened", err}
	}
	var pages int64
	if err := s.ro.GetContext(ctx, &pages, `PRAGMA page_count`); err != nil {
		return s.openError(err)
	}
	s.watch.willShrink(pages * pageSize) // a vacuum of the last daemon may still wait in the log
	if s.health.readOnly == "" {
		if err := s.firstReserve(); err != nil {
			s.log.Warn("no room can be kept for deletes: where the disk is full they may be refused", "file", s.reserve.path, "bytes", s.reserve.base, "error", err)
		}
	}
	if err := s.probe(); err != nil {
		return err
	}
	s.lookAtRoom()
	if err := s.ro.GetContext(ctx, &s.id, `SELECT value FROM meta WHERE key = 'database_id'`); err != nil {
		return s.openError(err)
	}
	s.NoteHead("start")
	return nil
}

// limitSize keeps the quota inside SQLite, where deletes go on working.
func (s *Store) limitSize(ctx context.Context) error {
	pages := int64(1<<32 - 2)
	if s.opt.MaxBytes > 0 {
		pages = max(s.opt.MaxBytes/pageSize, 64)
	}
	_, err := s.rw.ExecContext(ctx, fmt.Sprintf(`PRAGMA max_page_count = %d`, pages))
	return err
}

// probe writes a row and so shows that a save would succeed.
func (s *Store) probe() error {
	if s.health.readOnly != "" {
		return nil
	}
	detail := map[string]any{"version": s.opt.Version}
	if doubt := s.trust.problem(); doubt != "" {
		detail["doubt"] = doubt
	}
	if len(s.trust.guards) > 0 {
		detail["guards"] = s.trust.guards
	}
	err := s.write(&op{claim: goesOn, apply: func(tx *tx) error {
		return tx.audit(auditEntry{Who: daemon, PID: os.Getpid(), Action: "start", Outcome: outcomeDone, Detail: detail})
	}})
	if ckpt.CodeOf(err) == ckpt.CodeStorageFull {
		s.log.Warn("no room for a new row: serving reads and deletes until there is", "path", s.opt.Path)
		return nil
	}
	if classify(err) == classOperator { // a file that only this user may not write is opened without a word
		return s.openError(err)
	}
	return err
}

// SQLiteVersion is the version of the SQLite that is built in.
func SQLiteVersion() string { return sqlite3.SQLITE_VERSION }

// Newest is the time of the newest audit row: the database has seen no later one.
func (s *Store) Newest(ctx context.Context) (ckpt.Time, error) {
	var at ckpt.Time
	err := s.ro.GetContext(ctx, &at, `SELECT at FROM audit_log ORDER BY n DESC LIMIT 1`)
	return at, readError(err)
}

// Close ends the writer after what waits in it, and closes the database. What
// stays are the database with all that was saved, an empty write-ahead log and
// its index, so that a read-only auditor can still read, and the reserve.
func (s *Store) Close() error {
	if s.writer != nil && !s.closed.Swap(true) {
		if err := s.keepUsage(); err != nil {
			s.log.Warn("what was counted for quotas could not be kept: it is counted anew at the next start", "error", err)
		}
		s.writer.close()
		if s.id != "" {
			s.NoteHead("stop")
		}
		if err := s.tidy(); err != nil {
			s.log.Warn("the write-ahead log could not be emptied at the end: the next start reads what is in it", "error", err)
		}
	}
	return s.close()
}

// tidyFor is how long an auditor who reads while the daemon ends is waited for.
const tidyFor = 500 * time.Millisecond

// tidy copies the log into the database and cuts it, and makes the reserve as
// small as its setting. After a fault everything is left as it is.
func (s *Store) tidy() error {
	if s.writer.failed() != nil || s.health.readOnly != "" || s.watch == nil || s.watch.check() != nil {
		return nil
	}
	_ = s.ro.Close()
	_ = s.side.Close()
	err := backoff.Retry(func() error {
		var busy, log, done int64
		err := s.rw.QueryRowx(`PRAGMA wal_checkpoint(TRUNCATE)`).Scan(&busy, &log, &done)
		switch {
		case err == nil && busy != 0:
			return errSnapshot
		case noRoom(err) && s.reserve.file != nil && s.reserve.size.Load() > 0:
			s.lend()
			return err
		case err != nil:
			return backoff.Permanent(err)
		}
		return nil
	}, patience(tidyFor))
	r := &s.reserve
	switch size := r.size.Load(); {
	case r.file == nil || err != nil:
	case size > r.base:
		err = r.file.Truncate(r.base)
	case size < r.base:
		_ = r.hold(r.base, r.base) // where there is no room for it the next start says so
	}
	return err
}

func (s *Store) close() error {
	var errs []error
	for _, pool := range []*sqlx.DB{s.ro, s.side, s.rw} {
		if pool != nil {
			errs = append(errs, pool.Close())
		}
	}
	if s.reserve.file != nil {
		errs = append(errs, s.reserve.file.Close())
	}
	if s.lock != nil {
		errs = append(errs, s.lock.Close())
	}
	return errors.Join(errs...)
}
