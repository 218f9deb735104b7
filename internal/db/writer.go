package db

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"time"

	ckpt "github.com/ckptsidecar/ckptsidecar"
	"github.com/jmoiron/sqlx"
)

// The bounds of one transaction: enough to share a flush among all who wait,
// small enough that nobody waits long for it.
const (
	maxBatch      = 512
	maxBatchBytes = 64 << 20
	addedMost     = 256 << 10 // an operation stores that much besides what it carries
	yields        = 4         // how often a leader lets others come before it commits
)

// op is one operation on its way through the writer. apply may run more than
// once, since a transaction may be tried again: it must set its results anew
// each time. It must refuse, where it does, before it changes anything.
type op struct {
	owner   string     // whose turn it takes
	size    int64      // bytes that it carries
	claim   claim      // what it may do where the disk is full
	entry   auditEntry // what a refusal is recorded as; without an Action it is not
	apply   func(*tx) error
	outside func(*writer) error // instead of apply: what must run in the writer's turn but outside a transaction

	at     time.Time // when it came
	err    error
	damage []error // checkpoints that it found damaged
	done   bool
	stored bool          // it has stored something, as a reply from before has not
	wake   chan struct{} // told when done, or when to lead
}

// writer is the only way to change the database. Whoever finds it free leads:
// it commits, on its own goroutine, for all who wait. So a lone caller pays no
// hand-off, and many share one flush.
type writer struct {
	store *Store
	conn  *sqlx.Conn
	stmts map[string]*statement
	hot   hotRuns
	head  chainHead

	mu      sync.Mutex
	shown   chainHead // head, for those who are not the writer
	queue   turns
	leading bool
	closed  bool
	fatal   error
	idle    sync.Cond // leading has become false
	locked  lockedOut

	stats writerStats
	moved atomic.Int64 // when the writer last got on, in time since made
	made  time.Time
}

func newWriter(ctx context.Context, s *Store, head chainHead) (*writer, error) {
	conn, err := s.rw.Connx(ctx)
	if err != nil {
		return nil, err
	}
	w := &writer{store: s, conn: conn, stmts: map[string]*statement{}, hot: hotRuns{others: s.seeForeign}, head: head, shown: head, made: time.Now()}
	w.idle.L = &w.mu
	return w, nil
}

// write puts an operation through the writer and waits for its end. It does
// not end early when the caller hangs up: what has begun is finished.
func (s *Store) write(o *op) error {
	o.wake, o.at = make(chan struct{}, 1), time.Now()
	w := s.writer
	s.recountIfTight(o)
	lead, err := w.enter(o)
	if err != nil {
		return err
	}
	if !lead {
		<-o.wake
	}
	if !o.done {
		w.lead(o)
	}
	for _, err := range o.damage {
		s.reportDamage(err)
	}
	return o.err
}

// enter puts an operation into the queue and says whether its caller leads.
func (w *writer) enter(o *op) (lead bool, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	switch {
	case w.fatal != nil:
		return false, stopped(w.fatal)
	case w.store.health.readOnly != "":
		return false, ckpt.Errorf(ckpt.CodeCorrupt, "only reads are served: %s", w.store.health.readOnly)
	case w.closed:
		return false, &ckpt.Error{Code: ckpt.CodeBusy, Message: "the daemon is stopping: try again when it is back", RetryAfter: time.Second}
	case w.queue.len() >= w.store.opt.MaxWaiting || w.queue.bytes+o.size > w.store.opt.MaxWaitBytes:
		return false, &ckpt.Error{Code: ckpt.CodeBusy, Message: "too many writes are waiting: try again", RetryAfter: time.Second}
	}
	w.queue.push(o)
	if lead = !w.leading; lead {
		w.gotOn()
	}
	w.leading = true
	return lead, nil
}

// lead commits batch after batch until the leader's own operation is done, and
// then hands over to whoever waits.
func (w *writer) lead(mine *op) {
	for !mine.done {
		batch := w.take()
		w.commit(batch)
		for _, o := range batch {
			if o != mine {
				o.wake <- struct{}{}
			}
		}
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if next := w.queue.first(); next != nil {
		next.wake <- struct{}{}
		return
	}
	w.leading = false
	w.idle.Broadcast()
}

// take takes what waits, in turns between the owners. Where others are known
// to be about, it lets them come first: a flush costs more than a few yields.
func (w *writer) take() []*op {
	w.mu.Lock()
	busy := w.queue.len() > 1 || w.stats.lastBatch > 1
	w.mu.Unlock()
	for i := 0; busy && i < yields; i++ {
		runtime.Gosched()
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.queue.take(maxBatch, maxBatchBytes)
}

// commit brings a batch to disk and sets each operation's result.
func (w *writer) commit(batch []*op) {
	begin := time.Now()
	batch, rest := w.runOutside(batch)
	defer markDone(rest)
	if len(batch) == 0 {
		return
	}
	together, alone := w.store.apart(batch)
	if len(together) > 0 {
		err := w.tryAll(together)
		if err != nil && len(together) > 1 && classify(err) != classFatal && w.failed() == nil && !exhausted(err) {
			alone = batch // one of them is to blame; the others must not suffer
		}
	}
	for _, o := range alone {
		_ = w.tryAll([]*op{o})
	}
	markDone(batch)
	w.mu.Lock()
	w.stats.record(len(batch), time.Since(begin))
	w.stats.failures += failures(batch)
	w.stats.noteRoom(batch)
	w.shown = w.head
	w.mu.Unlock()
	w.store.maintainBetween(w)
}

func markDone(batch []*op) {
	for _, o := range batch {
		o.done = true
	}
}

// runOutside runs what may not be in a transaction, before the transaction of
// the rest.
func (w *writer) runOutside(batch []*op) (inside, outside []*op) {
	for _, o := range batch {
		if o.outside == nil {
			inside = append(inside, o)
			continue
		}
		o.err = guarded(func() error { return o.outside(w) })
		w.gotOn()
		outside = append(outside, o)
	}
	return inside, outside
}

// tryAll runs one transaction for all of batch, again where that may help. The
// error is what ended the transaction, and every operation's own is set.
func (w *writer) tryAll(batch []*op) error {
	after, retries, err := w.tryFor(batch)
	for try := 0; classify(err) == classFull && len(batch) == 1 && batch[0].claim == frees && w.makeRoom(try); try++ {
		after, retries, err = w.tryFor(batch)
		w.takeBack()
	}
	if (classify(err) == classFull || errors.Is(err, errNoRoom)) && w.cutForRoom() {
		after, retries, err = w.tryFor(batch)
	}
	w.mu.Lock()
	w.stats.retries += int64(retries)
	w.mu.Unlock()
	if err != nil {
		w.noteLate(batch, err)
		w.noteRefused(batch)
		err = w.explain(err)
		for _, o := range batch {
			o.err = err
		}
		return err
	}
	for _, f := range after {
		f()
	}
	return nil
}

// tryFor runs a transaction until the batch's time is over.
func (w *writer) tryFor(batch []*op) (after []func(), retries int, err error) {
	retries, err = retry(context.Background(), w.patience(batch), func(retries int) error {
		var err error
		after, err = w.transaction(batch, retries)
		w.noteLock(err)
		return err
	})
	return after, retries, err
}

// patience is for how long a batch may still wait for a lock. Its operations have
// waited for the batch before, behind the same lock: that counts.
func (w *writer) patience(batch []*op) time.Duration {
	oldest := time.Now()
	for _, o := range batch {
		if !o.at.IsZero() && o.at.Before(oldest) {
			oldest = o.at
		}
	}
	return max(w.store.opt.WriteTimeout-time.Since(oldest), time.Millisecond) // 0 would be for ever
}

// errRefusedLate is an operation's refusal after it had changed something. It
// ends the transaction, so that the others are tried without it.
type errRefusedLate struct{ error }

func (e errRefusedLate) Unwrap() error { return e.error }

// noteLate records a late refusal, whose own transaction has left no trace.
func (w *writer) noteLate(batch []*op, err error) {
	var late errRefusedLate
	var refusal *ckpt.Error
	if len(batch) == 1 && errors.As(err, &late) && errors.As(err, &refusal) {
		_ = w.tryAll([]*op{{apply: func(tx *tx) error { return tx.refused(batch[0], refusal) }}})
	}
}

// gotOn notes that the writer has begun, or got one more thing done.
func (w *writer) gotOn() { w.moved.Store(int64(time.Since(w.made))) }

// Stalled is for how long the writer has had work and not got on with it: in a
// flush, a statement, or waiting for what never comes. It is 0 while nobody
// wants to write.
func (s *Store) Stalled() time.Duration {
	w := s.writer
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.leading {
		return 0
	}
	return time.Since(w.made) - time.Duration(w.moved.Load())
}

// transaction is one try. Nothing is acknowledged unless the files are still
// the ones that were opened.
func (w *writer) transaction(batch []*op, retries int) (after []func(), err error) {
	defer w.gotOn()
	if err := w.failed(); err != nil {
		return nil, &FatalError{err}
	}
	if err := w.checkFiles(); err != nil {
		return nil, err
	}
	t := w.begin(retries)
	defer func() {
		if err != nil {
			w.store.forgetWatched(t)
		}
	}()
	if err := w.do(`BEGIN IMMEDIATE`); err != nil {
		return nil, err
	}
	if err := t.seeOthers(); err != nil {
		w.rollback()
		return nil, err
	}
	if err := applyAll(t, batch, w.store.reserve.out.Load()); err != nil {
		w.rollback()
		return nil, err
	}
	if t.adds > 0 {
		if err := w.store.covered(t, t.adds); err != nil {
			w.rollback()
			return nil, err
		}
	}
	if t.head != w.head {
		if err := t.writeLog(); err != nil {
			w.rollback()
			return nil, err
		}
		if err := t.exec(`UPDATE audit_head SET n = ?, hash = ? WHERE id = 1`, t.head.n, t.head.hash); err != nil {
			w.rollback()
			return nil, err
		}
	}
	w.gotOn()
	if err := w.do(`COMMIT`); err != nil {
		w.rollback()
		return nil, commitError(err)
	}
	w.head = t.head
	w.store.countUses(t.uses)
	if err := w.checkFiles(); err != nil {
		return nil, &FatalError{errAtCommit{err}}
	}
	return t.after, nil
}

func (w *writer) begin(retries int) *tx {
	t := &tx{ctx: context.Background(), conn: w.conn, stmts: w.stmts, hot: &w.hot, gotOn: w.gotOn, now: ckpt.At(w.store.opt.Now()), retries: retries, head: w.head, agents: map[agentKey]*agentRow{}}
	t.store = w.store
	if w.store.usage.on {
		t.uses = map[string]*use{}
	}
	if now := w.store.opt.Trusted(); !now.IsZero() {
		t.trusted = ckpt.At(now)
	}
	return t
}

// applyAll runs the operations. One that refuses before it has changed
// anything has its own answer and leaves the others alone.
func applyAll(t *tx, batch []*op, full bool) error {
	defer func() { t.barred = false }()
	for _, o := range batch {
		t.barred = o.claim == adds && full
		t.wrote, t.made, t.run0, t.watch0, t.damage, t.stored = false, nil, nil, nil, nil, 0
		mark, before := len(t.after), t.usesOf(o)
		err := guarded(func() error { return o.apply(t) })
		if err == nil {
			err = t.store.checkUse(t, o, before)
		}
		o.damage = t.damage
		t.gotOn()
		var refusal *ckpt.Error
		switch {
		case err == nil:
		case errors.Is(err, errNoRoom), !errors.As(err, &refusal):
			return err
		case t.wrote:
			return errRefusedLate{err}
		default:
			t.after = t.after[:mark]
			if err := t.refused(o, refusal); err != nil {
				return err
			}
		}
		o.stored = err == nil && t.wrote
		if o.err = err; err == nil && t.wrote && o.claim == adds {
			t.adds += o.size + addedMost
		}
	}
	return nil
}

// guarded makes a panic of an operation into its error: who recovers it
// further up (net/http does) would leave the writer locked for ever.
func guarded(f func() error) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("an operation panicked: %v\n%s", p, debug.Stack())
		}
	}()
	return f()
}

// refused records that an operation was refused, and why.
func (tx *tx) refused(o *op, refusal *ckpt.Error) error {
	if o.entry.Action == "" {
		return nil
	}
	e := o.entry
	e.Outcome, e.Reason = string(refusal.Code), refusal.Message
	if !tx.store.recordable(&e) {
		return nil
	}
	return tx.audit(e)
}

func (w *writer) do(statement string) error {
	t := tx{ctx: context.Background(), conn: w.conn, stmts: w.stmts, hot: &w.hot}
	return t.exec(statement)
}

// rollback also runs where SQLite has rolled back by itself; that is no error.
func (w *writer) rollback() {
	w.hot.forgetAll()
	_ = w.do(`ROLLBACK`)
}

// checkFiles is a fail-stop where the files are not the ones that were opened,
// or were written by somebody else and do not hold together any more.
func (w *writer) checkFiles() error {
	if w.store.watch == nil {
		return nil
	}
	err := w.store.watch.check()
	if errors.Is(err, errTouched) {
		err = w.store.examine(w.head)
	}
	if err != nil {
		return &FatalError{err}
	}
	return nil
}

// checkNow is checkFiles between two transactions.
func (w *writer) checkNow() error {
	if err := w.checkFiles(); err != nil {
		return w.explain(err)
	}
	return nil
}

// failed is the fault that stopped the writer, nil while it writes.
func (w *writer) failed() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.fatal
}

// close waits for what is in the queue and takes no more.
func (w *writer) close() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.closed = true
	for w.leading {
		w.idle.Wait()
	}
	for _, stmt := range w.stmts {
		_ = stmt.Close()
	}
	_ = w.conn.Close()
}
