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

// reserve is room on the file system of the database, held by a file beside it. It is let go when an operation that frees
// something finds no room for the log, and made again when there is some.
//
// Half of its first size is for the log, in which a delete is written. The rest, which grows when it must, is for the
// pages that wait in the log and for which the database file has to become longer: where these cannot
// be copied the log cannot begin anew, and is full for good. The writer alone changes it.
type reserve struct {
	path   string
	base   int64 // its size where nothing waits; 0 for none
	file   *os.File
	size   atomic.Int64
	out    atomic.Bool // let go, and not yet made again
	growth int64       // bytes that the database file had to grow by, when last measured
	page   int64       // the bytes of a page
	since  int64       // pages written until then
	held   atomic.Pointer[fs.FileInfo]
	tried  time.Time // when it was last tried to make it
	full   rarely    // the log says that the disk is full
	said   bool      // and not yet that it is not
}

func (r *reserve) most() int64 { return r.base / 2 } // for the log

// know remembers which file is held, for who looks from outside the writer.
func (r *reserve) know() error {
	info, err := r.file.Stat()
	if err == nil {
		r.held.Store(&info)
	}
	return err
}

// disturbed says that somebody has removed, replaced, cut or filled the file. Where the writer changes it just now, the
// answer may be wrong.
func (r *reserve) disturbed() bool {
	held := r.held.Load()
	if held == nil {
		return false
	}
	info, err := os.Lstat(r.path)
	return err != nil || !os.SameFile(info, *held) || info.Size() != r.size.Load()
}

// hold makes the reserve so large, of which it must have as much as least.
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
	if made { // an empty one would say that it was let go
		err = errors.Join(err, r.file.Close(), os.Remove(r.path))
		r.file = nil
	}
	return err
}

// measure answers by how much the database file must grow when the log is copied.
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

// reserveProblem is what status says while the reserve is out.
func (r *reserve) problem() string {
	return fmt.Sprintf("the disk is full: deletes use the reserved space, and saves are refused until "+
		"%d KiB are free for %s", r.base>>10, r.path)
}

// rarely is when something was last logged that may come again and again.
type rarely struct{ last time.Time }

// rarelyEvery is how often at most the log says the same of a disk that is full.
// Where deletes free a little again and again, the reserve goes and comes with
// each, and what maintenance cannot do it tries every second.
const rarelyEvery = time.Minute

func (r *rarely) may(now time.Time) bool {
	if !r.last.IsZero() && now.Sub(r.last) < rarelyEvery {
		return false
	}
	r.last = now
	return true
}
