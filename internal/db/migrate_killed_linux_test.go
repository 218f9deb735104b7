package db

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/google/go-cmp/cmp"

	ckpt "github.com/ckptsidecar/ckptsidecar"
	"github.com/ckptsidecar/ckptsidecar/internal/db/audit"
	"github.com/ckptsidecar/ckptsidecar/internal/expect"
)

// straced opens a database in a separate process, and lets strace inject
// something at a call. It returns the output of the process.
func straced(t *testing.T, path, calls, inject string) string {
	t.Helper()
	strace, err := exec.LookPath("strace")
	if err != nil {
		t.Skip("strace is not installed")
	}
	cmd := exec.Command(strace, "-f", "-qq", "-o", filepath.Join(t.TempDir(), "trace"), "-e", "trace="+calls, "-e", "inject="+calls+":"+inject, os.Args[0])
	cmd.Env = append(os.Environ(), "CKPTSIDECAR_TEST_CHILD=open", "CKPTSIDECAR_TEST_DB="+path)
	out, _ := cmd.CombinedOutput() // only the output matters
	return string(out)
}

// oneOrTheOther checks what an interrupted migration has left: the old schema
// or the new one, with all data. The next start makes the new one.
func oneOrTheOther(t *testing.T, path string, version int, head int64, before []string) {
	t.Helper()
	db := raw(t, path)
	var left int
	if err := db.Get(&left, `SELECT user_version FROM pragma_user_version()`); err != nil {
		t.Fatal(err)
	}
	if left != version && left != ckpt.SchemaVersion {
		t.Fatalf("schema version %d is left", left)
	}
	if diff := cmp.Diff(before, shown(t, db, head)); diff != "" {
		t.Errorf("of version %d, which is left: %s", left, diff)
	}
	_ = db.Close()
	s := openAt(t, path)
	if diff := cmp.Diff(before, shown(t, s.RO, head)); diff != "" {
		t.Error(diff)
	}
	stillReplays(t, s)
	report, err := audit.Verify(t.Context(), path, nil)
	if err != nil || len(report.Problems) > 0 {
		t.Errorf("%+v %v", report, err)
	}
}

// asStored returns a database of an older version, and what its views show.
func asStored(t *testing.T, version int) (path string, head int64, before []string) {
	t.Helper()
	path = stored(t, version)
	old := raw(t, path)
	defer old.Close()
	if err := old.Get(&head, `SELECT n FROM audit_head`); err != nil {
		t.Fatal(err)
	}
	return path, head, shown(t, old, head)
}

// TestMigrateKilledAtACall kills a start that migrates, at its system calls.
func TestMigrateKilledAtACall(t *testing.T) {
	t.Parallel()
	calls := map[string]int{ // with the number of calls that a sample skips after each one
		"renameat,renameat2,rename": 1, "unlinkat,unlink": 1, "fsync,fdatasync": 7, "ftruncate": 3, "pwrite64": 61,
	}
	var points atomic.Int64
	t.Cleanup(func() { // after all of them have ended
		t.Logf("killed at %d points", points.Load())
		if points.Load() < 10 && !t.Skipped() {
			if _, err := exec.LookPath("strace"); err == nil {
				t.Errorf("it was killed at %d points only", points.Load())
			}
		}
	})
	for call, step := range calls {
		if os.Getenv("FAULTTEST_ALL_POINTS") != "" {
			step = 1
		}
		t.Run(call, func(t *testing.T) {
			t.Parallel()
			for n := 1; ; n += step {
				path, head, before := asStored(t, 1+n%3)
				if said := straced(t, path, call, fmt.Sprintf("signal=SIGKILL:when=%d", n)); strings.Contains(said, "opened") {
					break
				}
				points.Add(1)
				oneOrTheOther(t, path, 1+n%3, head, before)
			}
		})
	}
}

// TestMigrateOnAFullDisk makes all writes from one on fail because the disk is
// full. The start is refused with an error that says what to do, and the
// database is the old one.
func TestMigrateOnAFullDisk(t *testing.T) {
	t.Parallel()
	expect.OneThread(t)
	step := 47
	if os.Getenv("FAULTTEST_ALL_POINTS") != "" {
		step = 1
	}
	for n := 1; ; n += step {
		path, head, before := asStored(t, 3)
		said := straced(t, path, "pwrite64", fmt.Sprintf("error=ENOSPC:when=%d+", n))
		if strings.Contains(said, "opened") {
			if n == 1 {
				t.Error("nothing was written")
			}
			return
		}
		if !strings.Contains(said, "open true") {
			t.Errorf("from write %d on: %s", n, said)
		}
		oneOrTheOther(t, path, 3, head, before)
	}
}
