package main

import (
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/ckptsidecar/ckptsidecar/internal/expect"
	"github.com/ckptsidecar/ckptsidecar/internal/fleet/host"
	"github.com/ckptsidecar/ckptsidecar/internal/fleet/pgtest"
)

// execHost is a daemon that belongs to a fleet, with the shortest lease: exec must stop a
// command after 4 s without a renewal.
func execHost(t *testing.T, engine *pgtest.Server, database string) *supervised {
	t.Helper()
	url := engine.Database(database)
	if _, _, err := host.Migrate(t.Context(), url); err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "engine")
	must(t, os.WriteFile(file, []byte(url+"\n"), 0o600))
	return newSupervised(t, "fleet.engine_file="+file, "fleet.assume_durable=true", "fleet.lease=5s", "fleet.grace=1s")
}

// do runs another command of this program.
func (s *supervised) do(args ...string) {
	s.t.Helper()
	cmd := exec.Command("ckptsidecar", args...)
	cmd.Env = s.env
	if out, err := cmd.CombinedOutput(); err != nil {
		s.t.Fatalf("%q: %v: %s", args, err, out)
	}
}

// endsWith waits for exec to end.
func (s *supervised) endsWith(code int) {
	s.t.Helper()
	if got := s.play(rand.New(rand.NewPCG(1, 1)), 0, time.Second, nil); got != code {
		s.t.Errorf("exec ended with %d, want %d:\n%s", got, code, s.said.String())
	}
}

// TestExecInAFleet: exec stops its command when another host may own the run or owns it,
// and only then.
func TestExecInAFleet(t *testing.T) {
	t.Parallel()
	pgtest.Need(t)
	engine := pgtest.Start(t)

	t.Run("a command that has ended its run may finish", func(t *testing.T) {
		t.Parallel()
		s := execHost(t, engine, "ended")
		s.do("policy", "set", "done", "durability=fleet")
		s.start("--agent", "done", "--", "sh", "-c", "ckptsidecar run end done completed; sleep 6")
		s.endsWith(0)
	})
	t.Run("a command that a debugger has stopped stays while the host holds its lease", func(t *testing.T) {
		t.Parallel()
		s := execHost(t, engine, "stopped")
		s.do("policy", "set", "still", "durability=fleet")
		s.start("--agent", "still", "--restart", "never", "--", "sh", "-c", `kill -STOP $$`)
		child := 0
		expect.Soon(t, "the command has stopped", func() bool {
			child = s.child()
			return child != 0 && processState(child) == 'T'
		})
		time.Sleep(6 * time.Second)
		_ = syscall.Kill(child, syscall.SIGCONT)
		s.endsWith(0)
	})
	t.Run("another host claims the run of an agent that goes on without a lease", func(t *testing.T) {
		t.Parallel()
		s := execHost(t, engine, "claimed")
		s.start("--agent", "local", "--heartbeat", "100ms", "--", "sleep", "1000")
		expect.Soon(t, "the engine has the run", func() bool {
			return len(engine.Rows("claimed", `SELECT uid FROM fleet_runs WHERE status = 'running'`)) == 1
		})
		engine.Exec("claimed", `INSERT INTO fleet_claims (run_uid, term, from_db, to_db, at, how, from_n)
			SELECT uid, 1, host, 'other', clock_timestamp(), 'forced', 0 FROM fleet_runs; UPDATE fleet_runs SET host = 'other', term = 1`)
		s.endsWith(4)
		if said := s.said.String(); !strings.Contains(said, "has claimed run main (term 1)") {
			t.Errorf("it does not say why:\n%s", said)
		}
	})
	t.Run("a command that ends its run when the lease is over starts again", func(t *testing.T) {
		t.Parallel()
		s := execHost(t, engine, "again")
		s.do("policy", "set", "polite", "durability=fleet")
		begun := filepath.Join(s.dir, "begun")
		s.start("--agent", "polite", "--backoff", "100ms", "--max-restarts", "0", "--", "sh", "-c", `trap "ckptsidecar run end polite interrupted; exit 0" TERM
			echo begun >> "$HOME/begun"
			[ "$(wc -l < "$HOME/begun")" -eq 1 ] || exit 0
			sleep 1000 & wait`)
		expect.Soon(t, "the command works", func() bool { _, err := os.Stat(begun); return err == nil })
		engine.Exec("again", `UPDATE fleet_hosts SET incarnation = incarnation + 100, lease_until = clock_timestamp() + interval '1 hour'`)
		expect.Soon(t, "the command is stopped", func() bool { return s.child() == 0 })
		engine.Exec("again", `UPDATE fleet_hosts SET lease_until = clock_timestamp() - interval '1 second'`)
		s.endsWith(0)
		if text, _ := os.ReadFile(begun); strings.Count(string(text), "begun") != 2 {
			t.Errorf("the command was started %d times, want 2:\n%s", strings.Count(string(text), "begun"), s.said.String())
		}
	})
	t.Run("a command that fails because the lease is over starts again", func(t *testing.T) {
		t.Parallel()
		s := execHost(t, engine, "fails")
		s.do("policy", "set", "works", "durability=fleet")
		begun := filepath.Join(s.dir, "begun")
		s.start("--agent", "works", "--backoff", "100ms", "--max-restarts", "0", "--", "sh", "-c", `echo begun >> "$HOME/begun"
			[ "$(wc -l < "$HOME/begun")" -eq 1 ] || exit 0
			n=0; while ckptsidecar step record works $n --name s; do n=$((n+1)); sleep 0.02; done; exit 1`)
		expect.Soon(t, "the command works", func() bool { _, err := os.Stat(begun); return err == nil })
		engine.Exec("fails", `UPDATE fleet_hosts SET incarnation = incarnation + 100, lease_until = clock_timestamp() + interval '1 hour'`)
		expect.Soon(t, "the command has ended", func() bool { return s.child() == 0 })
		engine.Exec("fails", `UPDATE fleet_hosts SET lease_until = clock_timestamp() - interval '1 second'`)
		s.endsWith(0)
		if text, _ := os.ReadFile(begun); strings.Count(string(text), "begun") != 2 {
			t.Errorf("the command was started %d times, want 2:\n%s", strings.Count(string(text), "begun"), s.said.String())
		}
	})
	t.Run("a daemon that hangs does not delay the end", func(t *testing.T) {
		t.Parallel()
		s := execHost(t, engine, "hung")
		s.do("policy", "set", "hung", "durability=fleet")
		s.start("--agent", "hung", "--heartbeat", "10m", "--heartbeat-timeout", "20m", "--", "sleep", "1000")
		child := 0
		expect.Soon(t, "the command works", func() bool {
			child = s.child()
			return strings.HasPrefix(commandLine(child), "sleep")
		})
		time.Sleep(time.Second) // exec has heard of the lease
		must(t, s.daemon.Process.Signal(syscall.SIGSTOP))
		defer func() { _ = s.daemon.Process.Signal(syscall.SIGCONT) }()
		expect.Soon(t, "the command is stopped", func() bool { return processState(child) == 0 || processState(child) == 'Z' })
	})
}
