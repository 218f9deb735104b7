package db_test

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	ckpt "github.com/ckptsidecar/ckptsidecar"
	"github.com/ckptsidecar/ckptsidecar/internal/db"
	"github.com/ckptsidecar/ckptsidecar/internal/db/audit"
	"github.com/ckptsidecar/ckptsidecar/internal/retention"
)

var (
	ann  = ckpt.Scope{Caller: ckpt.Caller{Owner: "uid:1001", PID: 11}}
	bob  = ckpt.Scope{Caller: ckpt.Caller{Owner: "uid:1002", PID: 12}}
	root = ckpt.Scope{Caller: ckpt.Caller{Owner: "uid:0", PID: 10, Admin: true}}
)

// clock is a wall clock that tests move.
type clock struct {
	mu      sync.Mutex
	now     time.Time
	guarded bool
}

func newClock() *clock { return &clock{now: time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)} }

func (c *clock) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.now
}

func (c *clock) Trusted() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.guarded {
		return time.Time{}
	}
	return c.now
}

func (c *clock) add(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now = c.now.Add(d)
}

func options(path string, c *clock) db.Options {
	return db.Options{Path: path, Retention: retention.Plan, Now: c.Now, Trusted: c.Trusted, Version: "test"}
}

// open opens a store in a temporary folder of the test.
func open(t testing.TB) (*db.Store, *clock) {
	t.Helper()
	c := newClock()
	return openWith(t, options(filepath.Join(t.TempDir(), "ckpt.db"), c)), c
}

func openWith(t testing.TB, o db.Options) *db.Store {
	t.Helper()
	s, err := db.Open(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { shut(t, s) })
	return s
}

// shut closes a store and fails the test if the store still holds something for
// a caller.
func shut(t testing.TB, s *db.Store) {
	t.Helper()
	for _, left := range s.Left() {
		t.Errorf("the store still holds something: %s", left)
	}
	_ = s.Close()
}

func request(agent string, kind ckpt.Kind, state string) *ckpt.SaveRequest {
	return &ckpt.SaveRequest{Agent: agent, Kind: kind, ContentType: ckpt.ContentTypeJSON, State: []byte(state)}
}

// save saves a JSON state and fails the test if that does not succeed.
func save(t testing.TB, s *db.Store, sc ckpt.Scope, agent string, kind ckpt.Kind, state string) *ckpt.Saved {
	t.Helper()
	c, err := s.Save(t.Context(), sc, request(agent, kind, state))
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// wantCode fails the test unless err has the code.
func wantCode(t testing.TB, err error, code ckpt.Code) {
	t.Helper()
	if got := ckpt.CodeOf(err); got != code {
		t.Fatalf("error %v: code %q, want %q", err, got, code)
	}
}

func hashOf(state string) string {
	sum := sha256.Sum256([]byte(state))
	return hex.EncodeToString(sum[:])
}

// seqs lists the checkpoints of an agent, newest first, as "kind seq".
func seqs(t testing.TB, s *db.Store, sc ckpt.Scope, agent string) []string {
	t.Helper()
	page, err := s.Checkpoints(t.Context(), sc, ckpt.CheckpointFilter{Agent: agent, Limit: ckpt.MaxLimit})
	if err != nil {
		t.Fatal(err)
	}
	list := []string{}
	for _, c := range page.Checkpoints {
		list = append(list, fmt.Sprintf("%s %d", c.Kind, c.Seq))
	}
	return list
}

// sound fails the test unless the whole database passes verify, but for problems that the test has made.
func sound(t testing.TB, path string, made ...func(audit.Problem) bool) *audit.VerifyReport {
	t.Helper()
	report, err := audit.Verify(context.Background(), path, nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range report.Problems {
		if slices.ContainsFunc(made, func(is func(audit.Problem) bool) bool { return is(p) }) {
			continue
		}
		t.Errorf("verify: %s", p)
	}
	return report
}

// tool returns a command of the system. Without it, the test skips.
func tool(t testing.TB, name string, args ...string) *exec.Cmd {
	t.Helper()
	path, err := exec.LookPath(name)
	if err != nil {
		t.Skipf("the %s command is not installed", name)
	}
	return exec.Command(path, args...)
}

// sqlite3 runs the real sqlite3 command, as an auditor does.
func sqlite3(t testing.TB, args ...string) string {
	t.Helper()
	out, err := tool(t, "sqlite3", args...).CombinedOutput()
	if err != nil {
		t.Fatalf("sqlite3 %s: %v\n%s", strings.Join(args, " "), err, out)
	}
	return strings.TrimSpace(string(out))
}

// forge changes a database with the real sqlite3 command, past its guards.
func forge(t testing.TB, path, statements string) {
	t.Helper()
	sqlite3(t, path, "BEGIN IMMEDIATE;\n"+db.Unguarded(statements)+"COMMIT;")
}

func contextWithCancel(t testing.TB) (context.Context, context.CancelFunc) {
	return context.WithCancel(t.Context())
}

// fresh fails the test if the run cache has a run that is not so on disk.
func fresh(t testing.TB, s *db.Store) {
	t.Helper()
	if stale, err := s.StaleRun(); err != nil || stale != "" {
		t.Fatalf("a run in the run cache: %s (%v)", stale, err)
	}
}
