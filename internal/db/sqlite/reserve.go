package sqlite

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"
	"sync/atomic"
	"time"

	"github.com/ckptsidecar/ckptsidecar/internal/osfile"
)

// reserve is space on the file system of the database, held by a file beside it. The writer releases it when an
// operation that frees something finds no space for the log, and makes it again when there is space.
//
// Half of its first size is for the log, into which a delete is written. The rest, which grows when needed, is for the
// pages that wait in the log and for which the database file must grow: if they cannot be copied, the log cannot start
// over, and stays full. Only the writer changes the reserve.
type reserve struct {
	path   string
	base   int64 // its size if nothing waits; 0 for no reserve
	file   *os.File
	size   atomic.Int64
	out    atomic.Bool // released, and not yet made again
	growth int64       // bytes by which the database file had to grow at the last measurement
	page   int64       // the page size in bytes
	since  int64       // pages written up to that measurement
	held   atomic.Pointer[fs.FileInfo]
	tried  time.Time // when making it was last tried
	full   rarely    // limits the log message that the disk is full
	said   bool      // that message was logged, and not yet that the disk has space again
}

func (r *reserve) most() int64 { return r.base / 2 } // for the log

// know remembers which file is held, for callers outside the writer.
func (r *reserve) know() error {
	info, err := r.file.Stat()
	if err == nil {
		r.held.Store(&info)
	}
	return err
}

// disturbed says whether another program has removed, replaced, truncated or filled the file. The result may be wrong
// while the writer changes the file.
func (r *reserve) disturbed() bool {
	held := r.held.Load()
	if held == nil {
		return false
	}
	info, err := os.Lstat(r.path)
	return err != nil || !os.SameFile(info, *held) || info.Size() != r.size.Load()
}

// hold grows the reserve to size, or at least to least.
func (r *reserve) hold(least, size int64) error {
	made := r.file == nil
	if made {
		var err error
		if r.file, err = osfile.OpenPlain(r.path, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600); err != nil {
			return err
		}
	}
	before := r.size.Load()
	err := allocate(r.file, before, size)
	if err != nil && least < size && least > before {
		size = least
		err = allocate(r.file, before, size)
	}
	if err == nil {
		r.size.Store(size)
		return r.know()
	}
	if err := r.file.Truncate(before); err != nil {
		return err
	}
	if made { // an empty one would mean that it was released
		err = errors.Join(err, r.file.Close(), os.Remove(r.path))
		r.file = nil
	}
	return err
}

// measure returns by how many bytes the database file must grow when the log is copied.
func (r *reserve) measure(t *Tx) (int64, error) {
	var pages int64
	if _, err := t.Get(&pages, `PRAGMA page_count`); err != nil {
		return 0, err
	}
	info, err := os.Lstat(r.database())
	if err != nil {
		return 0, err
	}
	r.growth = max(0, pages*r.page-info.Size())
	return r.growth, nil
}

func (r *reserve) database() string { return strings.TrimSuffix(r.path, reserveSuffix) }

// problem is what status says while the reserve is out.
func (r *reserve) problem() string {
	return fmt.Sprintf("the disk is full: deletes use the reserved space, and saves are refused until "+
		"%d KiB are free for %s", r.base>>10, r.path)
}

// rarely remembers when a recurring message was last logged.
type rarely struct{ last time.Time }

// rarelyEvery is the least time between two equal log messages about a full disk. If deletes free a
// little space again and again, each releases and remakes the reserve, and maintenance retries
// every second what it cannot do.
const rarelyEvery = time.Minute

func (r *rarely) may(now time.Time) bool {
	if !r.last.IsZero() && now.Sub(r.last) < rarelyEvery {
		return false
	}
	r.last = now
	return true
}
