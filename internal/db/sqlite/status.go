package sqlite

import (
	"fmt"
	"time"

	ckpt "github.com/ckptsidecar/ckptsidecar"
)

// Ready returns nil while writes are acknowledged, else the reason why they are not.
func (e *Engine) Ready() error {
	if err := e.writer.failed(); err != nil {
		return stopped(err)
	}
	if e.readOnly != "" {
		return ckpt.Errorf(ckpt.CodeCorrupt, "only reads are served: %s", e.readOnly)
	}
	if problem := e.LockedProblem(); problem != "" {
		return &ckpt.Error{Code: ckpt.CodeBusy, Message: problem, RetryAfter: time.Second}
	}
	return nil
}

// LogStatus says how the copying of the write-ahead log goes.
type LogStatus struct {
	Pending  int64     // bytes that wait to be copied
	Failures int64     // in a row
	Last     time.Time // when the last copy succeeded; zero if none did
}

// LogStatus says how the copying of the write-ahead log goes.
func (e *Engine) LogStatus() LogStatus {
	st := LogStatus{Pending: e.wal.pending(), Failures: e.wal.failures.Load()}
	if last := e.wal.last.Load(); last > 0 {
		st.Last = time.UnixMilli(last)
	}
	return st
}

// WriterStatus says how writing has gone since the start.
func (e *Engine) WriterStatus() ckpt.WriterStatus {
	w := e.writer
	w.mu.Lock()
	defer w.mu.Unlock()
	ms := func(q float64) float64 { return float64(w.stats.quantile(q).Microseconds()) / 1000 }
	return ckpt.WriterStatus{
		Commits: w.stats.commits, Operations: w.stats.operations, Retries: w.stats.retries, Failures: w.stats.failures,
		Waiting: w.queue.len(), CommitP50: ms(0.5), CommitP99: ms(0.99),
	}
}

// Full says whether the space that is kept for deletes is released.
func (e *Engine) Full() bool { return e.reserve.out.Load() }

// RoomProblems lists what is wrong with the write-ahead log and with the space on the disk, most
// important first.
func (e *Engine) RoomProblems() (list []string) {
	if n := e.wal.failures.Load(); n > 0 {
		last, _ := e.wal.lastErr.Load().(string)
		list = append(list, fmt.Sprintf("the write-ahead log could not be copied into the database, %d times in a "+
			"row: %s; saves go on, but check the disk", n, last))
	}
	if pending := e.wal.pending(); pending > LogAlarm {
		list = append(list, fmt.Sprintf("%d MiB wait in the write-ahead log, because a reader holds an old snapshot: "+
			"end the programs that read the database for long", pending>>20))
	}
	if e.reserve.out.Load() {
		list = append(list, e.reserve.problem())
	} else if e.writer.refusesSaves() {
		list = append(list, "saves are refused, because the disk or the database is full: free space, "+
			"or delete checkpoints; reads and deletes go on")
	}
	return list
}

// Waiting is how many operations are in the writer's queue.
func (e *Engine) Waiting() int {
	e.writer.mu.Lock()
	defer e.writer.mu.Unlock()
	return e.writer.queue.len()
}

// refusesSaves says that there was no space for the last operation that stores something.
func (w *writer) refusesSaves() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.stats.full
}
