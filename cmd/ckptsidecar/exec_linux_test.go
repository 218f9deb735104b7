package main

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	ckpt "github.com/ckptsidecar/ckptsidecar"
	"github.com/ckptsidecar/ckptsidecar/internal/expect"
	"github.com/ckptsidecar/ckptsidecar/internal/ipc/client"
)

var (
	long     = flag.Bool("long", os.Getenv("CKPTSIDECAR_LONG") != "", "kill 100 times instead of a few")
	killSeed = flag.Uint64("kill-seed", uint64(time.Now().UnixNano()), "of the moments at which is killed")
)

// supervised is an agent under exec, with its daemon, in separate processes.
type supervised struct {
	t          *testing.T
	dir        string
	env        []string
	settings   []string // of the daemon
	client     *client.Client
	daemon     *exec.Cmd
	exec       *exec.Cmd
	said       syncBuffer
	ended      chan error
	began      time.Time     // when exec was started
	worked     time.Duration // the sum over all attempts, as this process sees it
	lastChild  int
	childBegan time.Time
}

type syncBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (s *syncBuffer) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.Write(p)
}

func (s *syncBuffer) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.String()
}

func newSupervised(t *testing.T, settings ...string) *supervised {
	t.Helper()
	dir, err := os.MkdirTemp("", "ck") // t.TempDir is too long for the path of a socket
	if err != nil {
		t.Fatal(err)
	}
	s := &supervised{t: t, dir: dir, settings: settings, ended: make(chan error, 1)}
	socket := filepath.Join(dir, "s")
	s.env = append(os.Environ(), "HOME="+dir, "TMPDIR="+dir, "CKPTSIDECAR_DB="+filepath.Join(dir, "ckpt.db"), "CKPTSIDECAR_SOCKET="+socket, "CKPTSIDECAR_HOOK_TIMEOUT=20s", "GORACE=atexit_sleep_ms=10")
	s.client = &client.Client{Socket: socket, Retry: 20 * time.Second}
	t.Cleanup(func() {
		if s.exec != nil && s.exec.ProcessState == nil {
			_ = s.exec.Process.Kill()
		}
		_ = s.daemon.Process.Kill()
		_ = s.daemon.Wait()
		s.client.Close()
		if t.Failed() {
			t.Logf("exec said:\n%s", s.said.String())
		}
		_ = os.RemoveAll(dir)
	})
	s.serve()
	return s
}

func (s *supervised) serve() {
	s.t.Helper()
	s.daemon = exec.Command("ckptsidecar", "serve", "--set", "monitor.interval=100ms")
	for _, setting := range s.settings {
		s.daemon.Args = append(s.daemon.Args, "--set", setting)
	}
	s.daemon.Env = s.env
	s.daemon.Stderr = os.Stderr
	if !testing.Verbose() {
		s.daemon.Stderr = nil
	}
	if err := s.daemon.Start(); err != nil {
		s.t.Fatal(err)
	}
	expect.Soon(s.t, "the daemon is ready", func() bool { return s.client.Ready(context.Background()) == nil })
}

// start runs exec with the flags, and watches its children start and end.
func (s *supervised) start(args ...string) {
	s.t.Helper()
	s.exec = exec.Command("ckptsidecar", append([]string{"exec"}, args...)...)
	s.exec.Env, s.exec.Stderr = s.env, &s.said
	s.began = time.Now()
	if err := s.exec.Start(); err != nil {
		s.t.Fatal(err)
	}
	go func() { s.ended <- s.exec.Wait() }()
}

// child returns the pid of exec's child, or 0 if there is none now.
func (s *supervised) child() int {
	lists, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", s.exec.Process.Pid))
	for _, list := range lists {
		text, _ := os.ReadFile(list)
		if fields := strings.Fields(string(text)); len(fields) > 0 {
			pid, _ := strconv.Atoi(fields[0])
			if state := processState(pid); state != 0 && state != 'Z' {
				return pid
			}
		}
	}
	return 0
}

// processState returns the kernel's letter for the state of a process, or 0 if
// it does not exist.
func processState(pid int) byte {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0
	}
	return text[bytes.LastIndexByte(text, ')')+2]
}

// look records how long children work, and returns the pid of a child, which
// may still be waiting to begin.
func (s *supervised) look() int {
	pid, now := s.child(), time.Now()
	working := pid
	if working != s.lastChild && strings.Contains(commandLine(pid), "exec-child") {
		working = 0
	}
	if working != s.lastChild {
		if s.lastChild != 0 {
			s.worked += now.Sub(s.childBegan)
		}
		s.lastChild, s.childBegan = working, now
	}
	return pid
}

// play waits for exec to end, and kills at random moments as long as kills are
// left.
func (s *supervised) play(r *rand.Rand, kills int, every time.Duration, kill func(child int)) int {
	s.t.Helper()
	deadline := time.After(5 * time.Minute)
	claimed := false // before that, exec rightly gives up if there is no daemon
	next := time.Now().Add(rand.N(every))
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for {
		select {
		case err := <-s.ended:
			s.look()
			if kills > 0 {
				s.t.Logf("%d kills were left", kills)
			}
			var exit *exec.ExitError
			if errors.As(err, &exit) {
				return exit.ExitCode()
			}
			return 0
		case <-deadline:
			s.t.Fatalf("exec does not end:\n%s", s.said.String())
		case <-tick.C:
		}
		child := s.look()
		if !claimed && kills > 0 {
			run, err := s.client.Run(context.Background(), ckpt.RunRef{Agent: "prog"})
			claimed = err == nil && run.PID != 0
			continue
		}
		if child != 0 && kills > 0 && time.Now().After(next) {
			kill(child)
			kills--
			next = time.Now().Add(every/2 + time.Duration(r.Int64N(int64(every))))
		}
	}
}

// TestEveryEffectOnceHoweverOftenItIsKilled is the promise of steps and exec: a
// program of many statements is killed repeatedly, and each statement whose
// step was reported as done took effect exactly once.
func TestEveryEffectOnceHoweverOftenItIsKilled(t *testing.T) {
	number, kills := 80, 5
	if *long {
		number, kills = 200, 100
	}
	t.Logf("-kill-seed %d", *killSeed)
	for name, who := range map[string]string{"agent": "a", "daemon": "d", "both": "ad"} {
		t.Run(name, func(t *testing.T) {
			if !*long {
				t.Parallel()
			}
			s, r := newSupervised(t), rand.New(rand.NewPCG(*killSeed, uint64(len(who))+uint64(who[0])))
			every := 250 * time.Millisecond
			if *long {
				every *= 2
			}
			pause := time.Duration(kills+1) * every / time.Duration(number)
			s.start("--agent", "prog", "--max-restarts", "1000", "--backoff", "1ms", "--max-backoff", "5ms", "--heartbeat", "10ms",
				"--", "statements", s.dir, strconv.Itoa(number), pause.String())
			code := s.play(r, kills, every, func(child int) {
				if strings.Contains(who, "d") {
					_ = s.daemon.Process.Kill()
				}
				if strings.Contains(who, "a") {
					_ = syscall.Kill(child, syscall.SIGKILL)
				}
				if strings.Contains(who, "d") {
					_ = s.daemon.Wait()
					s.serve()
				}
			})
			if code != 0 {
				t.Fatalf("exec ended with %d", code)
			}
			s.judge(number)
		})
	}
}

func (s *supervised) judge(number int) {
	s.t.Helper()
	effects, reported := linesOf(s.t, filepath.Join(s.dir, "effects")), linesOf(s.t, filepath.Join(s.dir, "reported"))
	for n := 1; n <= number; n++ {
		key := fmt.Sprintf("statement-%03d", n)
		if effects[key] != 1 {
			s.t.Errorf("%s took effect %d times", key, effects[key])
		}
		delete(reported, key)
	}
	if len(reported) > 0 {
		s.t.Errorf("reported, and no statement: %v", reported)
	}
	ctx := context.Background()
	run, err := s.client.Run(ctx, ckpt.RunRef{Agent: "prog"})
	if err != nil {
		s.t.Fatal(err)
	}
	if run.Status != ckpt.RunCompleted {
		s.t.Errorf("the run is %s", run.Status)
	}
	accumulated := time.Duration(run.AccumulatedMS) * time.Millisecond
	// The start of a segment takes some time that the parent sees and the
	// daemon does not. Only in long segments is this time small compared with
	// the promise. In short segments on a busy machine it is most of the time,
	// so there only time that never existed is an error.
	if off, all := (accumulated - s.worked).Abs(), time.Since(s.began); *long && off > s.worked/10 {
		s.t.Errorf("accumulated %s, but its segments were %s", accumulated, s.worked)
	} else if accumulated <= 0 || accumulated > all {
		s.t.Errorf("accumulated %s in %s", accumulated, all)
	}
	s.t.Logf("attempt %d, accumulated %s, measured %s", run.Attempt, accumulated, s.worked)
	for before := ""; ; {
		page, err := s.client.Steps(ctx, ckpt.RunRef{Agent: "prog"}, ckpt.ListFilter{Before: before, Limit: ckpt.MaxLimit})
		if err != nil {
			s.t.Fatal(err)
		}
		for _, step := range page.Steps {
			if step.Status != ckpt.StepSucceeded {
				s.t.Errorf("step %s is %s", step.Key, step.Status)
			}
		}
		if page.Next == "" {
			return
		}
		before = string(page.Next)
	}
}

func linesOf(t *testing.T, path string) map[string]int {
	t.Helper()
	lines := map[string]int{}
	for line := range strings.Lines(read(t, path)) {
		lines[strings.TrimSpace(line)]++
	}
	return lines
}

// TestFrozenChildIsKilledAndStartedAgain: a stopped process is noticed within
// its limit, because nothing sends heartbeats in its place.
func TestFrozenChildIsKilledAndStartedAgain(t *testing.T) {
	t.Parallel()
	s := newSupervised(t)
	s.start("--agent", "ice", "--backoff", "1ms", "--heartbeat", "100ms", "--heartbeat-timeout", "500ms", "--",
		"sh", "-c", `cd `+s.dir+`; n=$(cat n 2>/dev/null || echo 0); echo $((n+1)) > n; if [ $n = 0 ]; then kill -STOP $$; fi; exit 0`)
	if code := s.play(rand.New(rand.NewPCG(1, 1)), 0, time.Second, nil); code != 0 {
		t.Fatalf("exec ended with %d", code)
	}
	if said := s.said.String(); !strings.Contains(said, "frozen") {
		t.Errorf("it does not say that it froze:\n%s", said)
	}
	run, err := s.client.Run(context.Background(), ckpt.RunRef{Agent: "ice"})
	if err != nil || run.Status != ckpt.RunCompleted || run.Attempt != 2 {
		t.Errorf("%+v, %v", run, err)
	}
}

// TestAnAgentThatClaimsItsRunIsStartedAgain: the command may claim the run itself, and be killed
// before the next heartbeat.
func TestAnAgentThatClaimsItsRunIsStartedAgain(t *testing.T) {
	t.Parallel()
	s := newSupervised(t)
	s.start("--agent", "claimer", "--heartbeat", "10m", "--heartbeat-timeout", "20m", "--backoff", "1ms", "--", "claimer")
	if code := s.play(nil, 0, time.Second, nil); code != 0 {
		t.Errorf("exec ended with %d", code)
	}
	run, err := s.client.Run(t.Context(), ckpt.RunRef{Agent: "claimer"})
	if err != nil || run.Status != ckpt.RunCompleted || run.Attempt != 6 {
		t.Errorf("%+v, %v", run, err)
	}
}

// TestNobodyOutlivesExec: when the supervisor is killed, its child dies too, so
// that two never work at once.
func TestNobodyOutlivesExec(t *testing.T) {
	t.Parallel()
	s := newSupervised(t)
	s.start("--agent", "tied", "--", "sleep", "1000")
	child := 0
	for child == 0 || !strings.HasPrefix(commandLine(child), "sleep") {
		child = s.child()
		time.Sleep(time.Millisecond)
	}
	_ = s.exec.Process.Kill()
	expect.Soon(t, "the child is gone", func() bool { return processState(child) == 0 || processState(child) == 'Z' })
	plan, _, err := s.client.Resume(context.Background(), ckpt.ResumeRequest{Agent: "tied", DryRun: true})
	if err != nil || plan.Verdict != ckpt.VerdictFresh {
		t.Errorf("%+v, %v", plan, err)
	}
}

// file waits until a program has written a line into a file of the folder.
func (s *supervised) file(name string) (line string) {
	s.t.Helper()
	expect.Soon(s.t, name+" is written", func() bool {
		text, err := os.ReadFile(filepath.Join(s.dir, name))
		line = strings.TrimSpace(string(text))
		return err == nil && strings.HasSuffix(string(text), "\n")
	})
	return line
}

// TestAnAgentBehindAShellFinishesItsWork: a shell dies at once of SIGTERM, and its agent still works.
func TestAnAgentBehindAShellFinishesItsWork(t *testing.T) {
	t.Parallel()
	s := newSupervised(t)
	must(t, os.WriteFile(filepath.Join(s.dir, "agent.sh"), []byte(`shell=$PPID
finish() {
	while kill -0 $shell; do sleep 0.01; done
	for i in $(seq 20); do sleep 0.01; done
	echo bye > bye
	exit
}
trap finish TERM
echo > ready
while :; do sleep 0.01; done
`), 0o600))
	s.start("--agent", "behind", "--", "sh", "-c", "cd "+s.dir+"; sh agent.sh; echo end")
	s.file("ready")
	_ = s.exec.Process.Signal(syscall.SIGTERM)
	if code := s.play(rand.New(rand.NewPCG(1, 1)), 0, time.Second, nil); code != 128+int(syscall.SIGTERM) {
		t.Errorf("exec ended with %d", code)
	}
	if got := read(t, filepath.Join(s.dir, "bye")); got != "bye\n" {
		t.Errorf("%q", got)
	}
}

// TestNobodyWorksBesideTheNextOwner: when exec stops a command, it leaves no process of
// it behind, also if the command itself ends in good order.
func TestNobodyWorksBesideTheNextOwner(t *testing.T) {
	t.Parallel()
	s := newSupervised(t)
	s.start("--agent", "taken", "--heartbeat", "50ms", "--", "sh", "-c", `cd `+s.dir+`; sh -c 'trap "" TERM; echo $$ > helper; while :; do sleep 0.01; done' >/dev/null 2>&1 &
		trap 'exit 0' TERM; while :; do sleep 0.01; done`)
	helper, err := strconv.Atoi(s.file("helper"))
	must(t, err)
	defer func() { _ = syscall.Kill(helper, syscall.SIGKILL) }()
	if _, _, err := s.client.Resume(t.Context(), ckpt.ResumeRequest{Agent: "taken", Force: true}); err != nil {
		t.Fatal(err)
	}
	if code := s.play(rand.New(rand.NewPCG(1, 1)), 0, time.Second, nil); code != 4 {
		t.Errorf("exec ended with %d", code)
	}
	expect.Soon(t, "the helper is gone", func() bool { return processState(helper) == 0 || processState(helper) == 'Z' })
}

// TestFrozenCommandIsStoppedWhenTheRunIsTakenOver: with --restart never exec lets a frozen
// command be, until another process takes its run over.
func TestFrozenCommandIsStoppedWhenTheRunIsTakenOver(t *testing.T) {
	t.Parallel()
	s := newSupervised(t)
	s.start("--agent", "ice", "--restart", "never", "--heartbeat", "50ms", "--progress-timeout", "100ms", "--", "sleep", "1000")
	expect.Soon(t, "exec says that the command is frozen", func() bool { return strings.Contains(s.said.String(), "is frozen") })
	if _, _, err := s.client.Resume(t.Context(), ckpt.ResumeRequest{Agent: "ice", Force: true}); err != nil {
		t.Fatal(err)
	}
	if code := s.play(rand.New(rand.NewPCG(1, 1)), 0, time.Second, nil); code != 4 {
		t.Errorf("exec ended with %d", code)
	}
}

func commandLine(pid int) string {
	text, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
	return string(text)
}

// TestSignalsReachTheChild: a child that is asked to stop can clean up. A run
// that was stopped can be resumed, whatever its exit code.
func TestSignalsReachTheChild(t *testing.T) {
	t.Parallel()
	s := newSupervised(t)
	s.start("--agent", "polite", "--", "sh", "-c", `trap 'echo bye > `+s.dir+`/bye; exit 0' TERM; echo > `+s.dir+`/ready; while :; do sleep 0.01; done`)
	expect.Soon(t, "the child is ready", func() bool { _, err := os.Stat(filepath.Join(s.dir, "ready")); return err == nil })
	_ = s.exec.Process.Signal(syscall.SIGTERM)
	if code := s.play(rand.New(rand.NewPCG(1, 1)), 0, time.Second, nil); code != 0 {
		t.Errorf("exec ended with %d", code)
	}
	if got := read(t, filepath.Join(s.dir, "bye")); got != "bye\n" {
		t.Errorf("%q", got)
	}
	run, err := s.client.Run(context.Background(), ckpt.RunRef{Agent: "polite"})
	if err != nil || run.Status != ckpt.RunInterrupted {
		t.Errorf("%+v, %v", run, err)
	}
}
