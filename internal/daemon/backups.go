package daemon

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	ckpt "github.com/ckptsidecar/ckptsidecar"
	"github.com/ckptsidecar/ckptsidecar/internal/db"
	"github.com/ckptsidecar/ckptsidecar/internal/notify"
	"github.com/ckptsidecar/ckptsidecar/internal/osfile"
	"github.com/ckptsidecar/ckptsidecar/internal/periodic"
	"github.com/ckptsidecar/ckptsidecar/internal/retention"
)

// The names of scheduled backups sort by their time. The daemon ignores other files in
// the folder.
const (
	backupPrefix = "ckpt-"
	backupSuffix = ".db"
	backupTime   = "20060102T150405Z"
)

// The pauses of backups. The first one waits until the start is over. A failed backup is
// tried again before the next one is due.
const (
	firstBackup = time.Minute
	retryBackup = time.Hour
	longestWait = 10 * time.Minute // after that, the clock is looked at again
)

// backups copies the database when it is time, and removes the oldest copies when a newer
// one has been verified. A copy that cannot be verified is no backup and gets no name.
type backups struct {
	database, folder string
	mode             fs.FileMode // of the folder, if it must be created
	interval         time.Duration
	keep             int
	log              *slog.Logger
	now              func() time.Time
	copy             func(ctx context.Context, database, out string) error
	made             func() // called after each new backup
	failed           func(ctx context.Context, message string)

	after        string // the program that is run with each new backup
	afterTimeout time.Duration
	drillEvery   time.Duration
	restore      func(ctx context.Context, backup, database string) error // restores a backup as a new database, and verifies it

	busy sync.Mutex // held by a backup and by a drill

	mu      sync.Mutex
	lastErr string
}

func newBackups(c *Config, log *slog.Logger, now func() time.Time) *backups {
	b := &backups{log: log, now: now, made: func() {}, failed: func(context.Context, string) {}}
	b.set(c)
	b.copy = func(ctx context.Context, database, out string) error { return db.Backup(ctx, database, out, nil) }
	b.restore = func(ctx context.Context, backup, database string) error {
		_, err := db.RestoreBackup(ctx, backup, db.Options{Path: database, Mode: 0o600, Retention: retention.Plan}, nil, nil)
		return err
	}
	return b
}

// set applies the settings. Only the status may use b at the same time.
func (b *backups) set(c *Config) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.database, b.folder, b.mode = c.Database, c.backupFolder(), c.folderMode()
	b.interval, b.keep = time.Duration(c.BackupInterval), c.BackupKeep
	b.after, b.afterTimeout, b.drillEvery = c.BackupAfter, time.Duration(c.BackupAfterTimeout), time.Duration(c.BackupDrill)
}

// backupFolder returns the folder for backups.
func (c *Config) backupFolder() string { return c.beside(c.BackupFolder, "backups") }

// beside returns a folder from the settings, or if they name none, one next to the
// database.
func (c *Config) beside(set, name string) string {
	if set != "" {
		return set
	}
	return filepath.Join(filepath.Dir(c.Database), name)
}

// folderMode returns the mode of such a folder: users who may read the database may read
// the files in the folder.
func (c *Config) folderMode() fs.FileMode {
	if c.DatabaseMode&0o040 != 0 {
		return 0o750
	}
	return 0o700
}

// Run makes a backup when one is due, until ctx ends. It logs errors and continues.
func (b *backups) Run(ctx context.Context) error {
	if b.interval == 0 {
		return nil
	}
	first := min(firstBackup, b.interval/10)
	pause, again := max(first, b.due()), false
	if b.owed() != "" {
		pause = first
	}
	for {
		if waitUntilDue(ctx, pause, again, b.due) != nil {
			return nil
		}
		if b.due() <= 0 {
			if _, err := b.Once(ctx); err != nil && ctx.Err() == nil {
				b.log.Error("no new backup was made", "error", err, "folder", b.folder)
				b.failed(ctx, fmt.Sprintf("The backup failed: %v", err))
				pause, again = min(retryBackup, b.interval), true
				continue
			}
		}
		b.hand(ctx)
		pause, again = max(time.Second, b.due()), false
		if b.owed() != "" {
			pause = min(pause, retryBackup)
		}
	}
}

// waitUntilDue waits for a time, and for a shorter one if something is due before. Timers stand still while the machine
// sleeps, so the clock decides. again says that what failed is tried again after the time.
func waitUntilDue(ctx context.Context, pause time.Duration, again bool, due func() time.Duration) error {
	for pause > longestWait {
		if err := periodic.Wait(ctx, longestWait); err != nil {
			return err
		}
		if pause -= longestWait; !again {
			pause = min(pause, max(time.Second, due()))
		}
	}
	return periodic.Wait(ctx, pause)
}

// owed returns the newest backup if the program backup.after has not taken it.
func (b *backups) owed() string {
	list, err := b.list()
	if b.after == "" || err != nil || len(list) == 0 {
		return ""
	}
	newest := list[len(list)-1].path
	if last := readNote(b.folder, afterFile); last.Backup == newest && last.Error == "" {
		return ""
	}
	return newest
}

// hand runs the program backup.after with the newest backup. If that fails, Run tries it again.
func (b *backups) hand(ctx context.Context) {
	file := b.owed()
	if file == "" || ctx.Err() != nil {
		return
	}
	var said tail
	p := notify.Program{Run: []string{b.after, file}, Limit: b.afterTimeout, Stderr: &said}
	err := p.Start(ctx)
	if ctx.Err() != nil {
		return // the settings are read again, or the daemon stops
	}
	note := backupNote{At: ckpt.At(b.now()), Backup: file}
	if err != nil {
		note.Error = err.Error() + said.text()
		b.log.Error("backup.after did not take the backup", "program", b.after, "file", file, "error", note.Error)
		b.failed(ctx, fmt.Sprintf("The program %s did not take the backup %s: %s", b.after, file, note.Error))
	}
	if err := b.note(afterFile, note); err != nil {
		b.log.Error("what became of a backup cannot be noted", "error", err, "folder", b.folder)
	}
}

// The notes in the folder of the backups: a restart does not forget them.
const (
	afterFile = "after.json"
	drillFile = "drill.json"
)

// backupNote is what became of a backup.
type backupNote struct {
	At     ckpt.Time `json:"at"`
	Backup string    `json:"backup"`
	Error  string    `json:"error"` // "" if all went well
}

// readNote reads a note, the zero one if there is none.
func readNote(folder, name string) (n backupNote) {
	text, err := os.ReadFile(filepath.Join(folder, name))
	if err != nil || json.Unmarshal(text, &n) != nil {
		return backupNote{}
	}
	return n
}

func (b *backups) note(name string, n backupNote) error {
	text, err := json.Marshal(n)
	if err != nil {
		return err
	}
	return osfile.Replace(filepath.Join(b.folder, name), text, 0o600)
}

// tail keeps the end of what a program says.
type tail struct{ b []byte }

func (t *tail) Write(p []byte) (int, error) {
	const most = 500
	t.b = append(t.b, p...)
	t.b = t.b[max(0, len(t.b)-most):]
	return len(p), nil
}

func (t *tail) text() string {
	if said := strings.ToValidUTF8(strings.TrimSpace(string(t.b)), ""); said != "" {
		return ": " + said
	}
	return ""
}

// due returns the time until the next backup. A backup from the future was made before the
// clock was set back, and does not count.
func (b *backups) due() time.Duration {
	list, err := b.list()
	if err != nil || len(list) == 0 {
		return 0
	}
	age := b.now().Sub(list[len(list)-1].at)
	if age < 0 {
		return 0
	}
	return b.interval - age
}

// Once makes a backup, and returns its name.
func (b *backups) Once(ctx context.Context) (name string, err error) {
	b.busy.Lock()
	defer b.busy.Unlock()
	defer func() {
		b.mu.Lock()
		defer b.mu.Unlock()
		if b.lastErr = ""; err != nil && ctx.Err() == nil {
			b.lastErr = err.Error()
		}
	}()
	if err := b.prepare(); err != nil {
		return "", err
	}
	began := time.Now()
	name = filepath.Join(b.folder, backupPrefix+b.now().UTC().Format(backupTime)+backupSuffix)
	if err := b.copy(ctx, b.database, name); err != nil {
		return "", err
	}
	b.log.Info("backup made and verified", "file", name, "took", time.Since(began).Round(time.Millisecond))
	b.made()
	return name, b.thin(name)
}

// unfinishedKeep is how long the copy of a backup that did not end is kept: another process may
// still work on it.
const unfinishedKeep = 24 * time.Hour

// prepare creates the folder, and removes what killed backups have left there. It returns an error if the copy would fill the disk: the
// daemon needs the remaining space.
func (b *backups) prepare() error {
	if err := os.MkdirAll(b.folder, b.mode); err != nil {
		return err
	}
	if err := db.SweepBackups(b.folder, b.now().Add(-unfinishedKeep)); err != nil {
		b.log.Warn("what a killed backup left could not be removed", "error", err, "folder", b.folder)
	}
	info, err := os.Stat(b.database)
	if err != nil {
		return err
	}
	return b.roomFor(info.Size(), "a backup")
}

// roomFor returns an error if a copy of a size would fill the disk of the backups.
func (b *backups) roomFor(size int64, what string) error {
	free, _, err := osfile.DiskSpace(b.folder)
	if err != nil {
		return err
	}
	if need := size + size/10 + 16<<20; free < need {
		return fmt.Errorf("the disk of %s has %v left, and %s needs %v with a reserve: free some space, or set backup.folder to another disk",
			b.folder, Size(free>>20<<20), what, Size(need>>20<<20))
	}
	return nil
}

// thin removes the oldest backups beyond the number to keep. It never removes the one
// that was just made.
func (b *backups) thin(made string) error {
	list, err := b.list()
	if err != nil {
		return err
	}
	var errs []error
	for _, old := range list[:max(0, len(list)-b.keep)] {
		if old.path != made {
			errs = append(errs, os.Remove(old.path))
		}
	}
	return errors.Join(errs...)
}

// backupFile is a scheduled backup.
type backupFile struct {
	path  string
	at    time.Time
	bytes int64
}

// list returns the scheduled backups, oldest first. Backups from the future were made
// before the clock was set back, so they come before the others.
func (b *backups) list() ([]backupFile, error) {
	b.mu.Lock()
	folder := b.folder
	b.mu.Unlock()
	list, err := listBackups(folder)
	now, future := b.now(), len(list)
	for future > 0 && list[future-1].at.After(now) {
		future--
	}
	return slices.Concat(list[future:], list[:future]), err
}

// listBackups returns the scheduled backups by the times in their names.
func listBackups(folder string) ([]backupFile, error) {
	entries, err := os.ReadDir(folder)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	var list []backupFile
	for _, entry := range entries {
		stamp, ours := strings.CutPrefix(entry.Name(), backupPrefix)
		stamp, named := strings.CutSuffix(stamp, backupSuffix)
		at, wrong := time.Parse(backupTime, stamp)
		info, gone := entry.Info()
		if ours && named && wrong == nil && gone == nil && info.Mode().IsRegular() {
			list = append(list, backupFile{filepath.Join(folder, entry.Name()), at, info.Size()})
		}
	}
	slices.SortFunc(list, func(a, b backupFile) int { return a.at.Compare(b.at) })
	return list, err
}

// Status returns the status of backups.
func (b *backups) Status() ckpt.BackupStatus {
	list, err := b.list()
	b.mu.Lock()
	defer b.mu.Unlock()
	s := ckpt.BackupStatus{Interval: ckpt.Duration(b.interval), Folder: b.folder, Kept: len(list), LastError: b.lastErr}
	if b.after != "" {
		s.AfterError = readNote(b.folder, afterFile).Error
	}
	if b.drillEvery > 0 {
		last := readNote(b.folder, drillFile)
		s.DrillInterval, s.DrillLast, s.DrillError = ckpt.Duration(b.drillEvery), last.At, last.Error
	}
	if err != nil && s.LastError == "" {
		s.LastError = err.Error()
	}
	if len(list) > 0 {
		newest := list[len(list)-1]
		s.Last, s.LastBytes = ckpt.At(newest.at), newest.bytes
	}
	return s
}

// problems describes what is wrong with backups.
func (b *backups) problems(s ckpt.BackupStatus, now time.Time) (list []string) {
	switch {
	case s.Interval == 0:
	case s.LastError != "":
		list = append(list, "the last backup failed: "+s.LastError)
	case !s.Last.IsZero() && now.Sub(s.Last.Time) > 2*time.Duration(s.Interval)+retryBackup:
		list = append(list, fmt.Sprintf("the newest backup was made at %s, and one is due every %v", s.Last, s.Interval))
	}
	if s.AfterError != "" {
		list = append(list, "backup.after did not take the newest backup: "+s.AfterError)
	}
	switch {
	case s.DrillError != "":
		list = append(list, "a backup could not be restored on trial: "+s.DrillError)
	case !s.DrillLast.IsZero() && s.Kept > 0 && now.Sub(s.DrillLast.Time) > 2*time.Duration(s.DrillInterval)+retryBackup:
		list = append(list, fmt.Sprintf("a backup was last restored on trial at %s, and that is due every %v", s.DrillLast, s.DrillInterval))
	}
	return list
}
