//go:build linux

package faulttest

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"syscall"
	"testing"
	"time"
)

var soakTime = flag.Duration("soak", 0, "how long TestSoak takes; make soak")

// soakPause is how long each client rests after each request. Hours at full speed would mostly make a large audit
// log.
const soakPause = 100 * time.Millisecond

// probe is a measurement of the daemon at one moment.
type probe struct {
	at            time.Duration
	rss, db, wal  int64
	files         int
	acked, faults int64
	what          string // the fault before it
}

// TestSoak is hours of mixed faults under 16 clients that use every feature. Only what retention keeps may add
// memory, descriptors and files.
func TestSoak(t *testing.T) {
	if *soakTime == 0 {
		t.Skip("make soak runs this for hours")
	}
	t.Parallel()
	d, random := NewDaemon(t), newRand(t, 0)
	d.Start()
	m := startMixed(t, d, 4, soakPause)
	var probes []probe
	every := min(time.Minute, *soakTime/20)
	fmt.Printf("%8s %9s %6s %9s %9s %9s %7s  %s\n", "at", "memory", "files", "database", "log", "acts", "faults", "last fault")
	d.underFaults(t, m, random, every, func(p probe) {
		probes = append(probes, p)
		fmt.Println(p)
	})
	m.finish()
	d.Audit()
	if code, _ := d.Stop(); code != 0 {
		t.Errorf("the daemon ended with exit code %d", code)
	}
	d.Verify()
	flat(t, probes)
}

// underFaults causes a fault at intervals for the whole soak, checks that clients continue after it, and reports a
// measurement a while later.
func (d *Daemon) underFaults(t *testing.T, m *mixed, random *rand.Rand, every time.Duration, tell func(probe)) {
	t.Helper()
	for began, n := time.Now(), int64(1); time.Since(began) < *soakTime; n++ {
		what := d.someFault(t, random)
		settled := time.Now()
		for before := m.done.Load(); m.done.Load() == before; time.Sleep(time.Millisecond) {
			if time.Since(settled) > slack(5*time.Second) {
				t.Fatalf("after %s nothing succeeded for 5 s (I8)", what)
			}
		}
		time.Sleep(every)
		tell(d.probe(t, time.Since(began), m.done.Load(), n, what))
		d.forgetLog()
	}
}

func (p probe) String() string {
	return fmt.Sprintf("%8v %6.1f MB %6d %6.1f MB %6.1f MB %9d %7d  %s", p.at.Round(time.Second), float64(p.rss)/1e6, p.files, float64(p.db)/1e6, float64(p.wal)/1e6, p.acked, p.faults, p.what)
}

func (d *Daemon) probe(t *testing.T, at time.Duration, acked, faults int64, what string) probe {
	t.Helper()
	rss, _ := d.RSS()
	return probe{at: at, rss: rss, db: fileSize(d.DB), wal: fileSize(d.DB + "-wal"), files: openFiles(t, d), acked: acked, faults: faults, what: what}
}

// forgetLog keeps the memory of the harness itself from growing.
func (d *Daemon) forgetLog() {
	d.log.mu.Lock()
	defer d.log.mu.Unlock()
	if d.log.text.Len() > 1<<20 {
		d.log.text.Reset()
	}
}

// someFault causes one of the faults of the matrix and ends it. It returns the name of the fault.
func (d *Daemon) someFault(t *testing.T, random *rand.Rand) string {
	t.Helper()
	short := time.Duration(random.Int64N(int64(3 * time.Second)))
	faults := []struct {
		name string
		do   func()
	}{
		{"kill -9", func() { d.Kill(); d.Start() }},
		{"SIGTERM", func() { d.Stop(); d.Start() }},
		{"SIGSTOP", func() { d.Signal(syscall.SIGSTOP); time.Sleep(short); d.Signal(syscall.SIGCONT) }},
		{"lock", func() { unlock := lockDatabase(t, d.DB); time.Sleep(short); unlock() }},
		{"auditors", func() { _, _ = sqlite(d.DB, "-readonly", "SELECT count(*) FROM audit_violations") }},
		{"slow disk", func() {
			end := d.disturb("-e", "trace=fsync,fdatasync", "-e", "inject=fsync,fdatasync:delay_enter=100000")
			time.Sleep(short)
			end()
		}},
		{"fsync error", func() {
			end := d.disturb("-P", d.DB+"-wal", "-e", "trace=fsync,fdatasync", "-e", "inject=fsync,fdatasync:error=EIO:when=1")
			_, _ = d.Wait(startTime)
			end()
			if d.Running() { // no commit ran into the fault
				return
			}
			d.Start()
		}},
		{"backup", func() {
			out := filepath.Join(d.Dir, "backup.db")
			if said, err := d.command("backup", "--db", d.DB, out).CombinedOutput(); err != nil {
				t.Errorf("backup: %v: %s", err, said)
			}
			_ = os.Remove(out)
		}},
	}
	f := faults[random.IntN(len(faults))]
	f.do()
	return f.name
}

// flat compares the last third of the probes with the second third. The first third is for warming up.
func flat(t *testing.T, probes []probe) {
	t.Helper()
	if len(probes) < 9 {
		t.Fatalf("only %d probes: make it longer", len(probes))
	}
	third := len(probes) / 3
	middle, last := probes[third:2*third], probes[2*third:]
	for name, of := range map[string]func(probe) float64{
		"memory":      func(p probe) float64 { return float64(p.rss) },
		"descriptors": func(p probe) float64 { return float64(p.files) },
		"log":         func(p probe) float64 { return float64(p.wal) + 32<<20 },
	} {
		before, after := middleOf(middle, of), middleOf(last, of)
		t.Logf("%s: %.0f, and %.0f in the last third", name, before, after)
		if after > 1.3*before+4 {
			t.Errorf("%s grows: %.0f, then %.0f", name, before, after)
		}
	}
	a, b := middle[0], last[len(last)-1]
	perAct := float64(b.db-a.db) / float64(b.acked-a.acked)
	t.Logf("the database has grown by %.0f bytes for each act: events, steps and audit rows stay", perAct)
	if perAct > 4096 {
		t.Errorf("the database has grown by %.0f bytes for each act", perAct)
	}
}

func middleOf(probes []probe, of func(probe) float64) float64 {
	list := make([]float64, len(probes))
	for i, p := range probes {
		list[i] = of(p)
	}
	slices.Sort(list)
	return list[len(list)/2]
}
