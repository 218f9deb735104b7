package sqlite

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"strings"
	"sync/atomic"
	"time"

	ckpt "github.com/ckptsidecar/ckptsidecar"
	"github.com/ckptsidecar/ckptsidecar/internal/osfile"
)

// reserveSuffix names the reserve after its database.
const reserveSuffix = "-reserve"

// ErrNoRoom is the answer to what would use the room that deletes need.
var ErrNoRoom = &ckpt.Error{Code: ckpt.CodeStorageFull,
	Message: "the disk is full, and what is left of it is kept for deletes: free some, or delete checkpoints; reads and deletes go on"}

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
	since  int64       // pages written until then
	held   atomic.Pointer[fs.FileInfo]
	tried  time.Time // when it was last tried to make it
	full   rarely    // the log says that the disk is full
	said   bool      // and not yet that it is not
}

func (r *reserve) most() int64 { return r.base / 2 } // for the log

// openReserve takes the file that the last daemon left. One that is empty was let go.
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
	if !osfile.IsPlain(info) {
		e.log.Warn("no room can be kept for deletes, because its file is no plain file of ours: remove it", "file", r.path)
		r.base = 0
		return nil
	}
	if r.file, err = osfile.OpenPlain(r.path, os.O_RDWR, 0o600); err != nil {
		e.log.Warn("no room can be kept for deletes", "file", r.path, "error", err)
		r.file, r.base = nil, 0
		return nil
	}
	r.size.Store(info.Size())
	r.out.Store(info.Size() < r.base)
	return r.know()
}

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

// mend makes the reserve anew in the writer's turn, after others have changed its file. Until that is done it is out: the
// room may be somebody else's by now.
func (e *Engine) mendReserve(w *writer) error {
	r := &e.reserve
	if r.file == nil || !r.disturbed() {
		return nil
	}
	e.log.Warn("somebody has removed or changed the file that keeps room for deletes: making it anew", "file", r.path)
	_ = r.file.Close()
	r.file = nil
	r.held.Store(nil)
	r.size.Store(0)
	r.out.Store(true)
	if err := os.Remove(r.path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return e.regain(w)
}

// rarelyEvery is how often at most the log says the same of a disk that is full.
// Where deletes free a little again and again, the reserve goes and comes with
// each, and what maintenance cannot do it tries every second.
const rarelyEvery = time.Minute

// rarely is when something was last logged that may come again and again.
type rarely struct{ last time.Time }

func (r *rarely) may(now time.Time) bool {
	if !r.last.IsZero() && now.Sub(r.last) < rarelyEvery {
		return false
	}
	r.last = now
	return true
}

// letGo gives the reserve's room to whoever is about to free some, and answers false where there is none.
func (e *Engine) letGo() bool {
	r := &e.reserve
	size := r.size.Load()
	if r.file == nil || size == 0 {
		return false
	}
	e.lend()
	if r.full.may(time.Now()) {
		r.said = true
		e.log.Warn("the disk is full: deletes use the room that was kept for them, and saves are refused until it is there again", "file", r.path, "bytes", size)
	}
	return true
}

// lend gives the reserve's room away, for what takes it back in the same turn of the writer.
func (e *Engine) lend() {
	r := &e.reserve
	r.out.Store(true)
	if err := errors.Join(r.file.Truncate(0), r.file.Sync()); err != nil { // some file systems give it back with the flush only
		e.log.Error("the room that is kept for deletes could not be let go", "file", r.path, "error", err)
	}
	r.size.Store(0)
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
	r.growth = max(0, pages*PageSize-info.Size())
	return r.growth, nil
}

func (r *reserve) database() string { return strings.TrimSuffix(r.path, reserveSuffix) }

// covered is asked before a commit that stores something: what waits in the log, this among it, must find
// room in the database file on a disk that is full by then.
func (e *Engine) covered(t *Tx, bytes int64) error {
	r := &e.reserve
	if r.file == nil {
		return nil
	}
	written := e.wal.written.Load()
	if size := r.size.Load(); r.most()+r.growth+(written-r.since)*PageSize+bytes <= size {
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

// takeBack takes what is left of the reserve's room before somebody else does.
func (w *writer) takeBack() {
	s, r := w.engine, &w.engine.reserve
	if !r.out.Load() || s.regain(w) == nil {
		return
	}
	for size := r.base; size > r.size.Load() && size >= reserveLeast; size -= size / 8 {
		if r.hold(size, size) == nil {
			return
		}
	}
}

// regain makes the reserve where it is missing, as far as there is room, and shorter where less is needed again.
func (e *Engine) regain(w *writer) error {
	r := &e.reserve
	if r.base == 0 {
		return nil
	}
	t := w.reading()
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
		e.log.Info("the room that is kept for deletes is there again: saves go on", "file", r.path)
	}
	return nil
}

// indexPart is a part of the log's index, which has room for indexFrames pages of the log.
const (
	indexPart   = 32 << 10
	indexFrames = 4096
)

// firstReserve makes the reserve at the start, and takes room for the index of a log as long as one becomes.
func (e *Engine) firstReserve() error {
	if e.reserve.base == 0 {
		return nil
	}
	_, log := e.Sizes()
	parts := max(log, LogAlarm)/(indexFrames*PageSize) + 2
	if err := growIndex(e.opt.Path+"-shm", parts*indexPart); err != nil {
		e.log.Debug("no room could be taken for the index of the log", "error", err)
	}
	if r, size := &e.reserve, e.reserve.size.Load(); size > 0 && allocate(r.file, size, size) != nil { // it was copied, with holes in it
		r.out.Store(true)
		r.size.Store(0)
		if err := r.file.Truncate(0); err != nil {
			return err
		}
	}
	return e.regain(e.writer)
}

// reserveLeast is the least that is worth to be kept of it.
const reserveLeast = 64 << 10

// reserveEvery is how often it is tried to make the reserve again.
const reserveEvery = 2 * time.Second

// keepReserve is regain from outside the writer. While the reserve is out it gives back to the file system what deletes have freed.
func (e *Engine) keepReserve(ctx context.Context, now time.Time) {
	r := &e.reserve
	if e.readOnly == "" && r.disturbed() {
		if err := e.Write(&Op{Owner: Maintenance, Claim: GoesOn, outside: e.mendReserve}); err != nil {
			e.log.Debug("the room that is kept for deletes could not be made anew", "error", err)
		}
	}
	size, out := r.size.Load(), r.out.Load()
	whole := size >= r.base && !out
	switch {
	case r.base == 0, e.readOnly != "", now.Sub(r.tried) < reserveEvery:
		return
	case whole && size <= 5*r.base:
		return
	}
	r.tried = now
	if out {
		if _, err := e.Vacuum(VacuumPages); err != nil {
			e.log.Debug("free pages could not be given back", "error", err)
		}
		e.copyWAL(ctx)
	}
	if err := e.Write(&Op{Owner: Maintenance, Claim: GoesOn, outside: e.regain}); err != nil {
		e.log.Debug("there is no room yet to be kept for deletes", "error", err)
	}
}

// makeRoom helps an operation that found no room in the log: by copying the log, so that it begins anew, and
// where that is not enough by the reserve. It answers whether it is worth to try again.
func (w *writer) makeRoom(try int) bool {
	switch {
	case try == 0 && w.copyLog() == nil:
		return true
	case try <= 1 && w.engine.letGo():
		_ = w.copyLog()
		return true
	}
	return false
}

// cutLeast is the length of a log that is worth to be cut where there is no room.
const cutLeast = 1 << 20

// cutForRoom is tried before something is refused for want of room: it copies the log into the database and cuts it, with
// the reserve's room where the copy needs it, and makes the reserve as small as it may be. It answers whether it is worth
// to try again.
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
		err = s.regain(w)
	}
	if err != nil {
		s.log.Debug("the write-ahead log could not be cut on a full disk", "error", err)
	}
	return cut
}

// cutLog copies all of the log in the writer's turn and cuts it to nothing. It answers false where a reader's snapshot is
// in the way.
func (w *writer) cutLog() (cut bool, err error) {
	var row struct {
		Busy int64 `db:"busy"`
		Log  int64 `db:"log"`
		Done int64 `db:"checkpointed"`
	}
	ended := w.engine.watch.writing(true)
	_, err = w.reading().Get(&row, `PRAGMA wal_checkpoint(TRUNCATE)`)
	cut = err == nil && row.Busy == 0
	ended(cut, cut)
	w.gotOn()
	if cut {
		w.engine.begunAnew(nil)
		w.engine.wal.copied.Store(w.pagesWritten())
	}
	return cut, err
}

// copyLog copies all of the log in the writer's turn; after that it begins anew.
func (w *writer) copyLog() error {
	var row struct {
		Busy int64 `db:"busy"`
		Log  int64 `db:"log"`
		Done int64 `db:"checkpointed"`
	}
	s := w.engine
	ended := s.watch.writing(false)
	_, err := w.reading().Get(&row, `PRAGMA wal_checkpoint(PASSIVE)`)
	whole := err == nil && row.Busy == 0 && row.Log == row.Done // where another copy is under way it is busy, and both are -1
	ended(whole, false)
	w.gotOn()
	if s.begunAnew(err); err != nil {
		return err
	}
	if !whole {
		return errSnapshot
	}
	s.wal.copied.Store(w.pagesWritten())
	return nil
}

// reading is a transaction's means outside of one.
func (w *writer) reading() *Tx {
	return &Tx{Ctx: context.Background(), Conn: w.conn, hooks: w.engine.opt.Hooks, stmts: w.stmts}
}

// noRoom says that SQLite found no room, for the files or for the log's index.
func noRoom(err error) bool { return Classify(err) == ClassFull || Code(err) == 4874 } // IOERR_SHMSIZE

// fill writes bytes that no file system can pack.
func fill(f *os.File, from, to int64) error {
	chunk := make([]byte, 64<<10)
	source := rand.NewChaCha8([32]byte{byte(from >> 16)})
	for from < to {
		part := chunk[:min(to-from, int64(len(chunk)))]
		_, _ = source.Read(part)
		if _, err := f.WriteAt(part, from); err != nil {
			return err
		}
		from += int64(len(part))
	}
	return f.Sync()
}

// reserveProblem is what status says while the reserve is out.
func (r *reserve) problem() string {
	return fmt.Sprintf("the disk is full: deletes use the room that was kept for them, and saves are refused until there are %d KiB free for %s", r.base>>10, r.path)
}
