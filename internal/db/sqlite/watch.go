package sqlite

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"sync"
	"time"

	"github.com/ckptsidecar/ckptsidecar/internal/osfile"
)

// fileWatch knows which files the store opened. SQLite does not notice if they are removed,
// replaced or truncated while it uses them, and would go on acknowledging into files that can no
// longer be found.
type fileWatch struct {
	path string
	lock fs.FileInfo // of the lock file; nil if another holds the lock for us

	mu        sync.Mutex
	database  fs.FileInfo
	minSize   int64 // the database may not be smaller
	shrinking bool  // a vacuum has committed, and the shorter file is not written yet
	shrinks   int64 // how many vacuums were announced
	vacuums   int   // vacuums that are neither committed nor given up
	wal       fs.FileInfo
	walSize   int64

	written  time.Time // when the database file was last written by us
	touched  time.Time // when any program last wrote it
	copying  int       // running copies of the log, which write the file
	emptying bool      // one of them truncates the log
}

// errTouched says that another program has written into the database file, for example with cp. The
// file must be examined for consistency.
var errTouched = errors.New("another program wrote to the database file")

func watchFile(path string, lock *os.File) (*fileWatch, error) {
	info, err := os.Lstat(path)
	if err != nil {
		return nil, err
	}
	w := &fileWatch{path: path, database: info, written: writtenAt(info)}
	if lock != nil {
		if w.lock, err = lock.Stat(); err != nil {
			return nil, err
		}
	}
	return w, w.check()
}

// check says what is wrong with the files, nil if nothing is.
func (w *fileWatch) check() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if err := w.checkDatabase(); err != nil {
		return err
	}
	if err := w.checkWAL(); err != nil {
		return err
	}
	if err := w.checkLock(); err != nil {
		return err
	}
	if w.copying == 0 && !w.touched.Equal(w.written) {
		return errTouched
	}
	return nil
}

// checkLock checks whether the lock that we hold is the one that a second daemon would ask for.
func (w *fileWatch) checkLock() error {
	if w.lock == nil {
		return nil
	}
	info, err := os.Lstat(w.path + ".lock")
	switch {
	case err != nil:
		return fmt.Errorf("the lock file is missing, so a second daemon could open the database: %w", err)
	case !os.SameFile(info, w.lock):
		return fmt.Errorf("the lock file %s.lock was replaced by another, so a second daemon could open the database", w.path)
	}
	return nil
}

func (w *fileWatch) checkDatabase() error {
	info, err := os.Lstat(w.path)
	switch {
	case err != nil:
		return fmt.Errorf("the database file is missing: %w", err)
	case !os.SameFile(info, w.database):
		return fmt.Errorf("the database file %s was replaced by another", w.path)
	case osfile.Names(w.path, info) > 1:
		return fmt.Errorf("the database file %s has a second name (a hard link): two daemons could open it", w.path)
	case info.Size() < w.minSize:
		return fmt.Errorf("the database file was cut from %d to %d bytes", w.minSize, info.Size())
	}
	if !w.shrinking {
		w.minSize = info.Size()
	}
	w.touched = writtenAt(info)
	return nil
}

func (w *fileWatch) checkWAL() error {
	info, err := os.Lstat(w.path + "-wal")
	switch {
	case err != nil && w.wal == nil && os.IsNotExist(err):
		return nil
	case err != nil:
		return fmt.Errorf("the write-ahead log is missing: %w", err)
	case w.wal != nil && !os.SameFile(info, w.wal):
		return fmt.Errorf("the write-ahead log %s-wal was replaced by another", w.path)
	case info.Size() < w.walSize && !w.emptying:
		return fmt.Errorf("the write-ahead log was cut from %d to %d bytes", w.walSize, info.Size())
	}
	w.wal, w.walSize = info, info.Size()
	return nil
}

// willShrink announces that a vacuum is about to make the file this short.
func (w *fileWatch) willShrink(size int64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.minSize = min(w.minSize, size)
	w.shrinking = true
	w.shrinks++
}

// vacuuming announces a vacuum that may commit at any time from now on. The caller must call the
// returned function when the vacuum has committed or failed. A copy of the log before that may lack
// the vacuum, even if the copy is whole.
func (w *fileWatch) vacuuming() (ended func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.vacuums++
	return func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.vacuums--
		w.shrinks++
	}
}

// writing announces that a copy of the log begins. The copy writes the database file and truncates
// the log if it empties the log. The caller must call the returned function at the end. whole says
// that all of the log was copied, and emptied that the log was truncated to nothing.
func (w *fileWatch) writing(empties bool) (ended func(whole, emptied bool)) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.copying++
	w.emptying = w.emptying || empties
	shrinks := w.shrinks
	return func(whole, emptied bool) {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.copying--
		info, err := os.Lstat(w.path)
		// A vacuum that came meanwhile is not written yet. SQLite also does not truncate the file if a commit came
		// meanwhile.
		if whole && shrinks == w.shrinks && w.vacuums == 0 && err == nil && info.Size() <= w.minSize {
			w.shrinking = false
		}
		if empties {
			w.emptying = false
		}
		if emptied {
			w.walSize = 0
		}
		if err == nil && w.copying == 0 {
			w.written = writtenAt(info)
		}
	}
}

// accept notes that what another program has written was examined and is sound.
func (w *fileWatch) accept() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.written = w.touched
}

// sizesOf returns the current sizes of a database and its log.
func sizesOf(path string) (database, log int64) {
	if info, err := os.Lstat(path); err == nil {
		database = info.Size()
	}
	if info, err := os.Lstat(path + "-wal"); err == nil {
		log = info.Size()
	}
	return database, log
}
