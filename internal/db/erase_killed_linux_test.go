package db_test

import (
	"bytes"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	ckpt "github.com/ckptsidecar/ckptsidecar"
	"github.com/ckptsidecar/ckptsidecar/internal/expect"
)

const erasedCanary = "canary-of-the-erased"

// TestEraseKilled kills a daemon at each step of an erasure, of an agent that one transaction erases and of one that needs several. If
// the agent is gone or was begun to be erased, the next start finishes the erasure and leaves no trace.
func TestEraseKilled(t *testing.T) {
	t.Parallel()
	expect.OneThread(t)
	strace, err := exec.LookPath("strace")
	if err != nil {
		t.Skip("strace is not installed")
	}
	for name, size := range map[string]int{"small": 20_000, "large": 400_000} {
		template := filepath.Join(t.TempDir(), "template.db")
		s := openWith(t, options(template, newClock()))
		for i := range 6 {
			plant(t, s, ann, "gone", erasedCanary, i)
			_, err := s.Save(t.Context(), ann, binary("gone", ckpt.KindRecovery, append(noise(uint64(i), size), erasedCanary...)))
			must(t, err)
			save(t, s, ann, "kept", ckpt.KindRecovery, fmt.Sprint(i))
		}
		must(t, s.Close())
		killed := map[string]int{}
		for calls, step := range map[string]int{"pwrite64": map[string]int{"small": 5, "large": 97}[name], "fsync,fdatasync": 1, "ftruncate": 1} {
			for n := 1; ; n += step {
				path := filepath.Join(t.TempDir(), "ckpt.db")
				copyDatabaseTo(t, template, path)
				cmd := exec.Command(strace, "-f", "-qq", "-o", filepath.Join(t.TempDir(), "trace"), "-e", "trace="+calls,
					"-e", fmt.Sprintf("inject=%s:signal=SIGKILL:when=%d", calls, n), os.Args[0])
				cmd.Env = append(os.Environ(), childRole+"=erase", "CKPTSIDECAR_TEST_DB="+path)
				out, err := cmd.CombinedOutput()
				if err == nil {
					break // it ended before this call
				}
				if !strings.Contains(string(out), "opened") {
					continue // this call belongs to the start
				}
				killed[calls]++
				at := fmt.Sprintf("%s, killed at %s %d", name, calls, n)
				again := openWith(t, options(path, newClock()))
				_, err = again.Checkpoints(t.Context(), ann, ckpt.CheckpointFilter{Agent: "gone"})
				if err == nil { // the erasure had not begun
					if strings.Contains(string(out), "erased") {
						t.Errorf("%s: an acknowledged erasure is undone", at)
					}
					if got := len(seqs(t, again, ann, "gone")); got != 9 {
						t.Errorf("%s: the agent is there with %d checkpoints", at, got)
					}
					shut(t, again)
					continue
				}
				wantCode(t, err, ckpt.CodeNotFound)
				if state, problems := again.Health(); state != "ready" {
					t.Errorf("%s: %s, %q", at, state, problems)
				}
				wantNoTrace(t, path, at)
				if got := len(seqs(t, again, ann, "kept")); got != 6 {
					t.Errorf("%s: the other agent has %d checkpoints", at, got)
				}
				shut(t, again)
				sound(t, path)
			}
		}
		t.Logf("%s: killed at %v", name, killed)
		if killed["pwrite64"] < 3 || killed["fsync,fdatasync"] < 2 {
			t.Error("it was hardly killed while it erased")
		}
	}
}

// wantNoTrace looks for the canary in the raw files of a database.
func wantNoTrace(t *testing.T, path, at string) {
	t.Helper()
	for _, file := range []string{path, path + "-wal"} {
		b, err := os.ReadFile(file)
		must(t, err)
		if n := bytes.Count(b, []byte(erasedCanary)); n > 0 {
			t.Errorf("%s: %d traces in %s", at, n, filepath.Base(file))
		}
	}
}

// TestEraseOnAFullDisk: an agent larger than the reserve is erased without a free byte. No other program is said to have written, and
// deletes work afterwards as before.
func TestEraseOnAFullDisk(t *testing.T) {
	t.Parallel()
	expect.OneThread(t)
	dir := mountTmpfs(t, "80m")
	var log bytes.Buffer
	o := options(filepath.Join(dir, "ckpt.db"), newClock())
	o.Log = slog.New(slog.NewTextHandler(&log, nil))
	b, s := newBallast(t, dir), openWith(t, o)
	for i := range 40 {
		_, err := s.Save(t.Context(), ann, binary("gone", ckpt.KindRecovery, append(noise(uint64(i), 300_000), erasedCanary...)))
		must(t, err)
	}
	_, err := s.Save(t.Context(), ann, binary("gone", ckpt.KindRecovery, append(noise(99, 12<<20), erasedCanary...))) // larger than the reserve
	must(t, err)
	kept := save(t, s, ann, "kept", ckpt.KindRecovery, `1`)
	must(t, s.EmptyWAL())
	must(t, s.FillAndFree())
	b.grow()
	doubts := s.Doubts()
	erased, err := s.Erase(t.Context(), ann, "gone")
	must(t, err)
	if erased.Checkpoints != 41 || erased.StoredBytes < 24_000_000 {
		t.Errorf("%+v", erased)
	}
	if strings.Contains(log.String(), "another program") || s.Doubts() != doubts {
		t.Errorf("another program is said to have written:\n%s", log.String())
	}
	wantNoTrace(t, o.Path, "on a full disk")
	if _, err := s.Delete(t.Context(), ann, kept.ID); err != nil {
		t.Error(err)
	}
	must(t, s.Close())
	sound(t, o.Path)
}

// TestEraseIsOwed: an erasure whose second step a reader prevents is owed. status says so, a repeated call answers as the first one,
// and what was erased meanwhile is finished without a call.
func TestEraseIsOwed(t *testing.T) {
	t.Parallel()
	o := options(filepath.Join(t.TempDir(), "ckpt.db"), newClock())
	o.WriteTimeout = 300 * 1e6
	s := openWith(t, o)
	for i := range 3 {
		plant(t, s, ann, "gone", erasedCanary, i)
	}
	sh := sqlite3Shell(t, o.Path, "BEGIN; SELECT count(*) FROM checkpoints;", "-readonly")
	owed := func() {
		t.Helper()
		if state, problems := s.Health(); state != "degraded" || !strings.Contains(strings.Join(problems, " "), "erasure") {
			t.Errorf("%s, %q", state, problems)
		}
	}
	for range 2 {
		_, err := s.Erase(t.Context(), ann, "gone")
		wantCode(t, err, ckpt.CodeBusy)
		owed()
	}
	_, err := s.Erase(t.Context(), bob, "gone")
	wantCode(t, err, ckpt.CodeNotFound)
	shut(t, s)
	s = openWith(t, o)
	owed()
	sh.close()
	erased, err := s.Erase(t.Context(), ann, "gone")
	must(t, err)
	if erased.Agent != "gone" || erased.Runs != 1 || erased.Checkpoints != 3 || erased.StoredBytes == 0 {
		t.Errorf("the answer to the repeated call: %+v", erased)
	}
	wantNoTrace(t, o.Path, "after the repeated call")
	if state, problems := s.Health(); state != "ready" {
		t.Errorf("%s, %q", state, problems)
	}
	plant(t, s, ann, "gone", erasedCanary, 1)
	sh = sqlite3Shell(t, o.Path, "BEGIN; SELECT count(*) FROM checkpoints;", "-readonly")
	_, err = s.Erase(t.Context(), ann, "gone")
	wantCode(t, err, ckpt.CodeBusy)
	sh.close()
	must(t, s.FinishErasures(t.Context()))
	wantNoTrace(t, o.Path, "after the daemon has finished it")
	_, err = s.Erase(t.Context(), ann, "gone")
	wantCode(t, err, ckpt.CodeNotFound)
}
