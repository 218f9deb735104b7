package db_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	ckpt "github.com/ckptsidecar/ckptsidecar"
	"github.com/ckptsidecar/ckptsidecar/internal/db"
	"github.com/ckptsidecar/ckptsidecar/internal/expect"
)

// TestChownKilled kills a daemon while it gives agents away: afterwards all of them have moved, or none.
func TestChownKilled(t *testing.T) {
	t.Parallel()
	expect.OneThread(t)
	strace, err := exec.LookPath("strace")
	if err != nil {
		t.Skip("strace is not installed")
	}
	template := filepath.Join(t.TempDir(), "template.db")
	s := openWith(t, options(template, newClock()))
	for i := range 20 {
		save(t, s, ann, fmt.Sprintf("agent%d", i), ckpt.KindRoutine, fmt.Sprintf(`{"n":%d,"text":%q}`, i, strings.Repeat("text ", 400)))
	}
	must(t, s.Close())
	killed := map[string]int{}
	for calls, step := range map[string]int{"pwrite64": 3, "fsync,fdatasync": 1} {
		for n := 1; ; n += step {
			path := filepath.Join(t.TempDir(), "ckpt.db")
			copyDatabaseTo(t, template, path)
			cmd := exec.Command(strace, "-f", "-qq", "-o", filepath.Join(t.TempDir(), "trace"), "-e", "trace="+calls,
				"-e", fmt.Sprintf("inject=%s:signal=SIGKILL:when=%d", calls, n), os.Args[0])
			cmd.Env = append(os.Environ(), childRole+"=chown", "CKPTSIDECAR_TEST_DB="+path)
			out, err := cmd.CombinedOutput()
			said := string(out)
			if err == nil {
				break // it ended before this call
			}
			if !strings.Contains(said, "opened") {
				continue // this call belongs to the start
			}
			killed[calls]++
			again := openWith(t, options(path, newClock()))
			hers, his := agentsOf(t, again, ann), agentsOf(t, again, bob)
			if hers+his != 20 || hers != 0 && his != 0 || strings.Contains(said, "given") && his != 20 {
				t.Errorf("killed at %s %d, after %q: ann has %d agents, bob %d", calls, n, said, hers, his)
			}
			shut(t, again)
			sound(t, path)
		}
	}
	t.Logf("killed at %v", killed)
	if killed["pwrite64"] == 0 || killed["fsync,fdatasync"] == 0 {
		t.Error("it was never killed while it gave")
	}
}

func agentsOf(t *testing.T, s *db.Store, sc ckpt.Scope) int {
	t.Helper()
	page, err := s.Agents(t.Context(), sc, ckpt.AgentFilter{})
	must(t, err)
	return len(page.Agents)
}
