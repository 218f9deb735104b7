package monitor

import (
	"bufio"
	"fmt"
	"io"
	"math"
	"os"
	"os/exec"
	"syscall"
	"testing"
	"time"

	"github.com/ckptsidecar/ckptsidecar/internal/expect"
	"github.com/ckptsidecar/ckptsidecar/internal/liveness"
	"github.com/ckptsidecar/ckptsidecar/internal/testenv"
)

// stories are what this binary does as a child, by the name in roleEnv.
var stories = map[string]func(){
	"wait": func() { ready(); io.Copy(io.Discard, os.Stdin) },
}

const roleEnv = "MONITOR_TEST_ROLE"

func TestMain(m *testing.M) {
	if story := stories[os.Getenv(roleEnv)]; story != nil {
		story()
		syscall.Exit(0) // without the coverage report that os.Exit makes
	}
	testenv.Main(m)
}

// ready tells the parent that the child is ready.
func ready() { os.Stdout.WriteString("ready\n") }

// child starts this binary in a role, and waits until it is ready. It ends with
// the test.
func child(t *testing.T, role string, prepare ...func(*exec.Cmd)) *exec.Cmd {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(self)
	cmd.Env = append(os.Environ(), roleEnv+"="+role)
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range prepare {
		p(cmd)
	}
	if err := cmd.Start(); err != nil {
		t.Skip("cannot start the child:", err)
	}
	t.Cleanup(func() {
		in.Close()
		cmd.Process.Kill()
		cmd.Wait()
	})
	if line, err := bufio.NewReader(out).ReadString('\n'); line != "ready\n" {
		t.Fatalf("the child says %q, %v", line, err)
	}
	return cmd
}

// is waits a little until a process has the expected state.
func is(t *testing.T, what string, p *Processes, process liveness.Process, want liveness.State) {
	t.Helper()
	expect.Soon(t, fmt.Sprintf("%s: the state of %+v is %d", what, process, want), func() bool { return p.Alive(process) == want })
}

func TestProcesses(t *testing.T) {
	p := &Processes{}
	me := p.Identify(os.Getpid())
	want(t, "pid", os.Getpid(), me.PID)
	if me.Start == "" {
		t.Fatal("this process does not know when it began")
	}
	want(t, "the same again", me, (&Processes{}).Identify(os.Getpid()))
	is(t, "this process", p, me, liveness.Alive)

	cmd := child(t, "wait")
	c := p.Identify(cmd.Process.Pid)
	is(t, "the child", p, c, liveness.Alive)
	forged := c
	forged.Start = me.Start // as if another process had the pid before
	if forged.Start == c.Start {
		forged.Start += "0"
	}
	want(t, "a reused number", liveness.Dead, p.Alive(forged))
	forged = c
	forged.Boot = "another boot"
	if me.Boot != "" {
		want(t, "another boot", liveness.Dead, p.Alive(forged))
	}
	forged.Boot, forged.Start = c.Boot, ""
	want(t, "no start", liveness.Unknown, p.Alive(forged))

	cmd.Process.Kill()
	is(t, "killed, not waited for", p, c, liveness.Dead)
	cmd.Wait()
	is(t, "killed", p, c, liveness.Dead)
	is(t, "killed, its start was not known", p, forged, liveness.Dead)
	want(t, "identify the dead", "", p.Identify(c.PID).Start)
}

// TestStrangers compares two children with each other and with this process,
// which started both.
func TestStrangers(t *testing.T) {
	p := &Processes{}
	if _, known := beginningOf(os.Getpid()); !known {
		t.Skip("this system does not tell the beginnings of processes")
	}
	one := child(t, "wait").Process.Pid
	between, _ := beginningOf(one)
	between = between.Add(time.Second)
	late := time.Now().Add(time.Hour)
	two := p.Identify(child(t, "wait").Process.Pid)
	me := p.Identify(os.Getpid())
	want(t, "two children of one process", true, p.Stranger(one, two, late))
	want(t, "the one that began too late", false, p.Stranger(one, two, between.Add(-2*time.Second)))
	want(t, "the parent", false, p.Stranger(os.Getpid(), two, late))
	want(t, "the child", false, p.Stranger(one, me, late))
	want(t, "itself", false, p.Stranger(two.PID, two, late))
	want(t, "nobody", false, p.Stranger(math.MaxInt32, two, late))
	want(t, "no number", false, p.Stranger(0, two, late))
	gone := two
	gone.PID = math.MaxInt32
	want(t, "of nobody", false, p.Stranger(one, gone, late))
}

func TestProcessesOfImpossibleNumbers(t *testing.T) {
	p := &Processes{}
	for _, pid := range []int{0, -1, math.MinInt, math.MaxInt32 + 1, 1<<32 + os.Getpid()} {
		want(t, "identity", liveness.Process{}, p.Identify(pid))
		want(t, "alive", liveness.Unknown, p.Alive(liveness.Process{PID: pid, Start: "1"}))
	}
}

func TestCompare(t *testing.T) {
	owner := liveness.Process{PID: 7, Start: "100", Boot: "b"}
	noBoot, noStart := liveness.Process{PID: 7, Start: "100"}, liveness.Process{PID: 7, Boot: "b"}
	for _, c := range []struct {
		process     liveness.Process
		boot, start string
		standing    standing
		needsBoot   bool
		want        liveness.State
	}{
		{owner, "b", "100", there, true, liveness.Alive},
		{owner, "b", "100", gone, true, liveness.Dead}, // a zombie
		{owner, "b", "", gone, true, liveness.Dead},
		{owner, "b", "", hidden, true, liveness.Unknown},
		{owner, "b", "", there, true, liveness.Unknown},
		{owner, "b", "101", there, true, liveness.Dead},
		{owner, "c", "100", there, true, liveness.Dead},
		{owner, "c", "", hidden, true, liveness.Dead},
		{owner, "", "100", there, true, liveness.Unknown}, // it may be from another boot
		{owner, "", "100", there, false, liveness.Alive},
		{owner, "", "101", there, true, liveness.Dead},
		{noBoot, "b", "100", there, true, liveness.Unknown},
		{noBoot, "b", "100", there, false, liveness.Alive},
		{noBoot, "b", "", gone, true, liveness.Dead},
		{noStart, "b", "100", there, true, liveness.Unknown},
		{noStart, "b", "", gone, true, liveness.Dead},
		{noStart, "c", "100", there, true, liveness.Dead},
	} {
		if got := compare(c.process, c.boot, c.start, c.standing, c.needsBoot); got != c.want {
			t.Errorf("%+v is %d, not %d", c, got, c.want)
		}
	}
}

func BenchmarkAlive(b *testing.B) {
	p := &Processes{}
	me := p.Identify(os.Getpid())
	b.ReportAllocs()
	for b.Loop() {
		if p.Alive(me) != liveness.Alive {
			b.Fatal("dead")
		}
	}
}
