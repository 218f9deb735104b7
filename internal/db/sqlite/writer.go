package sqlite

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"runtime/debug"
	"slices"
	"time"

	ckpt "github.com/ckptsidecar/ckptsidecar"
)

// The bounds of one transaction: large enough that all waiting callers share a flush, and small
// enough that no caller waits long for it.
const (
	MaxBatch      = 512
	maxBatchBytes = 64 << 20
	addedMost     = 256 << 10 // how much an operation stores besides its own bytes
	yields        = 4         // how often a leader lets others come before it commits
)

func newWriter(ctx context.Context, s *Engine) (*writer, error) {
	conn, err := s.rw.Connx(ctx)
	if err != nil {
		return nil, err
	}
	w := &writer{engine: s, conn: conn, stmts: newStatements(), made: time.Now()}
	w.idle.L = &w.mu
	return w, nil
}

// Write runs an operation on the writer and waits until it ends. It does not end early if the
// caller hangs up: an operation that has begun is finished. An Op can be used once.
func (e *Engine) Write(o *Op) error {
	o.wake, o.at = make(chan struct{}, 1), time.Now()
	w := e.writer
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
	return o.err
}

// enter puts an operation into the queue and says whether its caller leads.
func (w *writer) enter(o *Op) (lead bool, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	switch {
	case w.fatal != nil:
		return false, stopped(w.fatal)
	case w.engine.readOnly != "":
		return false, ckpt.Errorf(ckpt.CodeCorrupt, "only reads are served: %s", w.engine.readOnly)
	case w.closed:
		return false, &ckpt.Error{Code: ckpt.CodeBusy, Message: "the daemon is stopping: try again when it is back", RetryAfter: time.Second}
	case w.queue.len() >= w.engine.opt.MaxWaiting || w.queue.bytes+o.Size > w.engine.opt.MaxWaitBytes:
		return false, &ckpt.Error{Code: ckpt.CodeBusy, Message: "too many writes are waiting: try again", RetryAfter: time.Second}
	}
	w.queue.push(o)
	if lead = !w.leading; lead {
		w.gotOn()
	}
	w.leading = true
	return lead, nil
}

// lead commits batch after batch until the leader's own operation is done, and then hands over to a
// waiting caller.
func (w *writer) lead(mine *Op) {
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

// take takes waiting operations in the fair order of their owners. If other callers are known to be
// active, it lets them come first: a flush costs more than a few yields.
func (w *writer) take() []*Op {
	w.mu.Lock()
	busy := w.queue.len() > 1 || w.stats.lastBatch > 1
	w.mu.Unlock()
	for i := 0; busy && i < yields; i++ {
		runtime.Gosched()
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.queue.take(MaxBatch, maxBatchBytes)
}

// commit brings a batch to disk and sets each operation's result.
func (w *writer) commit(batch []*Op) {
	begin := time.Now()
	batch, rest := w.runOutside(batch)
	defer markDone(rest)
	if len(batch) == 0 {
		return
	}
	together, alone := apart(batch)
	if len(together) > 0 {
		err := w.tryAll(together)
		if err != nil && len(together) > 1 && Classify(err) != ClassFatal && w.failed() == nil && !exhausted(err) {
			alone = batch // one of them is the cause; the others must not fail because of it
		}
	}
	for _, o := range alone {
		_ = w.tryAll([]*Op{o})
	}
	markDone(batch)
	w.mu.Lock()
	w.stats.record(len(batch), time.Since(begin))
	w.stats.failures += failures(batch)
	w.stats.noteRoom(batch)
	w.mu.Unlock()
	w.engine.maintainBetween(w)
}

// apart splits a batch into operations that share a transaction and operations that need their own.
func apart(batch []*Op) (together, alone []*Op) {
	is := func(o *Op) bool { return o.Alone != nil && o.Alone() }
	if !slices.ContainsFunc(batch, is) {
		return batch, nil
	}
	for _, o := range batch {
		if is(o) {
			alone = append(alone, o)
		} else {
			together = append(together, o)
		}
	}
	return together, alone
}

func markDone(batch []*Op) {
	for _, o := range batch {
		o.done = true
	}
}

// runOutside runs the operations that must not be in a transaction, before the transaction of the
// rest.
func (w *writer) runOutside(batch []*Op) (inside, outside []*Op) {
	for _, o := range batch {
		if o.outside == nil {
			inside = append(inside, o)
			continue
		}
		o.err = guarded(func() error { return o.outside() })
		w.gotOn()
		outside = append(outside, o)
	}
	return inside, outside
}

// tryAll runs one transaction for the whole batch, and again if that may help. It sets each
// operation's own error, and returns the error that ended the transaction.
func (w *writer) tryAll(batch []*Op) error {
	after, retries, err := w.tryFor(batch)
	for try := 0; Classify(err) == ClassFull && len(batch) == 1 && batch[0].Claim == Frees && w.makeRoom(batch[0], try); try++ {
		after, retries, err = w.tryFor(batch)
		w.takeBack()
	}
	if (Classify(err) == ClassFull || errors.Is(err, ErrNoRoom)) && w.cutForRoom() {
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

// tryFor retries a transaction until the batch's time is over.
func (w *writer) tryFor(batch []*Op) (after []func(), retries int, err error) {
	retries, err = retry(context.Background(), w.patience(batch), func(retries int) error {
		var err error
		after, err = w.transaction(batch, retries)
		w.noteLock(err)
		return err
	})
	return after, retries, err
}

// patience is how long a batch may still wait for a lock. It includes the time for which its
// operations have already waited for the batch before, behind the same lock.
func (w *writer) patience(batch []*Op) time.Duration {
	oldest := time.Now()
	for _, o := range batch {
		if !o.at.IsZero() && o.at.Before(oldest) {
			oldest = o.at
		}
	}
	return max(w.engine.opt.WriteTimeout-time.Since(oldest), time.Millisecond) // 0 would mean forever
}

// errRefusedLate is an operation's refusal after it had changed something. It ends the transaction,
// so that the others are tried without that operation.
type errRefusedLate struct{ error }

func (e errRefusedLate) Unwrap() error { return e.error }

// noteLate records a late refusal, whose own transaction was rolled back.
func (w *writer) noteLate(batch []*Op, err error) {
	var late errRefusedLate
	var refusal *ckpt.Error
	if len(batch) == 1 && batch[0].Refused != nil && errors.As(err, &late) && errors.As(err, &refusal) {
		_ = w.tryAll([]*Op{{Do: func(t *Tx) error { return batch[0].Refused(t, refusal) }}})
	}
}

// transaction is one try. It acknowledges nothing unless the files are still the ones that were
// opened.
func (w *writer) transaction(batch []*Op, retries int) (after []func(), err error) {
	defer w.gotOn()
	if err := w.failed(); err != nil {
		return nil, &FatalError{err}
	}
	if err := w.checkFiles(); err != nil {
		return nil, err
	}
	t := &Tx{Ctx: context.Background(), Conn: w.conn, stmts: w.stmts, gotOn: w.gotOn, Retries: retries}
	if err := w.zero(slices.ContainsFunc(batch, func(o *Op) bool { return o.Zero })); err != nil {
		return nil, err
	}
	defer func() { _ = w.zero(false) }() // if that fails, the next transaction tries it again
	if err := w.write(t, batch); err != nil {
		return nil, err
	}
	if err := w.checkFiles(); err != nil {
		return nil, &FatalError{errAtCommit{err}}
	}
	return t.after, nil
}

// write begins, fills and commits a transaction. At its end the store knows how the transaction ended, so that the store can compare its
// knowledge with the files.
func (w *writer) write(t *Tx, batch []*Op) error {
	if err := w.do(`BEGIN IMMEDIATE`); err != nil {
		return err
	}
	committed := false
	if ended := w.engine.opt.Hooks.Ended; ended != nil {
		defer func() { ended(t, committed) }()
	}
	if err := w.fill(t, batch); err != nil {
		w.rollback(err)
		return err
	}
	w.gotOn()
	if err := w.do(`COMMIT`); err != nil {
		w.rollback(err)
		return commitError(err)
	}
	committed = true
	return nil
}

// fill does everything of a transaction except its commit.
func (w *writer) fill(t *Tx, batch []*Op) error {
	last, err := w.lastWriter(t)
	if err != nil {
		return err
	}
	hooks := &w.engine.opt.Hooks
	if hooks.Begin != nil {
		if err := hooks.Begin(t, last); err != nil {
			return err
		}
	}
	if err := w.applyAll(t, batch, w.engine.reserve.out.Load()); err != nil {
		return err
	}
	if t.adds > 0 {
		if err := w.engine.covered(t, t.adds); err != nil {
			return err
		}
	}
	if hooks.BeforeCommit == nil {
		return nil
	}
	return hooks.BeforeCommit(t)
}

// lastWriter asks SQLite whether another connection has committed since this one last did.
func (w *writer) lastWriter(t *Tx) (LastWriter, error) {
	var version int64
	if _, err := t.Get(&version, `PRAGMA data_version`); err != nil {
		return This, err
	}
	before := w.version
	w.version = version
	switch before {
	case version:
		return This, nil
	case 0:
		return Nobody, nil
	}
	return Another, nil
}

// applyAll runs the operations. An operation that refuses before it has changed anything gets its
// own error and does not affect the others.
func (w *writer) applyAll(t *Tx, batch []*Op, full bool) error {
	defer func() { t.Barred = false }()
	for _, o := range batch {
		t.Barred = o.Claim == Adds && full
		t.Wrote, t.Stored = false, 0
		mark := len(t.after)
		err := guarded(func() error { return o.Do(t) })
		t.gotOn()
		var refusal *ckpt.Error
		switch {
		case err == nil:
		case errors.Is(err, ErrNoRoom), !errors.As(err, &refusal):
			return err
		case t.Wrote:
			return errRefusedLate{err}
		default:
			t.after = t.after[:mark]
			if o.Refused == nil {
				break
			}
			if err := o.Refused(t, refusal); err != nil {
				return err
			}
		}
		o.stored = err == nil && t.Wrote
		if o.err = err; err == nil && t.Wrote && o.Claim == Adds {
			t.adds += o.Size + addedMost
		}
	}
	return nil
}

// guarded turns a panic of an operation into its error. If a caller recovered the panic, as
// net/http does, the writer would stay locked forever.
func guarded(f func() error) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("an operation panicked: %v\n%s", p, debug.Stack())
		}
	}()
	return f()
}

// checkFiles is a fail-stop if the files are not the ones that were opened, or if another program
// wrote them and they are no longer consistent.
func (w *writer) checkFiles() error {
	if w.engine.watch == nil {
		return nil
	}
	err := w.engine.watch.check()
	if errors.Is(err, errTouched) {
		err = w.engine.examine()
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

// close waits until the queue is empty and takes no new operations.
func (w *writer) close() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.closed = true
	for w.leading {
		w.idle.Wait()
	}
	w.stmts.close()
	_ = w.conn.Close()
}
