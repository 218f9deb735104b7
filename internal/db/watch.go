package db

import (
	"fmt"
	"io/fs"
	"os"
	"sync"
)

// fileWatch knows which files the store opened. SQLite does not notice when
// they are removed, replaced or cut off under it, and would go on
// acknowledging into files that nobody can find again.
type fileWatch struct {
	path string

	mu        sync.Mutex
	database  fs.FileInfo
	minSize   int64 // the database may not be smaller
	shrinking bool  // a vacuum has committed whose shorter file is not written yet
	wal       fs.FileInfo
	walSize   int64
}

func watchFile(path string) (*fileWatch, error) {
	info, err := os.Lstat(path)
	if err != nil {
		return nil, err
	}
	w := &fileWatch{path: path, database: info}
	return w, w.check()
}

// check answers what is wrong with the files, nil where nothing is.
func (w *fileWatch) check() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if err := w.checkDatabase(); err != nil {
		return err
	}
	return w.checkWAL()
}

func (w *fileWatch) checkDatabase() error {
	info, err := os.Lstat(w.path)
	switch {
	case err != nil:
		return fmt.Errorf("the database file is gone: %w", err)
	case !os.SameFile(info, w.database):
		return fmt.Errorf("the database file %s was replaced by another", w.path)
	case links(info) > 1:
		return fmt.Errorf("the database file %s has a second name (a hard link): two daemons could open it", w.path)
	case info.Size() < w.minSize:
		return fmt.Errorf("the database file was cut from %d to %d bytes", w.minSize, info.Size())
	}
	if !w.shrinking {
		w.minSize = info.Size()
	}
	return nil
}

func (w *fileWatch) checkWAL() error {
	info, err := os.Lstat(w.path + "-wal")
	switch {
	case err != nil && w.wal == nil && os.IsNotExist(err):
		return nil
	case err != nil:
		return fmt.Errorf("the write-ahead log is gone: %w", err)
	case w.wal != nil && !os.SameFile(info, w.wal):
		return fmt.Errorf("the write-ahead log %s-wal was replaced by another", w.path)
	case info.Size() < w.walSize:
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
}

// checkpointed says that all of the log has been written into the file, and
// with truncated also that the log was emptied by us.
func (w *fileWatch) checkpointed(truncated bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.shrinking = false
	if truncated {
		w.walSize = 0
	}
}

// sizes answers the present sizes of the database and its log, for status.
func (w *fileWatch) sizes() (database, wal int64) {
	if info, err := os.Lstat(w.path); err == nil {
		database = info.Size()
	}
	if info, err := os.Lstat(w.path + "-wal"); err == nil {
		wal = info.Size()
	}
	return database, wal
}
