package db

import (
	"fmt"
	"log/slog"
	"path/filepath"
	"strings"
	"testing"
	"time"

	ckpt "github.com/ckptsidecar/ckptsidecar"
	"github.com/ckptsidecar/ckptsidecar/internal/db/driftlog"
	"github.com/ckptsidecar/ckptsidecar/internal/db/ledger"
)

// TestProblems: each problem is described in words, the most serious first, with the state that it causes.
func TestProblems(t *testing.T) {
	t.Parallel()
	s := openAt(t, filepath.Join(t.TempDir(), "ckpt.db"))
	s.Trust.Doubt = "shortened"
	st := &ckpt.Status{State: "ready"}
	s.problems(st)
	if st.State != "degraded" || len(st.Problems) != 1 || !strings.Contains(st.Problems[0], "shortened") {
		t.Errorf("%s %q", st.State, st.Problems)
	}
	s.Engine.GiveUp(time.Minute)
	st = &ckpt.Status{State: "ready"}
	s.problems(st)
	if st.State != "failed" || len(st.Problems) != 2 || !strings.Contains(st.Problems[0], "nothing could be committed for 1m0s") {
		t.Errorf("%s %q", st.State, st.Problems)
	}
}

// TestHeadIsLogged: every hour the head of the audit log is written to the log, where an intruder into the database
// cannot reach it.
func TestHeadIsLogged(t *testing.T) {
	t.Parallel()
	s := openAt(t, filepath.Join(t.TempDir(), "ckpt.db"))
	var out strings.Builder
	s.Log = slog.New(slog.NewTextHandler(&out, nil))
	tick := s.Engine.Ticker()
	tick(t.Context(), time.Now())
	if out.Len() > 0 {
		t.Errorf("logged too early: %s", &out)
	}
	tick(t.Context(), time.Now().Add(ledger.AuditLogEvery))
	if !strings.Contains(out.String(), fmt.Sprintf("n=%d hash=%s", s.Head.N, s.Head.Hash)) {
		t.Errorf("logged: %s", &out)
	}
}

// TestNewRunsKeepTheRunCache: a new run or a new agent does not remove other runs from the run cache.
func TestNewRunsKeepTheRunCache(t *testing.T) {
	t.Parallel()
	s := openAt(t, filepath.Join(t.TempDir(), "ckpt.db"))
	ann := ckpt.Scope{Caller: ckpt.Caller{Owner: "uid:1001"}}
	save := func(agent, run string) {
		t.Helper()
		r := &ckpt.SaveRequest{Agent: agent, Run: run, Kind: ckpt.KindRoutine, ContentType: ckpt.ContentTypeJSON, State: []byte("1")}
		if _, err := s.Save(t.Context(), ann, r); err != nil {
			t.Fatal(err)
		}
	}
	save("a", "known")
	save("a", "known")
	save("a", "new")
	save("b", "new")
	if s.RunCache.Get(1, "known") == nil {
		t.Error("the run cache does not know the run any more")
	}
}

// TestOperationsForgetTheirOwnRun: an operation removes its own run from the run cache, and no other run.
func TestOperationsForgetTheirOwnRun(t *testing.T) {
	t.Parallel()
	s := openAt(t, filepath.Join(t.TempDir(), "ckpt.db"))
	ann := ckpt.Scope{Caller: ckpt.Caller{Owner: "uid:1001"}}
	one := ckpt.RunRef{Agent: "a", Run: "one"}
	save := func(run string) {
		t.Helper()
		r := &ckpt.SaveRequest{Agent: "a", Run: run, Kind: ckpt.KindRoutine, ContentType: ckpt.ContentTypeJSON, State: []byte("1")}
		if _, err := s.Save(t.Context(), ann, r); err != nil {
			t.Fatal(err)
		}
	}
	known := func(when string) {
		t.Helper()
		if s.RunCache.Get(1, "one") != nil || s.RunCache.Get(1, "two") == nil {
			t.Errorf("after the %s the run cache knows the run, or does not know the other", when)
		}
	}
	save("two")
	save("two")
	save("one")
	save("one")
	if _, _, err := s.BeginOperation(t.Context(), ann, one, ckpt.OperationRequest{Key: "k", Name: "pay"}); err != nil {
		t.Fatal(err)
	}
	known("beginning of an operation")
	save("one")
	if _, _, err := s.EndOperation(t.Context(), ann, one, ckpt.OperationEnd{Key: "k", Status: ckpt.OperationSucceeded}); err != nil {
		t.Fatal(err)
	}
	known("end of an operation")
	save("one")
	if _, _, err := s.EndRun(t.Context(), ann, one, ckpt.EndRequest{Status: ckpt.RunCompleted}); err != nil {
		t.Fatal(err)
	}
	known("end of the run")
}

// TestSharedKeysOfADeepStateAreBounded: without an index of a deep and large state, each level of each shared key
// would need one pass over the state. Such a state is not compared with others.
func TestSharedKeysOfADeepStateAreBounded(t *testing.T) {
	t.Parallel()
	deep := strings.Repeat(`{"a":`, 200) + `"` + strings.Repeat("x", 33<<20) + `"` + strings.Repeat("}", 200)
	var pointers []string
	for i := range ckpt.MaxSharedKeys {
		pointers = append(pointers, strings.Repeat("/a", 100+i))
	}
	if got := driftlog.SharedValues([]byte(deep), nil, pointers); got != nil {
		t.Errorf("%d values were looked for", len(got))
	}
	if got := driftlog.SharedValues([]byte(`{"a":{"b":1}}`), nil, []string{"/a/b"}); got["/a/b"] == "" {
		t.Errorf("%v", got)
	}
}
