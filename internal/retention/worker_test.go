package retention

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	ckpt "github.com/ckptsidecar/ckptsidecar"
)

const week = 7 * ckpt.Day

func want[T any](t *testing.T, what string, want, got T) {
	t.Helper()
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("%s (-want +got)\n%s", what, diff)
	}
}

// busyDay is a store with work of every kind.
func busyDay() *memory {
	m := newMemory()
	m.add(1, 1, ckpt.KindRecovery, week, week-time.Millisecond)
	m.add(1, 1, ckpt.KindRoutine, time.Hour)
	old := m.add(2, 1, ckpt.KindRoutine, 40*ckpt.Day, 39*ckpt.Day)
	old.Status, old.EndedAt = ckpt.RunCompleted, noon.Add(-30*ckpt.Day)
	held := m.add(3, 1, ckpt.KindRoutine, 40*ckpt.Day, 39*ckpt.Day)
	held.Status, held.EndedAt = ckpt.RunFailed, noon.Add(-30*ckpt.Day)
	held.Checkpoints[0].Pinned = true
	m.add(4, 2, ckpt.KindRoutine, 5*time.Hour, 4*time.Hour, 3*time.Hour, 2*time.Hour) // the policy was changed
	m.policies[2] = ckpt.Policy{RoutineKeep: 3, RecoveryKeep: ckpt.Duration(week), MaxBytes: 200}
	m.add(5, 3, ckpt.KindRoutine, time.Hour)
	m.keys = []time.Time{noon.Add(-week - 1), noon.Add(-week), noon}
	return m
}

func TestOnceDoesEverything(t *testing.T) {
	m := busyDay()
	w, _ := testWorker(t, m)
	result := once(t, w)
	want(t, "result", Result{Removed: 6, Dropped: 1, Expired: 1}, result)
	want(t, "left", []string{"1/2", "1/3", "3/2", "4/3", "4/4", "5/1"}, m.left())
	want(t, "gone", []string{"1/1", "2/1", "2/2", "3/1", "4/1", "4/2"}, ids(m.removals))
	want(t, "runs", []int64{1, 3, 4, 5}, m.sorted())
	want(t, "keys", 2, len(m.keys))
	want(t, "judged", []time.Time{noon}, m.judgedAt)
	for _, r := range m.removals {
		if r.Reason == "" {
			t.Errorf("%s went without a reason", r.Checkpoint)
		}
	}
	want(t, "status", ckpt.WorkerStatus{LastRun: ckpt.At(noon), Removed: 6}, w.Status())
	want(t, "a second round", Result{}, once(t, w))
}

func TestOnceDryRunSaysWhatOnceDoes(t *testing.T) {
	m := busyDay()
	before := m.left()
	w, _ := testWorker(t, m)
	w.DryRun = true
	dry := once(t, w)
	want(t, "left", before, m.left())
	want(t, "keys", 3, len(m.keys))
	want(t, "judged", 0, len(m.judgedAt))
	want(t, "status", ckpt.WorkerStatus{}, w.Status())
	w.DryRun = false
	once(t, w)
	want(t, "would", m.removals, dry.Would)
	want(t, "count", len(dry.Would), dry.Removed)
}

func TestOnceGuarded(t *testing.T) {
	m := busyDay()
	w, c := testWorker(t, m)
	c.jump(10 * 365 * ckpt.Day)
	result := once(t, w)
	want(t, "result", Result{Removed: 2, Guarded: true}, result)
	want(t, "gone", []string{"4/1", "4/2"}, ids(m.removals)) // by count and by budget
	want(t, "keys", 3, len(m.keys))
	want(t, "judged", []time.Time{{}}, m.judgedAt)
	want(t, "guarded until", ckpt.At(c.wall.Add(10*time.Minute)), w.Status().GuardedUntil)

	c.jump(-10 * 365 * ckpt.Day)
	once(t, w) // this notices the jump
	c.pass(10 * time.Minute)
	want(t, "after the guard", Result{Removed: 5, Dropped: 1, Expired: 2}, once(t, w))
}

// TestOnceJumpInTheMiddle: the clock jumps during a round. From the next
// transaction on, nothing is removed for its age.
func TestOnceJumpInTheMiddle(t *testing.T) {
	m := newMemory()
	for run := range int64(6) {
		m.add(run+1, 1, ckpt.KindRecovery, 2*week)
		m.add(run+1, 1, ckpt.KindRoutine, time.Hour)
	}
	m.keys = []time.Time{noon.Add(-2 * week)}
	w, c := testWorker(t, m)
	w.Slice = 2
	m.after = func(string, []ckpt.Removal) { c.jump(-ckpt.Day) }
	result := once(t, w)
	want(t, "gone", []string{"1/1", "2/1"}, ids(m.removals))
	want(t, "result", Result{Removed: 2, Guarded: true}, result)
	want(t, "judged", []time.Time{{}}, m.judgedAt)
}

func TestOnceJumpBetweenKeys(t *testing.T) {
	m := newMemory()
	m.keys = slices.Repeat([]time.Time{noon.Add(-2 * week)}, 25)
	w, c := testWorker(t, m)
	w.Slice = 1
	m.trouble = func(call string, _ []int64) error {
		if call == "expire" && len(m.keys) == 15 {
			c.jump(ckpt.Day)
		}
		return nil
	}
	want(t, "result", Result{Expired: 20, Guarded: true}, once(t, w)) // the second ten were in progress
}

func TestOnceWorksInSlices(t *testing.T) {
	m := newMemory()
	for run := int64(1); run <= 120; run++ {
		m.add(run, 1, ckpt.KindRecovery, 2*week, 2*week, 2*week)
		m.add(run, 1, ckpt.KindRoutine, time.Hour)
	}
	m.after = func(call string, removed []ckpt.Removal) {
		if len(removed) > DefaultSlice {
			t.Errorf("%s removed %d at once", call, len(removed))
		}
	}
	w, _ := testWorker(t, m)
	want(t, "result", Result{Removed: 360}, once(t, w))
	count := map[string]int{}
	for _, call := range m.calls {
		count[call]++
	}
	want(t, "calls", map[string]int{"due": 3, "apply": 4 + 4 + 2, "drop": 3, "over_budget": 1, "trim": 1, "expire": 1, "judged": 1}, count)
}

func TestOnceBudgets(t *testing.T) {
	m := newMemory()
	keepAll := ckpt.Policy{RecoveryKeep: ckpt.Duration(week), MaxBytes: 250}
	for agent := int64(1); agent <= 3; agent++ {
		m.add(agent, agent, ckpt.KindRoutine, 9*time.Hour, 8*time.Hour, 7*time.Hour, 6*time.Hour, 5*time.Hour)
		m.policies[agent] = keepAll
	}
	for i := range m.runs[2].Checkpoints {
		m.runs[2].Checkpoints[i].Pinned = true
	}
	m.whole = 50
	w, _ := testWorker(t, m)
	w.Slice = 2
	dry := &Worker{Store: m, Guard: w.Guard, DryRun: true, Pause: time.Nanosecond}
	would := once(t, dry)
	result := once(t, w)
	want(t, "result", Result{Removed: 8, Unmet: []int64{2, 0}}, result)
	want(t, "left", []string{"1/5", "2/1", "2/2", "2/3", "2/4", "2/5", "3/5"}, m.left())
	want(t, "dry unmet", []int64{2, 0}, would.Unmet)
	a, b := ids(would.Would), ids(m.removals)
	slices.Sort(a)
	slices.Sort(b)
	want(t, "dry", b, a)
}

var errDamaged = ckpt.Errorf(ckpt.CodeCorrupt, "run 3 is damaged")

func TestOncePassesOverFailures(t *testing.T) {
	m := newMemory()
	for run := range int64(5) {
		m.add(run+1, 1, ckpt.KindRecovery, 2*week)
		m.add(run+1, 1, ckpt.KindRoutine, time.Hour)
	}
	m.trouble = func(call string, ids []int64) error {
		if slices.Contains(ids, 3) {
			return errDamaged
		}
		return nil
	}
	w, _ := testWorker(t, m)
	result := once(t, w)
	want(t, "gone", []string{"1/1", "2/1", "4/1", "5/1"}, ids(m.removals))
	if result.Failed != 2 || len(result.Errors) != 2 || !errors.Is(result.Errors[0], errDamaged) { // apply and drop
		t.Errorf("failed %d: %v", result.Failed, result.Errors)
	}
	want(t, "judged", 0, len(m.judgedAt))
	want(t, "last error", "run 3 is damaged", w.Status().LastError)
	m.trouble = nil
	want(t, "the next round", Result{Removed: 1}, once(t, w))
	want(t, "last error", "", w.Status().LastError)
}

func TestOnceWithEveryCallInTrouble(t *testing.T) {
	for _, call := range []string{"due", "apply", "drop", "over_budget", "trim", "expire", "judged"} {
		for code, check := range map[ckpt.Code]func(*testing.T, Result, error){
			ckpt.CodeStorageFull: func(t *testing.T, r Result, err error) {
				if err != nil || r.Failed == 0 || r.PutOff {
					t.Errorf("%+v, %v", r, err)
				}
			},
			ckpt.CodeBusy: func(t *testing.T, r Result, err error) {
				if err != nil || r.Failed != 0 || !r.PutOff {
					t.Errorf("%+v, %v", r, err)
				}
			},
			ckpt.CodeInternal: func(t *testing.T, r Result, err error) { // its outcome is unknown
				if err == nil || r.PutOff || r.Failed != 0 {
					t.Errorf("%+v, %v", r, err)
				}
			},
		} {
			t.Run(call+"/"+string(code), func(t *testing.T) {
				m := busyDay()
				trouble := ckpt.Errorf(code, "trouble")
				if code == ckpt.CodeInternal {
					trouble.Outcome = ckpt.OutcomeUnknown
				}
				m.trouble = func(c string, _ []int64) error {
					if c == call {
						return trouble
					}
					return nil
				}
				w, _ := testWorker(t, m)
				result, err := w.Once(t.Context())
				check(t, result, err)
				if w.Status().LastError == "" {
					t.Error("the status does not say so")
				}
				if code == ckpt.CodeStorageFull && call != "judged" && !slices.Contains(m.calls, "expire") {
					t.Errorf("the rest was not tried: %v", m.calls)
				}
				if through := err == nil && !result.PutOff; w.Status().LastRun.IsZero() == through {
					t.Errorf("the last run was %s", w.Status().LastRun)
				}
				m.trouble = nil
				once(t, w)
				want(t, "left", []string{"1/2", "1/3", "3/2", "4/3", "4/4", "5/1"}, m.left())
			})
		}
	}
}

func TestOnceBusyAmongSingles(t *testing.T) {
	m := busyDay()
	m.trouble = func(call string, ids []int64) error {
		switch {
		case call == "apply" && len(ids) > 1:
			return errDamaged
		case call == "apply" && ids[0] == 2:
			return ckpt.Errorf(ckpt.CodeBusy, "busy")
		}
		return nil
	}
	w, _ := testWorker(t, m)
	want(t, "result", Result{Removed: 1, PutOff: true}, once(t, w))
}

func TestOnceKeepsTheFirstErrors(t *testing.T) {
	m := newMemory()
	for run := range int64(40) {
		m.add(run+1, 1, ckpt.KindRecovery, 2*week, week)
	}
	m.trouble = func(call string, _ []int64) error {
		if call == "apply" {
			return errors.New("no *ckpt.Error")
		}
		return nil
	}
	w, _ := testWorker(t, m)
	result := once(t, w)
	want(t, "failed", 40, result.Failed)
	want(t, "errors", maxErrors, len(result.Errors))
}

func TestOnceStopsPromptly(t *testing.T) {
	for _, call := range []string{"due", "apply", "drop", "over_budget", "trim", "expire", "judged"} {
		m := busyDay()
		w, _ := testWorker(t, m)
		w.Slice, w.Pause = 1, time.Hour
		if call == "over_budget" || call == "expire" || call == "judged" {
			m.runs = map[int64]*memoryRun{}
			m.keys = slices.Repeat([]time.Time{noon.Add(-2 * week)}, 20)
		}
		if call == "judged" {
			m.keys = nil
		}
		if call == "drop" || call == "trim" {
			w.Pause = time.Nanosecond
		}
		ctx, stop := context.WithCancel(t.Context())
		n := 0
		m.trouble = func(c string, _ []int64) error {
			if c == call {
				stop()
				n = len(m.calls)
			}
			return nil
		}
		if _, err := w.Once(ctx); call != "judged" && !errors.Is(err, context.Canceled) {
			t.Errorf("stopped in %s: %v", call, err)
		}
		if len(m.calls) > n+1 {
			t.Errorf("stopped in %s, then called %v", call, m.calls[n:])
		}
	}
}

func TestRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMemory()
		m.add(1, 1, ckpt.KindRoutine, 0)
		var log bytes.Buffer
		start := time.Now()
		var rounds []time.Duration
		m.trouble = func(call string, _ []int64) error {
			if call == "due" {
				rounds = append(rounds, time.Since(start))
			}
			return nil
		}
		w := &Worker{Store: m, Guard: NewGuard(GuardSettings{}), Log: slog.New(slog.NewTextHandler(&log, nil))}
		ctx, stop := context.WithCancel(t.Context())
		done := make(chan error)
		go func() { done <- w.Run(ctx) }()
		time.Sleep(time.Hour)
		stop()
		stopped := time.Now()
		if err := <-done; err != nil || time.Since(stopped) != 0 {
			t.Errorf("Run ended with %v after %s", err, time.Since(stopped))
		}
		if n := len(rounds); n < 54 || n > 67 || rounds[0] != 0 {
			t.Errorf("%d rounds in an hour, the first after %s", n, rounds[0])
		}
		for i, at := range rounds[1:] {
			if gap := at - rounds[i]; gap < 54*time.Second || gap > 66*time.Second {
				t.Errorf("%s between rounds", gap)
			}
		}
		want(t, "log", "", log.String())
		if first, last := m.judgedAt[0], m.judgedAt[len(m.judgedAt)-1]; !first.IsZero() || last.IsZero() {
			t.Errorf("judged at %s at first and %s at last", first, last)
		}
	})
}

func TestRunLogsOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMemory()
		for i := range m.add(1, 1, ckpt.KindRoutine, 3, 2, 1).Checkpoints {
			m.runs[1].Checkpoints[i].Pinned = true
		}
		m.policies[1] = ckpt.Policy{MaxBytes: 100}
		m.add(2, 2, ckpt.KindRoutine, 4, 3, 2, 1)
		round := 0
		m.trouble = func(call string, _ []int64) error {
			if call == "due" {
				round++
			}
			switch {
			case call == "due" && round == 2:
				return errDamaged
			case call == "due" && round == 3:
				return &ckpt.Error{Code: ckpt.CodeInternal, Message: "fsync failed", Outcome: ckpt.OutcomeUnknown}
			case call == "due" && round == 4:
				return ckpt.Errorf(ckpt.CodeBusy, "busy")
			}
			return nil
		}
		var log bytes.Buffer
		w := &Worker{Store: m, Guard: NewGuard(GuardSettings{}), Log: slog.New(slog.NewTextHandler(&log, nil)), Interval: time.Second}
		ctx, stop := context.WithTimeout(t.Context(), 30*time.Second)
		defer stop()
		if err := w.Run(ctx); err != nil {
			t.Error(err)
		}
		for line, times := range map[string]int{
			"msg=retention removed=1":   1,
			"some budgets cannot":       1,
			"could not finish its work": 1,
			"before its round was done": 1,
			"busy":                      0,
			"level=":                    4,
		} {
			if n := strings.Count(log.String(), line); n != times {
				t.Errorf("%d lines have %q, want %d:\n%s", n, line, times, &log)
			}
		}
	})
}

func TestRunStopsInTheMiddle(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := busyDay()
		ctx, stop := context.WithCancel(t.Context())
		m.after = func(string, []ckpt.Removal) { stop() }
		w := &Worker{Store: m, Guard: NewGuard(GuardSettings{}), Slice: 1, Pause: time.Hour}
		start := time.Now()
		if err := w.Run(ctx); err != nil || time.Since(start) != 0 {
			t.Errorf("Run ended with %v after %s", err, time.Since(start))
		}
	})
}

// TestWorkerRaces: saves, pins, ends, restores and clock jumps race with the
// worker. Only checkpoints that the oracle allows at that moment are removed, a
// resumable run always has its rollback target, and in the end nothing is left
// that had to be removed.
func TestWorkerRaces(t *testing.T) {
	m := newMemory()
	w, c := testWorker(t, m)
	w.Slice = 3
	const runs = 8
	for run := range int64(runs) {
		m.add(run+1, run%3+1, ckpt.KindRoutine, time.Hour)
	}
	m.policies[1] = ckpt.Policy{RoutineKeep: 2, RecoveryKeep: ckpt.Duration(ckpt.Day), EndedKeep: ckpt.Duration(week), MaxBytes: 400}
	var wg sync.WaitGroup
	for agent := range 4 {
		wg.Go(func() {
			r := rand.New(rand.NewPCG(uint64(agent), 3))
			for n := range 600 {
				act(m, c, w.Guard, r, int64(1+r.IntN(runs)), fmt.Sprintf("%d.%d", agent, n))
			}
		})
	}
	done := make(chan struct{})
	go func() { wg.Wait(); close(done) }()
	for stop := false; !stop; {
		select {
		case <-done:
			stop = true
		default:
		}
		once(t, w)
	}
	c.pass(10 * time.Minute)
	once(t, w)
	now := w.Guard.Trusted()
	for id, r := range m.runs {
		stays := oracle(r.History, m.policy(r), now)
		if len(stays) != len(r.Checkpoints) {
			t.Errorf("run %d keeps %+v, the oracle %v", id, r.Checkpoints, stays)
		}
	}
	want(t, "lost ways back", nil, m.lost)
	if len(m.removals) == 0 || w.Guard.Jumps() == 0 {
		t.Errorf("%d removals, %d jumps: that proves nothing", len(m.removals), w.Guard.Jumps())
	}
}

// act does one thing that agents, people or clocks do.
func act(m *memory, c *clocks, g *Guard, r *rand.Rand, run int64, id string) {
	change := func(f func(h *memoryRun)) {
		m.mu.Lock()
		defer m.mu.Unlock()
		if h := m.runs[run]; h != nil && len(h.Checkpoints) > 0 {
			h.Checkpoints = slices.Clone(h.Checkpoints)
			f(h)
		}
	}
	one := func(h *memoryRun) *Held { return &h.Checkpoints[r.IntN(len(h.Checkpoints))] }
	switch n := r.IntN(100); {
	case n < 55:
		m.mu.Lock()
		h := m.runs[run]
		alive := h != nil && h.Status.Resumable()
		m.mu.Unlock()
		if alive {
			now, _ := g.Now()
			m.save(run, Held{ID: id, Kind: ckpt.Kinds[r.IntN(3)], CreatedAt: now, StoredSize: r.Int64N(200), Suspect: r.IntN(3) == 0}, g.Trusted())
		}
	case n < 65:
		change(func(h *memoryRun) { c := one(h); c.Pinned = !c.Pinned && r.IntN(2) == 0 })
	case n < 70:
		change(func(h *memoryRun) { one(h).NeededBy = []string{"", "a fork"}[r.IntN(2)] })
	case n < 80:
		change(func(h *memoryRun) { c := one(h); c.Released = c.Kind == ckpt.KindPreOperation })
	case n < 82 && run > 4:
		change(func(h *memoryRun) {
			if h.Status.Resumable() {
				h.Status, h.EndedAt = ckpt.RunCompleted, noon
			}
		})
	case n < 84:
		c.jump(time.Duration(r.Int64N(int64(4*ckpt.Day))) - 2*ckpt.Day)
	default:
		c.pass(time.Duration(r.Int64N(int64(20 * time.Minute))))
	}
}
