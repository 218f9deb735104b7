package retention

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"testing"
	"time"

	ckpt "github.com/ckptsidecar/ckptsidecar"
)

// memory is the store that the worker's interface promises, for tests of the
// worker. internal/db has the real store and tests it with the same Worker.
type memory struct {
	mu       sync.Mutex
	runs     map[int64]*memoryRun
	policies map[int64]ckpt.Policy // by agent
	whole    int64                 // the budget of the whole database; 0 for none
	keys     []time.Time
	judgedAt []time.Time
	removals []ckpt.Removal
	lost     []string                                  // removed rollback targets of runs that can be resumed
	calls    []string                                  // the calls, in order
	trouble  func(call string, ids []int64) error      // the error to fail with, before anything is done
	after    func(call string, removed []ckpt.Removal) // called after the removals, inside the transaction
}

type memoryRun struct {
	agent int64
	History
}

func newMemory() *memory {
	return &memory{runs: map[int64]*memoryRun{}, policies: map[int64]ckpt.Policy{}}
}

// begin starts a transaction.
func (m *memory) begin(ctx context.Context, call string, ids ...int64) (end func(), err error) {
	m.mu.Lock()
	m.calls = append(m.calls, call)
	if ctx.Err() != nil {
		err = ckpt.Wrap(ckpt.CodeBusy, ctx.Err(), "given up")
	} else if m.trouble != nil {
		err = m.trouble(call, ids)
	}
	if err != nil {
		m.mu.Unlock()
		return nil, err
	}
	return m.mu.Unlock, nil
}

func (m *memory) policy(r *memoryRun) ckpt.Policy {
	if p, ok := m.policies[r.agent]; ok {
		return p
	}
	return ckpt.DefaultPolicy()
}

func (m *memory) sorted() []int64 { return slices.Sorted(maps.Keys(m.runs)) }

func (m *memory) Due(ctx context.Context, now time.Time, after int64, limit int) ([]int64, error) {
	end, err := m.begin(ctx, "due")
	if err != nil {
		return nil, err
	}
	defer end()
	var due []int64
	for _, id := range m.sorted() {
		r := m.runs[id]
		some := slices.ContainsFunc(Plan(r.History, m.policy(r), now), func(v Verdict) bool { return v.Remove })
		if id > after && len(due) < limit && (some || Over(r.History, m.policy(r), now)) {
			due = append(due, id)
		}
	}
	return due, nil
}

// wayBack returns the rollback target of a run: its newest clean checkpoint, or
// its newest if none is clean.
func wayBack(newestFirst []Held) string {
	for _, c := range newestFirst {
		if !c.Suspect {
			return c.ID
		}
	}
	return newestFirst[0].ID
}

// remove removes what the verdicts say, at most limit checkpoints.
func (m *memory) remove(verdicts []Verdict, limit int, dry bool) []ckpt.Removal {
	var removed []ckpt.Removal
	for _, v := range verdicts {
		if !v.Remove || !dry && len(removed) == limit {
			continue
		}
		for _, id := range m.sorted() {
			r := m.runs[id]
			i := slices.IndexFunc(r.Checkpoints, func(c Held) bool { return c.ID == v.ID })
			if i < 0 {
				continue
			}
			c := r.Checkpoints[i]
			if r.Status.Resumable() && c.ID == wayBack(r.Checkpoints) {
				m.lost = append(m.lost, fmt.Sprintf("%+v", c))
			}
			removed = append(removed, ckpt.Removal{Checkpoint: c.ID, Agent: fmt.Sprint(r.agent), Run: fmt.Sprint(id),
				Kind: c.Kind, Seq: c.Seq, StoredSize: c.StoredSize, Reason: v.Reason})
			if !dry {
				r.Checkpoints = slices.Delete(slices.Clone(r.Checkpoints), i, i+1)
			}
		}
	}
	if !dry {
		m.removals = append(m.removals, removed...)
	}
	return removed
}

func (m *memory) Apply(ctx context.Context, runs []int64, plan Func, now time.Time, limit int, dry bool) ([]ckpt.Removal, error) {
	end, err := m.begin(ctx, "apply", runs...)
	if err != nil {
		return nil, err
	}
	defer end()
	var all []Verdict
	for _, id := range runs {
		if r := m.runs[id]; r != nil {
			verdicts := plan(r.History, m.policy(r), now)
			slices.Reverse(verdicts)
			all = append(all, verdicts...)
		}
	}
	removed := m.remove(all, limit, dry)
	if m.after != nil {
		m.after("apply", removed)
	}
	return removed, nil
}

func (m *memory) Drop(ctx context.Context, runs []int64, over func(History, ckpt.Policy, time.Time) bool, now time.Time) (int, bool, error) {
	end, err := m.begin(ctx, "drop", runs...)
	if err != nil {
		return 0, false, err
	}
	defer end()
	for _, id := range runs {
		if r := m.runs[id]; r != nil && len(r.Checkpoints) == 0 && over(r.History, m.policy(r), now) {
			delete(m.runs, id)
			return 1, true, nil // one at a time, so that the worker tries more
		}
	}
	return 0, false, nil
}

// excess returns how much an agent or the whole database exceeds its budget.
func (m *memory) excess(agent int64) int64 {
	budget := m.policies[agent].MaxBytes
	if agent == wholeDatabase {
		budget = m.whole
	}
	if budget == 0 {
		return 0
	}
	var stored int64
	for _, h := range m.histories(agent) {
		for _, c := range h.Checkpoints {
			stored += c.StoredSize
		}
	}
	return stored - budget
}

func (m *memory) histories(agent int64) []History {
	var list []History
	for _, id := range m.sorted() {
		if r := m.runs[id]; agent == wholeDatabase || r.agent == agent {
			list = append(list, r.History)
		}
	}
	return list
}

func (m *memory) OverBudget(ctx context.Context, after int64, limit int) ([]int64, error) {
	end, err := m.begin(ctx, "over_budget")
	if err != nil {
		return nil, err
	}
	defer end()
	var over []int64
	for _, agent := range slices.Sorted(maps.Keys(m.policies)) {
		if agent > after && len(over) < limit && m.excess(agent) > 0 {
			over = append(over, agent)
		}
	}
	return over, nil
}

func (m *memory) Trim(ctx context.Context, agent int64, budget func([]History, int64) ([]Verdict, int64), limit int, dry bool) ([]ckpt.Removal, int64, error) {
	end, err := m.begin(ctx, "trim", agent)
	if err != nil {
		return nil, 0, err
	}
	defer end()
	verdicts, short := budget(m.histories(agent), m.excess(agent))
	removed := m.remove(verdicts, limit, dry)
	if m.after != nil {
		m.after("trim", removed)
	}
	if dry {
		return removed, short, nil
	}
	return removed, m.excess(agent), nil
}

func (m *memory) Expire(ctx context.Context, before time.Time, limit int) (int, error) {
	end, err := m.begin(ctx, "expire")
	if err != nil {
		return 0, err
	}
	defer end()
	n := 0
	m.keys = slices.DeleteFunc(m.keys, func(at time.Time) bool {
		gone := n < limit && at.Before(before)
		if gone {
			n++
		}
		return gone
	})
	return n, nil
}

func (m *memory) Judged(ctx context.Context, at time.Time) error {
	end, err := m.begin(ctx, "judged")
	if err != nil {
		return err
	}
	defer end()
	m.judgedAt = append(m.judgedAt, at)
	return nil
}

// save does what a save does in its transaction: it adds the checkpoint and
// applies the plan.
func (m *memory) save(run int64, c Held, now time.Time) {
	m.mu.Lock()
	defer m.mu.Unlock()
	r := m.runs[run]
	c.Seq = 1
	for _, old := range r.Checkpoints {
		c.Seq = max(c.Seq, old.Seq+1)
	}
	r.Checkpoints = slices.Insert(slices.Clone(r.Checkpoints), 0, c)
	m.remove(Plan(r.History, m.policy(r), now), len(r.Checkpoints), false)
}

// add adds a run with checkpoints of a kind and these ages, oldest first.
func (m *memory) add(run, agent int64, kind ckpt.Kind, ages ...time.Duration) *memoryRun {
	r := m.runs[run]
	if r == nil {
		r = &memoryRun{agent: agent, History: History{Status: ckpt.RunRunning}}
		m.runs[run] = r
	}
	for _, age := range ages {
		seq := int64(1)
		for _, c := range r.Checkpoints {
			seq = max(seq, c.Seq+1)
		}
		r.Checkpoints = slices.Insert(r.Checkpoints, 0, Held{ID: fmt.Sprintf("%d/%d", run, seq), Seq: seq,
			Kind: kind, CreatedAt: noon.Add(-age), StoredSize: 100})
	}
	return r
}

// left returns the ids of the remaining checkpoints.
func (m *memory) left() []string {
	m.mu.Lock()
	defer m.mu.Unlock()
	var ids []string
	for _, r := range m.runs {
		for _, c := range r.Checkpoints {
			ids = append(ids, c.ID)
		}
	}
	slices.SortFunc(ids, func(a, b string) int { return cmp.Or(cmp.Compare(len(a), len(b)), cmp.Compare(a, b)) })
	return ids
}

func ids(removed []ckpt.Removal) (list []string) {
	for _, r := range removed {
		list = append(list, r.Checkpoint)
	}
	return list
}

// testWorker returns a worker on a store, at noon, with a trusted clock.
func testWorker(t *testing.T, m *memory) (*Worker, *clocks) {
	t.Helper()
	c := &clocks{wall: noon.Add(-time.Hour)}
	w := &Worker{Store: m, Guard: NewGuard(c.settings()), Pause: time.Nanosecond}
	c.pass(time.Hour)
	return w, c
}

func once(t *testing.T, w *Worker) Result {
	t.Helper()
	result, err := w.Once(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return result
}
