package sqlite

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"time"

	"github.com/ckptsidecar/ckptsidecar/internal/osfile"
)

// letGo releases the reserve's space to an operation that frees space. It returns false if there is no reserve.
func (e *Engine) letGo() bool {
	r := &e.reserve
	size := r.size.Load()
	if r.file == nil || size == 0 {
		return false
	}
	e.lend()
	if r.full.may(time.Now()) {
		r.said = true
		e.log.Warn("the disk is full: deletes use the reserved space, "+
			"and saves are refused until the reserve is restored", "file", r.path, "bytes", size)
	}
	return true
}

// lend releases the reserve's space. Its caller takes the space back before it gives up the writer.
func (e *Engine) lend() {
	r := &e.reserve
	r.out.Store(true)
	if err := errors.Join(r.file.Truncate(0), r.file.Sync()); err != nil { // some file systems free the space only at the flush
		e.log.Error("the space reserved for deletes could not be released", "file", r.path, "error", err)
	}
	r.size.Store(0)
}

// covered is called before a commit that stores something. It makes sure that what waits in the log, including this
// commit, finds space in the database file even if the disk is full by then.
func (e *Engine) covered(t *Tx, bytes int64) error {
	r := &e.reserve
	if r.file == nil {
		return nil
	}
	written := e.wal.written.Load()
	if size := r.size.Load(); r.most()+r.growth+(written-r.since)*r.page+bytes <= size {
		return nil
	}
	growth, err := r.measure(t)
	if err != nil {
		return err
	}
	r.since = written
	size, need := r.size.Load(), r.most()+growth
	if need+r.most()/2 <= size {
		return nil
	}
	if err := r.hold(need, need+r.most()); err != nil && need > size {
		e.log.Debug("the disk is full", "error", err)
		return ErrNoRoom
	}
	return nil
}

// takeBack takes what is left of the reserve's space before another program does.
func (w *writer) takeBack() {
	s, r := w.engine, &w.engine.reserve
	if !r.out.Load() || s.regain() == nil {
		return
	}
	for size := r.base; size > r.size.Load() && size >= reserveLeast; size -= size / 8 {
		if r.hold(size, size) == nil {
			return
		}
	}
}

// regain makes a missing reserve, if there is space, and shrinks it if less is needed again.
func (e *Engine) regain() error {
	r := &e.reserve
	if r.base == 0 {
		return nil
	}
	t := e.writer.reading()
	growth, err := r.measure(t)
	if err != nil {
		return err
	}
	r.since = e.wal.written.Load()
	size, need := r.size.Load(), max(r.base, r.most()+growth)
	if size >= r.base && !r.out.Load() {
		if size > need+4*r.base {
			err = r.file.Truncate(need + r.base)
			r.size.Store(need + r.base)
		}
		return err
	}
	if err := r.hold(need, need); err != nil {
		return err
	}
	if r.out.Swap(false) && r.said {
		r.said = false
		e.log.Info("the space reserved for deletes is restored: saves continue", "file", r.path)
	}
	return nil
}

// mendReserve makes the reserve again on the writer after other programs have changed its file. Until that is done the
// reserve is out, because another program may have its space by now.
func (e *Engine) mendReserve() error {
	r := &e.reserve
	if r.file == nil || !r.disturbed() {
		return nil
	}
	e.log.Warn("another program removed or changed the file that reserves space for deletes: creating it again", "file", r.path)
	_ = r.file.Close()
	r.file = nil
	r.held.Store(nil)
	r.size.Store(0)
	r.out.Store(true)
	if err := os.Remove(r.path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return e.regain()
}

// reserveLeast is the smallest reserve that is worth keeping.
const reserveLeast = 64 << 10

// makeRoom helps an operation that found no space in the log. It copies the log, so that the log starts over, and if
// that is not enough, it releases the reserve. At last, what the operation deletes is not zeroed. It says whether trying again is
// worthwhile.
func (w *writer) makeRoom(o *Op, try int) bool {
	switch {
	case try == 0 && w.copyLog() == nil:
		return true
	case try <= 1 && w.engine.letGo():
	case o.Zero:
		o.Zero = false
		w.engine.letGo()
	default:
		return false
	}
	_ = w.copyLog()
	return true
}

// cutForRoom is tried before an operation is refused for lack of space. It copies the log into the database and
// truncates it, uses the reserve's space if the copy needs it, and makes the reserve as small as possible. It says
// whether trying again is worthwhile.
func (w *writer) cutForRoom() bool {
	s, r := w.engine, &w.engine.reserve
	if _, log := s.Sizes(); log < cutLeast {
		return false
	}
	cut, err := w.cutLog()
	if noRoom(err) && r.file != nil && r.size.Load() > 0 {
		s.lend()
		cut, err = w.cutLog()
	}
	w.takeBack()
	if err == nil && cut && !r.out.Load() {
		err = s.regain()
	}
	if err != nil {
		s.log.Debug("the write-ahead log could not be cut on a full disk", "error", err)
	}
	return cut
}

// cutLeast is the length from which a log is worth truncating when there is no space.
const cutLeast = 1 << 20

// indexPart is the size of one part of the log's index, which holds indexFrames pages of the log.
const (
	indexPart   = 32 << 10
	indexFrames = 4096
)

// firstReserve makes the reserve at the start, and takes disk space for the index of a log of the usual length.
func (e *Engine) firstReserve() error {
	if e.reserve.base == 0 {
		return nil
	}
	_, log := e.Sizes()
	parts := max(log, LogAlarm)/(indexFrames*e.page) + 2
	if err := growIndex(e.opt.Path+"-shm", parts*indexPart); err != nil {
		e.log.Debug("no space could be allocated for the index of the log", "error", err)
	}
	if r, size := &e.reserve, e.reserve.size.Load(); size > 0 && allocate(r.file, size, size) != nil { // a copy of the file has holes
		r.out.Store(true)
		r.size.Store(0)
		if err := r.file.Truncate(0); err != nil {
			return err
		}
	}
	return e.regain()
}

// openReserve opens the reserve's file that the last daemon left. An empty file was released.
func (e *Engine) openReserve(context.Context) error {
	r := &e.reserve
	r.path, r.base = e.opt.Path+reserveSuffix, max(e.opt.ReserveBytes, 0)
	info, err := os.Lstat(r.path)
	if err != nil {
		return nil
	}
	if r.base == 0 {
		_ = os.Remove(r.path)
		return nil
	}
	if !osfile.IsPlain(r.path, info) {
		e.log.Warn("no space can be reserved for deletes, because its file is not a plain file of this daemon: remove the file", "file", r.path)
		r.base = 0
		return nil
	}
	if r.file, err = osfile.OpenPlain(r.path, os.O_RDWR, 0o600); err != nil {
		e.log.Warn("no space can be reserved for deletes", "file", r.path, "error", err)
		r.file, r.base = nil, 0
		return nil
	}
	r.size.Store(info.Size())
	r.out.Store(info.Size() < r.base)
	return r.know()
}
