package db_test

import (
	"cmp"
	"context"
	"sync"
	"testing"
	"time"

	ckpt "github.com/ckptsidecar/ckptsidecar"
	"github.com/ckptsidecar/ckptsidecar/internal/db"
	"github.com/ckptsidecar/ckptsidecar/internal/liveness"
	"github.com/ckptsidecar/ckptsidecar/internal/resume"
)

// processes simulates processes: each pid is a process that lives until it is
// killed.
type processes struct {
	mu     sync.Mutex
	dead   map[int]bool
	owners map[int]string // of processes that do not belong to the caller
	starts map[int]string // of processes that did not start at 100
	unseen map[int]bool   // processes of a container: nothing is known of them here

	strangers map[int]bool // processes that existed before, and are unrelated to the owner
}

func (p *processes) Owner(pid int) string { return p.owners[pid] }

func (p *processes) Identify(pid int) liveness.Process {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.unseen[pid] {
		return liveness.Process{}
	}
	start := "100"
	if p.starts[pid] != "" {
		start = p.starts[pid]
	}
	return liveness.Process{PID: pid, Start: start, Boot: "b1"}
}

// Named takes a number as one of the only process namespace, unless the caller cannot be seen.
func (p *processes) Named(caller, pid int) liveness.Process {
	if caller == 0 {
		return liveness.Process{}
	}
	return p.Identify(pid)
}

// Here knows one process namespace.
func (p *processes) Here(int, int) int { return 0 }

// Stranger reports whether a process was set to be old and unrelated to all
// others.
func (p *processes) Stranger(pid int, of liveness.Process, _ time.Time) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.strangers[pid] && pid != of.PID
}

// begin gives a pid to a new live process.
func (p *processes) begin(pid int, start string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.starts == nil {
		p.starts = map[int]string{}
	}
	p.starts[pid] = start
	delete(p.dead, pid)
}

func (p *processes) Alive(of liveness.Process) liveness.State {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.dead[of.PID] || of.Start != cmp.Or(p.starts[of.PID], "100") {
		return liveness.Dead
	}
	return liveness.Alive
}

func (p *processes) kill(pid int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.dead[pid] = true
}

// openRuns opens a store that can resume.
func openRuns(t testing.TB) (*db.Store, *clock, *processes) {
	t.Helper()
	c := newClock()
	p := &processes{dead: map[int]bool{}}
	o := options(t.TempDir()+"/ckpt.db", c)
	o.Resume, o.Processes = resume.Make, p
	return openWith(t, o), c, p
}

// as is ann, calling from another process.
func as(pid int) ckpt.Scope {
	return ckpt.Scope{Caller: ckpt.Caller{Owner: ann.Caller.Owner, PID: pid}}
}

var mainRun = ckpt.RunRef{Agent: "a"}

func at(epoch int64) ckpt.RunRef {
	return ckpt.RunRef{Agent: "a", Epoch: &epoch}
}

// start registers the main run for a process.
func start(t testing.TB, s *db.Store, pid int) *ckpt.Run {
	t.Helper()
	run, _, err := s.StartRun(t.Context(), as(pid), ckpt.RunRequest{Agent: "a", PID: pid})
	if err != nil {
		t.Fatal(err)
	}
	return run
}

// claim resumes the main run for a process.
func claim(t testing.TB, s *db.Store, pid int, change ...func(*ckpt.ResumeRequest)) *ckpt.Plan {
	t.Helper()
	r := ckpt.ResumeRequest{Agent: "a", PID: pid}
	for _, f := range change {
		f(&r)
	}
	plan, _, err := s.Resume(t.Context(), as(pid), r)
	if err != nil {
		t.Fatal(err)
	}
	return plan
}

func wantVerdict(t testing.TB, plan *ckpt.Plan, v ckpt.ResumeVerdict) {
	t.Helper()
	if plan.Verdict != v {
		t.Fatalf("verdict %s, want %s: %v", plan.Verdict, v, plan.Reasons)
	}
}

// pathOf returns the database path of a store from openRuns.
func pathOf(s *db.Store) string {
	st, err := s.Status(context.Background(), root)
	if err != nil {
		panic(err)
	}
	return st.Database.Path
}
