//go:build linux

package db_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	ckpt "github.com/ckptsidecar/ckptsidecar"
	"github.com/ckptsidecar/ckptsidecar/internal/db"
	"github.com/ckptsidecar/ckptsidecar/internal/expect"
)

// underStrace runs a child that saves, with a fault injected into its system calls, and returns its output.
func underStrace(t *testing.T, path, calls, inject string) []string {
	t.Helper()
	return underStraceAs(t, "save", path, calls, inject)
}

// underStraceAs is the same for a child in any role.
func underStraceAs(t *testing.T, role, path, calls, inject string) []string {
	t.Helper()
	strace, err := exec.LookPath("strace")
	if err != nil {
		t.Skip("strace is not installed")
	}
	if out, err := exec.Command(strace, "-e", "trace=fsync", "true").CombinedOutput(); err != nil {
		t.Skipf("strace may not trace here: %s", out)
	}
	wrapper := []string{strace, "-f", "-qq", "-o", filepath.Join(t.TempDir(), "trace"), "-e", "trace=" + calls, "-e", "inject=" + inject}
	return startChild(t, role, path, 0, wrapper...).all(t)
}

// holdTo opens the database after a fault, repeats all requests of the client that were not acknowledged, and
// checks every promise of the store.
func holdTo(t *testing.T, path string, said []string) {
	t.Helper()
	s, err := db.Open(t.Context(), options(path, newClock()))
	if err != nil {
		t.Fatalf("the next start: %v", err)
	}
	defer s.Close()
	must(t, s.Ready(t.Context()))
	for i := range 12 {
		r := childSave(i)
		c, err := s.Checkpoint(t.Context(), ann, r.ID, true)
		was := slices.Contains(said, fmt.Sprint("saved ", i))
		switch {
		case err == nil && string(c.State) != string(r.State):
			t.Errorf("save %d came back as something else", i)
		case err != nil && was:
			t.Errorf("save %d was acknowledged and is lost: %v", i, err)
		case err == nil && slices.ContainsFunc(said, func(s string) bool { return strings.HasPrefix(s, fmt.Sprintf("not_saved %d ", i)) }):
			t.Errorf("save %d was answered as not saved, and is there", i)
		}
		again, err := s.Save(t.Context(), ann, r)
		if err != nil {
			t.Fatalf("the same key again: %v", err)
		}
		if was && !again.Replayed {
			t.Errorf("save %d was saved a second time", i)
		}
	}
	for agent := range 3 {
		if got := seqs(t, s, ann, fmt.Sprintf("agent%d", agent)); len(got) != 4 {
			t.Errorf("agent%d has %v", agent, got)
		}
	}
	must(t, s.Close())
	sound(t, path)
}

func has(said []string, prefix string) bool {
	return slices.ContainsFunc(said, func(s string) bool { return strings.HasPrefix(s, prefix) })
}

// TestFailedFsync: the disk fails in a flush. The outcome is reported as unknown, nothing is acknowledged after it,
// and the key gives exactly one row after the restart.
func TestFailedFsync(t *testing.T) {
	t.Parallel()
	expect.OneThread(t)
	ran, unknown := false, false
	for _, n := range []int{3, 4, 6, 7, 8, 9, 10, 16} {
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			path := closedDatabase(t)
			said := underStrace(t, path, "fsync,fdatasync", fmt.Sprintf("fsync,fdatasync:error=EIO:when=%d", n))
			ran = true
			t.Log(said)
			if has(said, "late") {
				t.Errorf("something was saved after the fail-stop: %q", said)
			}
			if has(said, "unknown") {
				unknown = true
				if said[len(said)-1] != "failed" {
					t.Errorf("after an unknown outcome the store went on: %q", said)
				}
			}
			holdTo(t, path, said)
		})
	}
	if ran && !unknown {
		t.Error("no fault met a commit")
	}
}

// TestAnAnswerComesAfterTheFlush slows each flush down, and checks in the order of the system calls that no save
// was answered before the log was flushed once more.
func TestAnAnswerComesAfterTheFlush(t *testing.T) {
	t.Parallel()
	strace, err := exec.LookPath("strace")
	if err != nil {
		t.Skip("strace is not installed")
	}
	path, trace := closedDatabase(t), filepath.Join(t.TempDir(), "trace")
	said := startChild(t, "save", path, 0, strace, "-f", "-qq", "-y", "-o", trace, "-e", "trace=fsync,fdatasync,write",
		"-e", "inject=fsync,fdatasync:delay_enter=20000").all(t)
	if !has(said, "saved 11") {
		t.Skipf("strace may not trace here: %q", said)
	}
	text, err := os.ReadFile(trace)
	must(t, err)
	flushed, under, answers := 0, map[string]bool{}, 0
	for line := range strings.Lines(string(text)) {
		thread, call, _ := strings.Cut(line, " ")
		begins := strings.Contains(call, "sync(") && strings.Contains(call, "-wal>")
		ends := begins && strings.Contains(call, " = 0") || under[thread] && strings.Contains(call, "sync resumed>")
		switch {
		case ends:
			under[thread] = false
			flushed++
		case begins:
			under[thread] = true
		case strings.Contains(call, `"saved `):
			answers++
			for _, still := range under {
				if still || flushed == 0 {
					t.Fatalf("answer %d comes before its flush has ended:\n%s", answers, text)
				}
			}
			flushed = 0
		}
	}
	if answers != 12 {
		t.Errorf("%d of 12 answers are in the trace", answers)
	}
}

// TestKilledAtAnAnswer slows each write to the log down, and kills a process of four clients as soon as it has
// answered some of them. Every answered save is there.
func TestKilledAtAnAnswer(t *testing.T) {
	t.Parallel()
	expect.OneThread(t)
	strace, err := exec.LookPath("strace")
	if err != nil {
		t.Skip("strace is not installed")
	}
	for _, answers := range []int{1, 3, 6} {
		path := closedDatabase(t)
		c := startChild(t, "together", path, 0, strace, "-f", "-qq", "-o", "/dev/null", "-P", path+"-wal", "-e", "trace=pwrite64", "-e", "inject=pwrite64:delay_enter=20000")
		var said []string
		pid, seen := 0, 0
		for c.lines.Scan() {
			line := c.lines.Text()
			said = append(said, line)
			_, _ = fmt.Sscanf(line, "pid %d", &pid)
			if strings.HasPrefix(line, "saved ") {
				seen++
			}
			if seen == answers && pid > 0 {
				_ = syscall.Kill(pid, syscall.SIGKILL) // it may have ended by itself
			}
		}
		_ = c.Wait()
		if pid == 0 {
			t.Skipf("strace may not trace here: %q", said)
		}
		t.Logf("killed at %d answers: %q", answers, said)
		holdTo(t, path, said)
	}
}

// TestKilledAtASystemCall kills the process at some of its writes, while it saves and while the log is copied.
func TestKilledAtASystemCall(t *testing.T) {
	t.Parallel()
	expect.OneThread(t)
	for _, at := range []string{
		"pwrite64:signal=SIGKILL:when=30", "pwrite64:signal=SIGKILL:when=43", "pwrite64:signal=SIGKILL:when=57", "pwrite64:signal=SIGKILL:when=80",
		"pwrite64:signal=SIGKILL:when=110", "fsync,fdatasync:signal=SIGKILL:when=4", "fsync,fdatasync:signal=SIGKILL:when=9", "fsync,fdatasync:signal=SIGKILL:when=14",
	} {
		t.Run(at, func(t *testing.T) { killedAt(t, closedDatabase(t), at) })
	}
}

// TestKilledWhileItIsMade kills the process while it creates the file and its schema: the next start finds nothing
// or all of it.
func TestKilledWhileItIsMade(t *testing.T) {
	t.Parallel()
	expect.OneThread(t)
	for _, at := range []string{
		"pwrite64:signal=SIGKILL:when=1", "pwrite64:signal=SIGKILL:when=2", "pwrite64:signal=SIGKILL:when=9", "pwrite64:signal=SIGKILL:when=40",
		"fsync,fdatasync:signal=SIGKILL:when=1", "fsync,fdatasync:signal=SIGKILL:when=3", "ftruncate:signal=SIGKILL:when=1",
	} {
		t.Run(at, func(t *testing.T) {
			said := killedAt(t, filepath.Join(t.TempDir(), "ckpt.db"), at)
			if len(said) > 0 {
				t.Errorf("it was made before it was killed: %q", said)
			}
		})
	}
}

func killedAt(t *testing.T, path, at string) []string {
	t.Helper()
	calls, _, _ := strings.Cut(at, ":")
	said := underStrace(t, path, calls, at)
	t.Log(said)
	holdTo(t, path, said)
	return said
}

// TestFailedWrites makes one write fail, or all from then on, because the disk is full or faulty.
func TestFailedWrites(t *testing.T) {
	t.Parallel()
	expect.OneThread(t)
	for _, at := range []string{
		"pwrite64:error=ENOSPC:when=50", "pwrite64:error=ENOSPC:when=60+", "pwrite64:error=EIO:when=55", "pwrite64:error=EIO:when=30+", "ftruncate:error=EIO:when=1",
	} {
		t.Run(at, func(t *testing.T) {
			path := closedDatabase(t)
			calls, _, _ := strings.Cut(at, ":")
			said := underStrace(t, path, calls, at)
			t.Log(said)
			if strings.Contains(at, "ENOSPC") && (has(said, "failed") || !has(said, "not_saved")) {
				t.Errorf("want of room: %q", said)
			}
			if has(said, "not_saved") && strings.Contains(at, "ENOSPC") {
				if !slices.ContainsFunc(said, func(s string) bool { return strings.HasSuffix(s, string(ckpt.CodeStorageFull)) }) {
					t.Errorf("want of room is answered as %q", said)
				}
			}
			holdTo(t, path, said)
		})
	}
}

// TestABackupIsOnDiskBeforeItHasItsName checks the system calls of a backup: the copy is flushed, then it gets its
// name, then the folder is flushed.
func TestABackupIsOnDiskBeforeItHasItsName(t *testing.T) {
	t.Parallel()
	strace, err := exec.LookPath("strace")
	if err != nil {
		t.Skip("strace is not installed")
	}
	if out, err := exec.Command(strace, "-e", "trace=fsync", "true").CombinedOutput(); err != nil {
		t.Skipf("strace may not trace here: %s", out)
	}
	path, trace := closedDatabase(t), filepath.Join(t.TempDir(), "trace")
	said := startChild(t, "backup", path, 0, strace, "-f", "-qq", "-y", "-o", trace, "-e", "trace=fsync,fdatasync,fchmod,link,linkat").all(t)
	if len(said) > 0 {
		t.Fatalf("the backup says %q", said)
	}
	text, err := os.ReadFile(trace)
	must(t, err)
	calls := strings.Split(string(text), "\n")
	find := func(from int, what string, is func(call string) bool) int {
		t.Helper()
		for i := from; i < len(calls); i++ {
			if is(calls[i]) {
				return i
			}
		}
		t.Fatalf("%s is missing:\n%s", what, text)
		return 0
	}
	name := path + ".backup"
	named := find(0, "the name", func(call string) bool { return strings.Contains(call, "link") && strings.Contains(call, `"`+name+`"`) })
	moded := find(0, "the mode of the copy", func(call string) bool { return strings.Contains(call, "fchmod(") && strings.Contains(call, ".backup-") })
	if flushed := find(moded, "a flush of the whole copy", func(call string) bool {
		return strings.Contains(call, "sync(") && strings.Contains(call, ".backup-") && strings.Contains(call, "ckpt.db>")
	}); flushed > named {
		t.Errorf("the copy has its name before it is flushed:\n%s", text)
	}
	find(named, "a flush of the folder", func(call string) bool {
		return strings.Contains(call, "sync(") && strings.Contains(call, "<"+filepath.Dir(name)+">")
	})
}
