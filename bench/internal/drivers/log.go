package drivers

import (
	"context"
	"os"
	"path/filepath"
	"sync"

	"github.com/ckptsidecar/ckptsidecar/bench/internal/host"
	"github.com/ckptsidecar/ckptsidecar/bench/internal/load"
)

// appended measures the limit of the disk: one file. A caller that finds the file free appends the
// states of all waiting callers, and flushes it once for them.
type appended struct {
	file *os.File

	mu      sync.Mutex
	busy    bool
	waiting []byte
	spare   []byte // the memory of an old batch, to reuse
	next    *batch // the batch that the waiting callers share
}

type batch struct {
	lead chan struct{} // tells one of the waiting callers to write the batch
	done chan struct{}
	err  error
}

func newBatch() *batch {
	return &batch{lead: make(chan struct{}, 1), done: make(chan struct{})}
}

func openLog(_ context.Context, dir string) (load.Store, error) {
	f, err := os.OpenFile(filepath.Join(dir, "log"), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	return &appended{file: f, next: newBatch()}, err
}

func (s *appended) Version() string { return "" }
func (s *appended) Close() error    { return s.file.Close() }

func (s *appended) Client(_ context.Context, _ load.Client, body func(load.Save) error) error {
	return body(func(_ int, state []byte) error { return s.append(state) })
}

// append returns when the bytes are on the disk.
func (s *appended) append(state []byte) error {
	s.mu.Lock()
	s.waiting = append(s.waiting, state...)
	mine := s.next
	if s.busy {
		s.mu.Unlock()
		select {
		case <-mine.done:
			return mine.err
		case <-mine.lead:
			s.mu.Lock()
		}
	}
	s.busy = true
	s.flush()
	if s.busy = len(s.waiting) > 0; s.busy {
		s.next.lead <- struct{}{}
	}
	s.mu.Unlock()
	return mine.err
}

// flush writes the waiting states. It does not hold the lock meanwhile, so that other callers can
// add more.
func (s *appended) flush() {
	bytes, now := s.waiting, s.next
	s.waiting, s.next = s.spare[:0], newBatch()
	s.mu.Unlock()
	if _, now.err = s.file.Write(bytes); now.err == nil {
		now.err = host.SyncData(s.file)
	}
	close(now.done)
	s.mu.Lock()
	s.spare = bytes
}
