package server

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"

	ckpt "github.com/ckptsidecar/ckptsidecar"
	"github.com/ckptsidecar/ckptsidecar/internal/db"
	"github.com/ckptsidecar/ckptsidecar/internal/db/ledger"
	"github.com/ckptsidecar/ckptsidecar/internal/expect"
	"github.com/ckptsidecar/ckptsidecar/internal/retention"
	"github.com/ckptsidecar/ckptsidecar/internal/secrets"
)

// scripted is the real store, over a file, behind a script. The script does what a test cannot make a real store do
// at the right moment: fail, wait, panic, or have damage. It also counts calls.
type scripted struct {
	*db.Store
	bases atomic.Int64 // how many bases were requested

	onSave   func(context.Context, *ckpt.SaveRequest) error // before a save; it must not change what is saved
	onRead   func(context.Context) error                    // before one or many checkpoints are read
	onBase   func(state []byte) []byte                      // replaces the state of a base
	onExport func(io.Writer) error                          // replaces an export
	notReady error

	mu       sync.Mutex
	restored []ckpt.RestoreRequest
}

// openStore opens a new database in a temporary folder of the test.
func openStore(t testing.TB) *db.Store {
	t.Helper()
	s, err := db.Open(context.Background(), ledger.Options{
		Path: filepath.Join(t.TempDir(), "ckpt.db"), Retention: retention.Plan, Secrets: secrets.Scan{}, ReserveBytes: -1, Version: "test",
	})
	expect.OK(t, err)
	t.Cleanup(func() { expect.OK(t, s.Close()) })
	return s
}

func (s *scripted) Save(ctx context.Context, sc ckpt.Scope, r *ckpt.SaveRequest) (*ckpt.Saved, error) {
	if s.onSave != nil {
		if err := s.onSave(ctx, r); err != nil {
			return nil, err
		}
	}
	return s.Store.Save(ctx, sc, r)
}

func (s *scripted) Checkpoint(ctx context.Context, sc ckpt.Scope, id string, state bool) (*ckpt.Checkpoint, error) {
	if s.onRead != nil {
		if err := s.onRead(ctx); err != nil {
			return nil, err
		}
	}
	return s.Store.Checkpoint(ctx, sc, id, state)
}

func (s *scripted) Checkpoints(ctx context.Context, sc ckpt.Scope, f ckpt.CheckpointFilter) (*ckpt.CheckpointPage, error) {
	if s.onRead != nil {
		if err := s.onRead(ctx); err != nil {
			return nil, err
		}
	}
	return s.Store.Checkpoints(ctx, sc, f)
}

func (s *scripted) Base(ctx context.Context, sc ckpt.Scope, agent, id string) ([]byte, string, func(), error) {
	s.bases.Add(1)
	state, sum, release, err := s.Store.Base(ctx, sc, agent, id)
	if err == nil && s.onBase != nil {
		state = s.onBase(state)
	}
	return state, sum, release, err
}

func (s *scripted) Restore(ctx context.Context, sc ckpt.Scope, r ckpt.RestoreRequest) (*ckpt.Checkpoint, bool, error) {
	s.mu.Lock()
	s.restored = append(s.restored, r)
	s.mu.Unlock()
	return s.Store.Restore(ctx, sc, r)
}

func (s *scripted) ExportAgents(ctx context.Context, sc ckpt.Scope, r ckpt.ExportRequest, w io.Writer) error {
	if s.onExport != nil {
		return s.onExport(w)
	}
	return s.Store.ExportAgents(ctx, sc, r, w)
}

func (s *scripted) Ready(ctx context.Context) error {
	if s.notReady != nil {
		return s.notReady
	}
	return s.Store.Ready(ctx)
}

// me is the user of this process, as the kernel identifies the peer of a socket.
func me() ckpt.Scope { return ckpt.Scope{Caller: ckpt.Caller{Owner: fmt.Sprint("uid:", os.Getuid())}} }

// stored returns the checkpoints of an agent of the current identity.
func (w *world) stored(agent string) []ckpt.Checkpoint {
	w.t.Helper()
	sc := me()
	w.mu.Lock()
	if w.peer != nil {
		sc.Caller.Owner = w.peer.Owner
	}
	w.mu.Unlock()
	page, err := w.store.Store.Checkpoints(w.t.Context(), sc, ckpt.CheckpointFilter{Agent: agent, Limit: ckpt.MaxLimit})
	if ckpt.CodeOf(err) == ckpt.CodeNotFound {
		return nil
	}
	expect.OK(w.t, err)
	return page.Checkpoints
}

// refusals returns the rows of the audit log about refused requests.
func (w *world) refusals() (rows []ckpt.AuditRow) {
	w.t.Helper()
	all := ckpt.Scope{Caller: ckpt.Caller{Owner: "uid:0", Admin: true}, Target: ckpt.AllOwners}
	for f := (ckpt.AuditFilter{Limit: ckpt.MaxLimit}); ; {
		page, err := w.store.Audit(w.t.Context(), all, f)
		expect.OK(w.t, err)
		for _, row := range page.Audit {
			if row.Outcome == string(ckpt.CodeDenied) {
				rows = append(rows, row)
			}
		}
		if page.Next == nil {
			return rows
		}
		f.After = *page.Next
	}
}

// nowhere is a store that no test calls.
type nowhere struct{ database }

func (nowhere) Refused(context.Context, ckpt.Scope, ckpt.Refusal) {}
