package monitor

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	ckpt "github.com/ckptsidecar/ckptsidecar"
	"github.com/ckptsidecar/ckptsidecar/internal/liveness"
	"github.com/ckptsidecar/ckptsidecar/internal/periodic"
)

// memory is a store in memory, with agents that send heartbeats.
type memory struct {
	mu       sync.Mutex
	runs     map[int64]liveness.Run
	statuses map[int64]ckpt.RunStatus // of the runs that were interrupted
	reasons  map[int64]string
	tries    map[int64]int
	reads    int
	refuse   func(id int64) error // makes Interrupt return this error
	unread   func(after int64) error
	before   func(id int64) // called at the beginning of Interrupt
}

func newMemory(runs ...liveness.Run) *memory {
	m := &memory{runs: map[int64]liveness.Run{}, statuses: map[int64]ckpt.RunStatus{}, reasons: map[int64]string{}, tries: map[int64]int{}}
	for _, run := range runs {
		m.runs[run.ID] = run
	}
	return m
}

func (m *memory) Watched(_ context.Context, after int64, limit int) ([]liveness.Run, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.reads++
	if m.unread != nil {
		if err := m.unread(after); err != nil {
			return nil, err
		}
	}
	var list []liveness.Run
	for _, id := range slices.Sorted(maps.Keys(m.runs)) {
		if id > after && m.statuses[id] == "" && len(list) < limit {
			list = append(list, m.runs[id])
		}
	}
	return list, nil
}

func (m *memory) Interrupt(_ context.Context, run liveness.Run, status ckpt.RunStatus, reason string) (bool, error) {
	if m.before != nil {
		m.before(run.ID)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.tries[run.ID]++
	if m.refuse != nil {
		if err := m.refuse(run.ID); err != nil {
			return false, err
		}
	}
	is, there := m.runs[run.ID]
	if !there || m.statuses[run.ID] != "" || is.Epoch != run.Epoch {
		return false, nil
	}
	if status == ckpt.RunTimedOut && !(is.LastBeat.Equal(run.LastBeat) && is.LastProgress.Equal(run.LastProgress)) {
		return false, nil
	}
	m.statuses[run.ID], m.reasons[run.ID] = status, reason
	return true, nil
}

func (m *memory) change(id int64, change func(*liveness.Run)) {
	m.mu.Lock()
	defer m.mu.Unlock()
	run := m.runs[id]
	change(&run)
	m.runs[id] = run
}

// beat records a heartbeat, by a wall clock that is off by skew.
func (m *memory) beat(id int64, skew time.Duration) {
	m.change(id, func(r *liveness.Run) { r.LastBeat = time.Now().Add(skew) })
}

func (m *memory) status(id int64) ckpt.RunStatus {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.statuses[id]
}

// living returns the state of processes by pid; a missing pid is unknown.
type living struct {
	answers map[int]liveness.State
	asked   int
}

func (l *living) Owner(int) string { return "" }

// Here knows one process namespace.
func (l *living) Here(int, int) int { return 0 }

func (l *living) Named(_, pid int) liveness.Process { return liveness.Process{PID: pid} }

func (l *living) Identify(pid int) liveness.Process { return liveness.Process{PID: pid} }

func (l *living) Stranger(int, liveness.Process, time.Time) bool { return false }

func (l *living) Alive(p liveness.Process) liveness.State {
	l.asked++
	return l.answers[p.PID]
}

func owned(id int64, pid int) liveness.Run {
	return liveness.Run{ID: id, Owner: "uid:1", Agent: "a", Run: fmt.Sprint("r", id), Epoch: 1, Process: liveness.Process{PID: pid, Start: "1"}, LastBeat: noon, LastProgress: noon}
}

func timed(id int64, heartbeat, progress time.Duration) liveness.Run {
	run := owned(id, 0)
	run.HeartbeatTimeout, run.ProgressTimeout = heartbeat, progress
	return run
}

func once(t *testing.T, m *Monitor) Result {
	t.Helper()
	result, err := m.Once(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return result
}

const (
	dead  = 10 // these are pids
	alive = 11
)

func newLiving() *living {
	return &living{answers: map[int]liveness.State{dead: liveness.Dead, alive: liveness.Alive}}
}

// start runs the monitor until the test has ended.
func start(t *testing.T, m *Monitor) {
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error)
	go func() { done <- m.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}

// TestSweepAtStart: at the start, crashed runs are interrupted at once and live
// ones are kept. The time in which the daemon was down does not count as
// silence.
func TestSweepAtStart(t *testing.T) {
	silent := owned(3, alive)
	silent.HeartbeatTimeout, silent.ProgressTimeout = time.Second, time.Second
	silent.LastBeat = time.Now().Add(-ckpt.Day)
	m := newMemory(owned(1, dead), owned(2, alive), silent, owned(4, 99), owned(5, dead))
	l := newLiving()
	w := &Monitor{Store: m, Processes: l, Slice: 2}
	want(t, "result", Result{Watched: 5, Interrupted: 2}, once(t, w))
	want(t, "statuses", map[int64]ckpt.RunStatus{1: ckpt.RunInterrupted, 5: ckpt.RunInterrupted}, m.statuses)
	want(t, "processes asked", 3, l.asked)
	want(t, "slices", 3, m.reads)
	want(t, "again", Result{Watched: 3}, once(t, w))
}

func TestTimeouts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMemory(timed(1, 30*time.Second, 0), timed(2, 30*time.Second, 0), timed(3, 30*time.Second, time.Minute), owned(4, alive))
		start(t, &Monitor{Store: m, Processes: newLiving()})
		began := time.Now()
		for m.status(1) == "" {
			time.Sleep(100 * time.Millisecond)
			if time.Since(began)%(10*time.Second) == 0 {
				m.beat(2, 0)
				m.beat(3, 0)
			}
		}
		if took := time.Since(began); took < 30*time.Second || took > 32*time.Second {
			t.Errorf("it took %s to notice a run that does not beat", took)
		}
		for m.status(3) == "" {
			time.Sleep(100 * time.Millisecond)
			if time.Since(began)%(10*time.Second) == 0 {
				m.beat(2, 0)
				m.beat(3, 0)
			}
		}
		if took := time.Since(began); took < time.Minute || took > 62*time.Second {
			t.Errorf("it took %s to notice a run that gets nowhere", took)
		}
		want(t, "statuses", map[int64]ckpt.RunStatus{1: ckpt.RunTimedOut, 3: ckpt.RunTimedOut}, m.statuses)
		if !strings.Contains(m.reasons[3], "no progress for") {
			t.Error(m.reasons[3])
		}
	})
}

// TestARunThatAsksIsNotStuck: it may wait for a person.
func TestARunThatAsksIsNotStuck(t *testing.T) {
	c := &clock{}
	asks := timed(1, 0, 10*time.Second)
	asks.Asks = true
	m := newMemory(asks)
	w := &Monitor{Store: m, Processes: newLiving(), Monotonic: c.read}
	looks := func(n int) {
		for range n {
			c.now += time.Second
			once(t, w)
		}
	}
	looks(100)
	want(t, "while it asks", ckpt.RunStatus(""), m.status(1))
	asks.Asks = false
	m.runs[1] = asks
	looks(9)
	want(t, "soon after the answer", ckpt.RunStatus(""), m.status(1))
	looks(3)
	want(t, "long after the answer", ckpt.RunTimedOut, m.status(1))
}

// TestTimeoutsWhileTheClockJumps: the wall clock jumps while all agents send
// heartbeats, and none times out. A silent run times out exactly at its limit.
func TestTimeoutsWhileTheClockJumps(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMemory(timed(1, 5*time.Second, 0), timed(2, 60*time.Second, 0))
		start(t, &Monitor{Store: m, Processes: newLiving()})
		began := time.Now()
		jumps := []time.Duration{0, 3650 * ckpt.Day, -ckpt.Day, 0, time.Hour, -time.Hour}
		for i := 0; m.status(2) == ""; i++ {
			m.beat(1, jumps[i%len(jumps)])
			time.Sleep(2 * time.Second)
		}
		if took := time.Since(began); took < 60*time.Second || took > 64*time.Second {
			t.Errorf("it took %s", took)
		}
		want(t, "the one that beats", ckpt.RunStatus(""), m.status(1))
	})
}

// clock is a monotonic clock that a test moves.
type clock struct{ now time.Duration }

func (c *clock) read() time.Duration { return c.now }

// TestMonitorStoodStill: after the daemon or the whole machine stood still, the
// first round times out no run.
func TestMonitorStoodStill(t *testing.T) {
	c := &clock{}
	m := newMemory(timed(1, time.Second, 0), timed(2, 30*time.Second, 0), timed(3, 0, 30*time.Second))
	w := &Monitor{Store: m, Processes: newLiving(), Monotonic: c.read}
	once(t, w)
	c.now += 8 * time.Hour // it forgets nothing, so the rest of the time counts
	want(t, "after 8 hours", Result{Watched: 3}, once(t, w))
	want(t, "of which count", 2*time.Second, w.sights[2].quiet)
	c.now += time.Second
	want(t, "a second later", Result{Watched: 3, TimedOut: 1}, once(t, w))
	for range 28 {
		c.now += time.Second
		once(t, w)
	}
	want(t, "statuses", map[int64]ckpt.RunStatus{1: ckpt.RunTimedOut, 2: ckpt.RunTimedOut, 3: ckpt.RunTimedOut}, m.statuses)
	want(t, "processes asked", 0, w.Processes.(*living).asked)
}

func TestResumedAndEndedRuns(t *testing.T) {
	c := &clock{}
	m := newMemory(timed(1, 3*time.Second, 0), timed(2, 3*time.Second, 0), owned(3, dead))
	w := &Monitor{Store: m, Processes: newLiving(), Monotonic: c.read}
	m.before = func(id int64) { // the owner's heartbeat comes between the check and the transaction
		switch id {
		case 1:
			m.beat(1, 0)
		case 3:
			m.change(3, func(r *liveness.Run) { r.Epoch, r.Process.PID = 2, alive })
		}
	}
	want(t, "taken over", Result{Watched: 3}, once(t, w))
	for range 2 {
		c.now += time.Second
		once(t, w)
	}
	delete(m.runs, 2) // it has ended
	c.now += time.Second
	want(t, "beat in time", Result{Watched: 2}, once(t, w))
	want(t, "tries", map[int64]int{1: 1, 3: 1}, m.tries)
	c.now += time.Second
	want(t, "new epoch", Result{Watched: 2}, once(t, w))
	for range 20 {
		c.now += time.Second
		once(t, w)
	}
	want(t, "not forgotten", []int64{1, 3}, slices.Sorted(maps.Keys(w.sights)))
}

func TestErrorsDoNotStopTheOthers(t *testing.T) {
	c := &clock{}
	m := newMemory(owned(1, dead), owned(2, dead), timed(3, 2*time.Second, 0))
	broken := ckpt.Errorf(ckpt.CodeCorrupt, "damaged")
	m.refuse = func(id int64) error {
		if id != 2 {
			return broken
		}
		return nil
	}
	w := &Monitor{Store: m, Processes: newLiving(), Monotonic: c.read}
	result := once(t, w)
	want(t, "watched, interrupted, failed", []int{3, 1, 1}, []int{result.Watched, result.Interrupted, result.Failed})
	if len(result.Errors) != 1 || !errors.Is(result.Errors[0], broken) {
		t.Error(result.Errors)
	}
	for range 300 {
		c.now += time.Second
		once(t, w)
	}
	if n := m.tries[1]; n < 8 || n > 12 {
		t.Errorf("a run that fails was tried %d times in five minutes", n)
	}
	if n := m.tries[3]; n < 3 || n > 12 {
		t.Errorf("a run that fails to time out was tried %d times in five minutes", n)
	}
	m.refuse = nil
	for range 60 {
		c.now += time.Second
		once(t, w)
	}
	want(t, "at last", 3, len(m.statuses))
}

func TestErrorsOfTheStore(t *testing.T) {
	m := newMemory(owned(1, alive), owned(2, alive), owned(3, alive))
	m.unread = func(after int64) error {
		if after > 0 {
			return errors.New("boom")
		}
		return nil
	}
	w := &Monitor{Store: m, Processes: newLiving(), Slice: 2}
	result := once(t, w)
	want(t, "watched, failed", []int{2, 1}, []int{result.Watched, result.Failed})

	m.unread = func(int64) error {
		return &ckpt.Error{Code: ckpt.CodeInternal, Message: "gone", Outcome: ckpt.OutcomeUnknown}
	}
	if _, err := w.Once(t.Context()); ckpt.AsError(err).Outcome != ckpt.OutcomeUnknown {
		t.Error(err)
	}

	m = newMemory()
	for id := range int64(20) {
		m.runs[id+1] = owned(id+1, dead)
	}
	m.refuse = func(id int64) error { return fmt.Errorf("boom %d", id) }
	result = once(t, &Monitor{Store: m, Processes: newLiving()})
	want(t, "failed, errors", []int{20, maxErrors}, []int{result.Failed, len(result.Errors)})
}

// TestTimeCountsAnewAfterFailure: a full disk accepts no heartbeats, so when
// there is room again, a run gets its whole time.
func TestTimeCountsAnewAfterFailure(t *testing.T) {
	c := &clock{}
	m := newMemory(timed(1, 3*time.Second, 0))
	w := &Monitor{Store: m, Processes: newLiving(), Monotonic: c.read}
	m.refuse = func(int64) error { return ckpt.Errorf(ckpt.CodeStorageFull, "full") }
	var done []time.Duration
	for ; c.now < 10*time.Second; c.now += time.Second {
		if m.tries[1] == 1 {
			m.refuse = nil
		}
		if once(t, w).TimedOut > 0 {
			done = append(done, c.now)
		}
	}
	want(t, "timed out at", []time.Duration{6 * time.Second}, done)
}

// TestFailuresAreForgotten: earlier failures do not delay new work.
func TestFailuresAreForgotten(t *testing.T) {
	c := &clock{}
	m := newMemory(owned(1, dead), owned(2, dead))
	w := &Monitor{Store: m, Processes: newLiving(), Monotonic: c.read}
	m.refuse = func(int64) error { return errors.New("boom") }
	once(t, w)
	c.now += 2 * time.Second
	once(t, w)
	want(t, "failures", []int{2, 2}, []int{w.sights[1].failures, w.sights[2].failures})
	m.refuse = nil
	m.change(1, func(r *liveness.Run) { r.Epoch, r.Process.PID = 2, alive })
	m.before = func(id int64) { m.change(id, func(r *liveness.Run) { r.Epoch++ }) }
	c.now += 4 * time.Second
	want(t, "result", Result{Watched: 2}, once(t, w))
	want(t, "failures of a new owner's, of one that was taken over", []int{0, 0}, []int{w.sights[1].failures, w.sights[2].failures})
	want(t, "new owner's retry", 0, w.sights[1].retry)
}

// TestBusyPutsOff: a busy database accepts no heartbeats, so the time starts
// again.
func TestBusyPutsOff(t *testing.T) {
	c := &clock{}
	m := newMemory(timed(1, 3*time.Second, 0), timed(2, 10*time.Second, 0))
	w := &Monitor{Store: m, Processes: newLiving(), Monotonic: c.read}
	m.refuse = func(int64) error { return ckpt.Errorf(ckpt.CodeBusy, "locked") }
	putOff := 0
	for range 9 {
		if once(t, w).PutOff {
			putOff++
		}
		c.now += time.Second
	}
	want(t, "rounds put off", 2, putOff)
	m.refuse = nil
	for range 4 { // the second run has not been silent for ten seconds since then
		once(t, w)
		c.now += time.Second
	}
	want(t, "statuses", map[int64]ckpt.RunStatus{1: ckpt.RunTimedOut}, m.statuses)
}

func TestStopsPromptly(t *testing.T) {
	m := newMemory()
	for id := range int64(1000) {
		m.runs[id+1] = owned(id+1, dead)
	}
	ctx, cancel := context.WithCancel(t.Context())
	m.before = func(id int64) {
		if id == 5 {
			cancel()
		}
	}
	w := &Monitor{Store: m, Processes: newLiving()}
	if _, err := w.Once(ctx); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	want(t, "interrupted", 5, len(m.statuses))
	if err := w.Run(ctx); err != nil {
		t.Error(err)
	}
	m.unread = func(int64) error { return errors.New("closed") }
	if _, err := w.Once(ctx); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}

	synctest.Test(t, func(t *testing.T) { // while it waits
		ctx, cancel := context.WithCancel(t.Context())
		w := &Monitor{Store: newMemory(), Processes: newLiving(), Interval: time.Hour}
		done := make(chan error)
		go func() { done <- w.Run(ctx) }()
		synctest.Wait()
		began := time.Now()
		cancel()
		if err := <-done; err != nil || time.Since(began) != 0 {
			t.Error(err, time.Since(began))
		}
		if periodic.Wait(ctx, time.Hour) == nil {
			t.Error("it waits though ctx has ended")
		}
	})
}

func TestLogSaysEachFailureOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out bytes.Buffer
		m := newMemory(owned(1, dead), owned(2, dead))
		m.runs[2] = timed(2, time.Second, 0)
		failing := true
		m.unread = func(after int64) error {
			switch {
			case !failing:
				return nil
			case time.Now().Second() < 20:
				return errors.New("boom")
			}
			return &ckpt.Error{Message: "gone", Outcome: ckpt.OutcomeUnknown}
		}
		w := &Monitor{Store: m, Processes: newLiving(), Log: slog.New(slog.NewTextHandler(&out, nil))}
		start(t, w)
		time.Sleep(40 * time.Second)
		m.mu.Lock()
		failing = false
		m.mu.Unlock()
		time.Sleep(5 * time.Second)
		w.mu.Lock()
		defer w.mu.Unlock()
		log := out.String()
		for text, times := range map[string]int{
			"err=boom": 1, "before its round was done": 1, "interrupted a run": 2,
			"owner=uid:1 agent=a run=r1 status=interrupted": 1, "status=timed_out": 1,
		} {
			if n := strings.Count(log, text); n != times {
				t.Errorf("%q is in the log %d times, not %d\n%s", text, n, times, log)
			}
		}
	})
}

// TestManyRoundsAtOnce: Once and Run may overlap.
func TestManyRoundsAtOnce(t *testing.T) {
	m := newMemory()
	for id := range int64(200) {
		m.runs[id+1] = owned(id+1, dead)
	}
	w := &Monitor{Store: m, Processes: newLiving(), Slice: 7}
	var wg sync.WaitGroup
	var mu sync.Mutex
	sum := 0
	for range 8 {
		wg.Go(func() {
			r, err := w.Once(t.Context())
			if err != nil {
				t.Error(err)
			}
			mu.Lock()
			defer mu.Unlock()
			sum += r.Interrupted
		})
	}
	wg.Wait()
	want(t, "interrupted", 200, sum)
}

// listed is a store whose answers cost nothing.
type listed []liveness.Run

func (l listed) Watched(_ context.Context, after int64, limit int) ([]liveness.Run, error) {
	rest := l[min(int(after), len(l)):]
	return rest[:min(limit, len(rest))], nil
}

func (l listed) Interrupt(context.Context, liveness.Run, ckpt.RunStatus, string) (bool, error) {
	return false, errors.New("nothing is to be interrupted")
}

func BenchmarkOnce1000Runs(b *testing.B) {
	p := &Processes{}
	me := p.Identify(1)
	var l listed
	for id := range int64(1000) {
		run := timed(id+1, time.Hour, time.Hour)
		run.Process = me
		if id%2 == 0 {
			run.Process.Boot = "" // this makes two owners
		}
		l = append(l, run)
	}
	w := &Monitor{Store: l, Processes: p}
	b.ReportAllocs()
	for b.Loop() {
		if r, err := w.Once(b.Context()); err != nil || r.Failed > 0 {
			b.Fatal(r, err)
		}
	}
}
