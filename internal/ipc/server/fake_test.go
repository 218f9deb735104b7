package server

import (
	"bufio"
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	ckpt "github.com/ckptsidecar/ckptsidecar"
	"github.com/ckptsidecar/ckptsidecar/internal/wellformed"
)

// fakeStore keeps checkpoints in memory, for tests of the protocol alone. The
// real store is tested where the rooms are wired.
type fakeStore struct {
	mu       sync.Mutex
	list     []*ckpt.Checkpoint
	seen     map[string]string // id or key: hash of the request
	refusals []ckpt.Refusal
	policy   ckpt.Policy
	imported []byte
	restored []ckpt.RestoreRequest
	bases    atomic.Int64 // that were asked for

	onSave   func(context.Context, *ckpt.SaveRequest) error
	onRead   func(context.Context) error
	onExport func(io.Writer) error
	notReady error
}

func newFakeStore() *fakeStore {
	return &fakeStore{seen: make(map[string]string), policy: ckpt.DefaultPolicy()}
}

func (f *fakeStore) Save(ctx context.Context, sc ckpt.Scope, r *ckpt.SaveRequest) (*ckpt.Saved, error) {
	if err := wellformed.Save(r); err != nil {
		return nil, err
	}
	sent := r.State
	if f.onSave != nil {
		if err := f.onSave(ctx, r); err != nil {
			return nil, err
		}
	}
	asSent := bytes.Equal(sent, r.State)
	f.mu.Lock()
	defer f.mu.Unlock()
	sum := sha256.Sum256(r.State)
	key, print := r.IdempotencyKey, fmt.Sprint(r.Kind, r.Labels, string(r.Metadata), r.ContentType, sum)
	if r.ID != "" {
		key = r.ID
	}
	if old, known := f.seen[key]; known && key != "" {
		if old != print {
			return nil, ckpt.Errorf(ckpt.CodeIdempotencyMismatch, "the key came before with another request")
		}
		return &ckpt.Saved{Checkpoint: withoutState(f.find(sc, key)), Pruned: []string{}, Replayed: true, AsSent: asSent}, nil
	}
	ck := f.add(sc, r, hex.EncodeToString(sum[:]))
	f.seen[key] = print
	return &ckpt.Saved{Checkpoint: withoutState(ck), Pruned: f.prune(ck), AsSent: asSent}, nil
}

func (f *fakeStore) add(sc ckpt.Scope, r *ckpt.SaveRequest, sum string) *ckpt.Checkpoint {
	ck := &ckpt.Checkpoint{
		ID: r.ID, Agent: r.Agent, Owner: sc.Whose(), Run: r.Run, Seq: int64(len(f.list) + 1), Kind: r.Kind, Parent: r.Parent,
		CreatedAt: ckpt.At(time.Date(2025, 1, 2, 3, 4, 5, 6e6, time.UTC)), Size: int64(len(r.State)), StoredSize: int64(len(r.State)),
		SHA256: sum, ContentType: r.ContentType, Labels: r.Labels, Metadata: r.Metadata, Program: r.Program, Step: r.Step, State: r.State,
	}
	if ck.ID == "" {
		ck.ID, _ = newTestID()
	}
	if ck.Run == "" {
		ck.Run = ckpt.MainRun
	}
	f.list = append(f.list, ck)
	return ck
}

// prune keeps three routine checkpoints of a run.
func (f *fakeStore) prune(ck *ckpt.Checkpoint) []string {
	gone, kept := []string{}, 0
	for i := len(f.list) - 1; i >= 0; i-- {
		c := f.list[i]
		if c.Agent != ck.Agent || c.Owner != ck.Owner || c.Run != ck.Run || c.Kind != ckpt.KindRoutine {
			continue
		}
		if kept++; kept > 3 {
			gone = append(gone, c.ID)
			f.list = slices.Delete(f.list, i, i+1)
		}
	}
	return gone
}

func withoutState(ck *ckpt.Checkpoint) ckpt.Checkpoint {
	copied := *ck
	copied.State = nil
	return copied
}

func (f *fakeStore) find(sc ckpt.Scope, id string) *ckpt.Checkpoint {
	for _, ck := range f.list {
		if ck.ID == id && (sc.Whose() == ck.Owner || sc.Target == ckpt.AllOwners) {
			return ck
		}
	}
	return nil
}

func noSuch(id string) error { return ckpt.Errorf(ckpt.CodeNotFound, "there is no %s", id) }

func (f *fakeStore) Checkpoint(ctx context.Context, sc ckpt.Scope, id string, state bool) (*ckpt.Checkpoint, error) {
	if f.onRead != nil {
		if err := f.onRead(ctx); err != nil {
			return nil, err
		}
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	ck := f.find(sc, id)
	if ck == nil {
		return nil, noSuch(id)
	}
	copied := *ck
	if !state {
		copied.State = nil
	}
	return &copied, nil
}

func (f *fakeStore) Memory(size int) []byte { return make([]byte, size) }

func (f *fakeStore) Base(ctx context.Context, sc ckpt.Scope, agent, id string) ([]byte, string, func(), error) {
	f.bases.Add(1)
	ck, err := f.Checkpoint(ctx, sc, id, true)
	if err != nil || ck.Agent != agent {
		return nil, "", nil, noSuch(id)
	}
	return ck.State, ck.SHA256, func() {}, nil
}

func (f *fakeStore) Checkpoints(ctx context.Context, sc ckpt.Scope, cf ckpt.CheckpointFilter) (*ckpt.CheckpointPage, error) {
	if f.onRead != nil {
		if err := f.onRead(ctx); err != nil {
			return nil, err
		}
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	page := &ckpt.CheckpointPage{}
	for _, ck := range slices.Backward(f.list) {
		if ck.Agent == cf.Agent && ck.Owner == sc.Whose() && (cf.Kind == "" || cf.Kind == ck.Kind) && (cf.Run == "" || cf.Run == ck.Run) {
			page.Checkpoints = append(page.Checkpoints, withoutState(ck))
		}
		if cf.Limit > 0 && len(page.Checkpoints) == cf.Limit {
			page.Next = "more"
			break
		}
	}
	return page, nil
}

func (f *fakeStore) Latest(ctx context.Context, sc ckpt.Scope, cf ckpt.CheckpointFilter, state bool) (*ckpt.Checkpoint, error) {
	page, err := f.Checkpoints(ctx, sc, cf)
	if err != nil {
		return nil, err
	}
	if len(page.Checkpoints) == 0 {
		return nil, noSuch(cf.Agent)
	}
	return f.Checkpoint(ctx, sc, page.Checkpoints[0].ID, state)
}

func (f *fakeStore) Patch(_ context.Context, sc ckpt.Scope, id string, p ckpt.CheckpointPatch) (*ckpt.Checkpoint, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	ck := f.find(sc, id)
	if ck == nil {
		return nil, noSuch(id)
	}
	if p.Labels != nil {
		ck.Labels = *p.Labels
	}
	if p.Pinned != nil {
		ck.Pinned = *p.Pinned
	}
	copied := withoutState(ck)
	return &copied, nil
}

func (f *fakeStore) Delete(_ context.Context, sc ckpt.Scope, id string) (*ckpt.Removal, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	ck := f.find(sc, id)
	if ck == nil {
		return nil, noSuch(id)
	}
	f.list = slices.DeleteFunc(f.list, func(c *ckpt.Checkpoint) bool { return c == ck })
	return &ckpt.Removal{Checkpoint: id, Agent: ck.Agent, Run: ck.Run, Kind: ck.Kind, Seq: ck.Seq, Reason: "asked"}, nil
}

func (f *fakeStore) Restore(ctx context.Context, sc ckpt.Scope, r ckpt.RestoreRequest) (*ckpt.Checkpoint, bool, error) {
	f.mu.Lock()
	f.restored = append(f.restored, r)
	f.mu.Unlock()
	if r.Checkpoint != "" {
		ck, err := f.Checkpoint(ctx, sc, r.Checkpoint, true)
		return ck, false, err
	}
	ck, err := f.Latest(ctx, sc, ckpt.CheckpointFilter{Agent: r.Agent, Run: r.Run, Kind: r.Kind}, true)
	return ck, false, err
}

func (f *fakeStore) Agents(context.Context, ckpt.Scope, ckpt.AgentFilter) (*ckpt.AgentPage, error) {
	return &ckpt.AgentPage{Agents: []ckpt.Agent{{Agent: "a", Owner: "uid:1"}}}, nil
}

func (f *fakeStore) Policy(context.Context, ckpt.Scope, string) (*ckpt.Policy, error) {
	return &f.policy, nil
}

func (f *fakeStore) SetPolicy(_ context.Context, _ ckpt.Scope, _ string, p ckpt.Policy) (*ckpt.Policy, error) {
	f.policy = p
	return &p, nil
}

func (f *fakeStore) Erase(_ context.Context, sc ckpt.Scope, agent string) (*ckpt.Erased, error) {
	return &ckpt.Erased{Agent: agent, Owner: sc.Whose()}, nil
}

func (f *fakeStore) Prune(_ context.Context, _ ckpt.Scope, r ckpt.PruneRequest, key string) (*ckpt.PruneReport, bool, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	_, again := f.seen[key]
	f.seen[key] = ""
	return &ckpt.PruneReport{DryRun: r.DryRun, Removed: []ckpt.Removal{}}, again, nil
}

func (f *fakeStore) Export(_ context.Context, _ ckpt.Scope, agent string, w io.Writer) error {
	if f.onExport != nil {
		return f.onExport(w)
	}
	b := bufio.NewWriter(w)
	for i := range 1000 {
		fmt.Fprintf(b, "{\"agent\":%q,\"line\":%d}\n", agent, i)
	}
	return b.Flush()
}

func (f *fakeStore) Import(_ context.Context, _ ckpt.Scope, r ckpt.ImportRequest, body io.Reader) (*ckpt.ImportReport, error) {
	text, err := io.ReadAll(body)
	if err != nil {
		return nil, err
	}
	f.imported = text
	return &ckpt.ImportReport{Agent: r.Agent, Imported: len(text), Pruned: []string{}}, nil
}

func (f *fakeStore) Audit(_ context.Context, sc ckpt.Scope, _ ckpt.AuditFilter) (*ckpt.AuditPage, error) {
	return &ckpt.AuditPage{Audit: []ckpt.AuditRow{{N: 1, Who: sc.Owner, Detail: []byte("{}")}}}, nil
}

func (f *fakeStore) Refused(_ context.Context, _ ckpt.Scope, r ckpt.Refusal) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.refusals = append(f.refusals, r)
}

func (f *fakeStore) Status(_ context.Context, sc ckpt.Scope) (*ckpt.Status, error) {
	return &ckpt.Status{Version: sc.Owner, State: "ready", Problems: []string{}}, nil
}

func (f *fakeStore) Ready(context.Context) error { return f.notReady }

func (f *fakeStore) Health() (string, []string) { return "ready", nil }
