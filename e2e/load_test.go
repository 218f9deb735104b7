//go:build e2e && linux

package e2e

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	ckpt "github.com/ckptsidecar/ckptsidecar"
)

// trial collects what became of the saves of all parts, as a table for OPERATIONS.md.
type trial struct{ rows []string }

func (tr *trial) add(part string, acknowledged, lost, failed int, longest time.Duration) {
	tr.rows = append(tr.rows, fmt.Sprintf("| %s | %d | %d | %d | %v |", part, acknowledged, lost, failed, longest.Round(time.Millisecond)))
}

// load saves from several clients until it is stopped, and remembers the
// acknowledged saves.
type load struct {
	m     *machine
	name  string
	end   context.CancelFunc
	done  sync.WaitGroup
	acked atomic.Int64

	mu      sync.Mutex
	saved   map[string]string // the hash of each acknowledged state, by id
	longest time.Duration
	failed  []error
}

func (m *machine) load(name string, clients int) *load {
	ctx, cancel := context.WithCancel(context.Background())
	l := &load{m: m, name: name, end: cancel, saved: map[string]string{}}
	for n := range clients {
		l.done.Go(func() { l.client(ctx, fmt.Sprintf("%s-%d", name, n)) })
	}
	return l
}

func (l *load) client(ctx context.Context, agent string) {
	c := l.m.client()
	for n := 0; ctx.Err() == nil; n++ {
		state := fmt.Appendf(nil, `{"agent":%q,"n":%d}`, agent, n)
		began := time.Now()
		saved, err := c.Save(context.Background(), &ckpt.SaveRequest{Agent: agent, Kind: ckpt.KindRecovery, ContentType: ckpt.ContentTypeJSON, State: state})
		took := time.Since(began)
		l.mu.Lock()
		l.longest = max(l.longest, took)
		if err != nil {
			l.failed = append(l.failed, err)
		} else {
			sum := sha256.Sum256(state)
			l.saved[saved.ID] = hex.EncodeToString(sum[:])
			l.acked.Add(1)
		}
		l.mu.Unlock()
		time.Sleep(2 * time.Millisecond)
	}
}

// finish ends the load and checks that everything that was acknowledged is
// there.
func (l *load) finish(t *testing.T) {
	t.Helper()
	l.end()
	l.done.Wait()
	for _, err := range l.failed {
		t.Errorf("a save failed for good: %v", err)
	}
	c, lost := l.m.client(), 0
	for id, hash := range l.saved {
		ck, err := c.Checkpoint(context.Background(), id, true)
		sum := sha256.Sum256(nil)
		if err == nil {
			sum = sha256.Sum256(ck.State)
		}
		if err != nil || hex.EncodeToString(sum[:]) != hash {
			if lost++; lost <= 3 {
				t.Errorf("the acknowledged %s is not there as it was: %v", id, err)
			}
		}
	}
	l.m.trial.add(l.name, len(l.saved), lost, len(l.failed), l.longest)
	t.Logf("%d saves were acknowledged, %d of them are lost, %d failed; the longest took %v", len(l.saved), lost, len(l.failed), l.longest.Round(time.Millisecond))
}
