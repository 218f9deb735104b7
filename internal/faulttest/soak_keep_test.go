//go:build linux

package faulttest

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	ckpt "github.com/ckptsidecar/ckptsidecar"
	"github.com/ckptsidecar/ckptsidecar/internal/faulttest/mutants"
	"github.com/ckptsidecar/ckptsidecar/internal/ipc/client"
)

// The soak under audit.keep plays soakDays in its running time. That is enough for its first third to contain
// keepDays and everything that the policy keeps for a week.
const (
	soakDays = 40
	keepDays = 8
)

// TestSoakUnderKeep: old rows of the audit log move to archives, and agents do the same things each day and are
// erased later. The file stops growing once it holds the days that are kept. The daemon has a fast clock and the
// faults of TestSoak. TestSoak checks memory and descriptors.
func TestSoakUnderKeep(t *testing.T) {
	if *soakTime == 0 {
		t.Skip("make soak runs this for hours")
	}
	t.Parallel()
	fast := &fastClock{began: time.Now(), factor: int64(soakDays*ckpt.Day) / int64(*soakTime)}
	d, random := NewDaemon(t), newRand(t, 0)
	d.Env = []string{"CKPTSIDECAR_RETENTION_INTERVAL=1s", fmt.Sprintf("CKPTSIDECAR_AUDIT_KEEP=%dd", keepDays)}
	d.Program = fast.build(t)
	d.Start()
	m := runMixed(t, d, 100*time.Millisecond, newDwellers(8, fast))
	var probes []probe
	d.underFaults(t, m, random, *soakTime/(3*soakDays), func(p probe) {
		probes = append(probes, p)
		fmt.Printf("day %4.1f, %s, %d archives\n", fast.days(), p, len(d.archives(t)))
	})
	m.finish()
	d.Audit()
	if code, _ := d.Stop(); code != 0 {
		t.Errorf("the daemon ended with exit code %d", code)
	}
	d.verifyWithArchives(t)
	flatFile(t, probes)
}

// flatFile compares the largest size of the file in the last third with that in the second third.
func flatFile(t *testing.T, probes []probe) {
	t.Helper()
	largest := func(part []probe) int64 {
		return slices.MaxFunc(part, func(a, b probe) int { return int(a.db - b.db) }).db
	}
	third := len(probes) / 3
	if third < 3 {
		t.Fatalf("only %d probes: make it longer", len(probes))
	}
	before, after := largest(probes[third:2*third]), largest(probes[2*third:])
	t.Logf("the file: at most %.1f MB in the second third, and at most %.1f MB in the last", float64(before)/1e6, float64(after)/1e6)
	if after > before+before/10 {
		t.Errorf("the file grows: %d bytes, then %d", before, after)
	}
}

// archives returns the archives that the daemon has made.
func (d *Daemon) archives(t *testing.T) []string {
	t.Helper()
	list, err := filepath.Glob(filepath.Join(filepath.Dir(d.DB), "audit", "*.db"))
	must(t, err)
	return list
}

// verifyWithArchives is Verify for the database and its archives. There must be about one archive per day.
func (d *Daemon) verifyWithArchives(t *testing.T) {
	t.Helper()
	out, err := d.command("verify", "--db", d.DB, "--archives", filepath.Join(filepath.Dir(d.DB), "audit")).CombinedOutput()
	if err != nil {
		t.Errorf("verify: %v\n%s", err, tail(string(out), 3000))
	}
	n := len(d.archives(t))
	t.Logf("%s\n%d archives", strings.TrimSpace(string(out)), n)
	if n < (soakDays-keepDays)/2 {
		t.Errorf("%d archives were made in %d days", n, soakDays)
	}
}

// fastClock is a clock that started with the test and runs this many times as fast as the wall clock.
type fastClock struct {
	began  time.Time
	factor int64
}

func (f *fastClock) days() float64 {
	return time.Since(f.began).Hours() * float64(f.factor) / 24
}

// build builds the program with this clock instead of the system's.
func (f *fastClock) build(t *testing.T) string {
	t.Helper()
	root, overlay := f.overlay(t)
	built := filepath.Join(t.TempDir(), "ckptsidecar")
	build := exec.Command("go", "build", "-overlay", overlay, "-o", built, "./cmd/ckptsidecar")
	build.Dir = root
	out, err := build.CombinedOutput()
	if err != nil {
		t.Fatalf("the program with a fast clock does not build: %v\n%s", err, out)
	}
	return built
}

// TestFastClockFits checks that the source still contains the texts that the soak replaces.
func TestFastClockFits(t *testing.T) {
	(&fastClock{began: time.Now(), factor: 480}).overlay(t)
}

// overlay writes what the build replaces: the wall clock, the monotonic clock, and the pauses between archives.
func (f *fastClock) overlay(t *testing.T) (root, overlay string) {
	t.Helper()
	root, err := mutants.Root()
	must(t, err)
	dir, replaced := t.TempDir(), map[string]string{}
	put := func(name, text string) {
		file := filepath.Join(dir, filepath.Base(name))
		must(t, os.WriteFile(file, []byte(text), 0o600))
		replaced[filepath.Join(root, name)] = file
	}
	edit := func(name string, pairs ...string) {
		text, err := os.ReadFile(filepath.Join(root, name))
		must(t, err)
		for i := 0; i < len(pairs); i += 2 {
			if strings.Count(string(text), pairs[i]) != 1 {
				t.Fatalf("%s must have the text %q once: change this test with it", name, pairs[i])
			}
		}
		put(name, strings.NewReplacer(pairs...).Replace(string(text)))
	}
	faster := fmt.Sprintf(" / %d", f.factor)
	edit("internal/daemon/run.go", "d.Now = time.Now", "d.Now = fastNow")
	edit("internal/daemon/start.go", "GuardSettings{Wall: s.daemon.Now,", "GuardSettings{Wall: s.daemon.Now, Monotonic: fastMonotonic, Tolerance: time.Hour,")
	edit("internal/daemon/archives.go", "= 2 * time.Minute", "= 2 * time.Minute"+faster, "= 6 * time.Hour", "= 6 * time.Hour"+faster)
	put("internal/daemon/fast.go", fmt.Sprintf(`package daemon

import "time"

var fastBegan = time.Now()

func fastNow() time.Time { began := time.Unix(0, %d); return began.Add(time.Since(began) * %d) }

func fastMonotonic() time.Duration { return time.Since(fastBegan) * %[2]d }
`, f.began.UnixNano(), f.factor))
	text, err := json.Marshal(map[string]any{"Replace": replaced})
	must(t, err)
	overlay = filepath.Join(dir, "overlay.json")
	must(t, os.WriteFile(overlay, text, 0o600))
	return root, overlay
}

// dweller is an agent that does the same things each day. It has a new name each day and four runs one after the
// other, and its old data is erased.
type dweller struct {
	name  string
	clock *fastClock

	quarter int // of a day; 0 before the first quarter
	newest  *ckpt.Saved
	state   []byte
	acts    int
}

// The dweller deletes a run two quarters after the run's end, and erases an agent two days after the agent's last
// day.
const (
	deleteAfter = 2
	eraseAfter  = 3
)

func newDwellers(n int, clock *fastClock) []mixer {
	list := make([]mixer, n)
	for i := range list {
		list[i] = &dweller{name: fmt.Sprintf("dweller-%d", i), clock: clock}
	}
	return list
}

func (w *dweller) agent(day int) string { return fmt.Sprintf("%s-%d", w.name, day) }

// run is the run of a quarter. It belongs to the agent of that day.
func (w *dweller) run(quarter int) ckpt.RunRef {
	return ckpt.RunRef{Agent: w.agent(quarter / 4), Run: fmt.Sprintf("run-%d", quarter%4)}
}

func (w *dweller) play(_ context.Context, m *mixed, c *client.Client, random *rand.Rand) error {
	if now := 1 + int(w.clock.days()*4); now > w.quarter {
		before := w.quarter
		w.quarter, w.newest = now, nil
		return w.turnOver(c, before)
	}
	w.acts++
	switch random.IntN(20) {
	case 0:
		return w.operate(c, random)
	case 1, 2:
		return w.step(c)
	case 3, 4:
		return w.log(c)
	case 5:
		return w.look(m, c)
	}
	return w.save(c, random)
}

// turnOver ends the run of the previous quarter, and removes old runs and agents.
func (w *dweller) turnOver(c *client.Client, before int) error {
	if before == 0 {
		return nil
	}
	end := ckpt.EndRequest{Status: ckpt.RunCompleted, IdempotencyKey: newKey()}
	err := until(func(ctx context.Context) error { _, _, err := c.EndRun(ctx, w.run(before), end); return err })
	if err != nil && ckpt.CodeOf(err) != ckpt.CodeNotFound { // nothing may have happened in that quarter
		return err
	}
	if old := before - deleteAfter; old > 0 {
		err := until(func(ctx context.Context) error { _, err := c.DeleteRun(ctx, w.run(old), false); return err })
		if err != nil && ckpt.CodeOf(err) != ckpt.CodeNotFound { // or an earlier try deleted it, and its answer was lost
			return err
		}
	}
	if old := w.quarter/4 - eraseAfter; old >= 0 && w.quarter/4 > before/4 {
		err := until(func(ctx context.Context) error { _, err := c.Erase(ctx, w.agent(old)); return err })
		if err != nil && ckpt.CodeOf(err) != ckpt.CodeNotFound {
			return err
		}
	}
	return nil
}

func (w *dweller) save(c *client.Client, random *rand.Rand) error {
	ref := w.run(w.quarter)
	r := &ckpt.SaveRequest{ID: newKey(), Agent: ref.Agent, Run: ref.Run, Kind: ckpt.KindRoutine, ContentType: ckpt.ContentTypeJSON,
		State: someState(random, ref.Agent, 8<<10)}
	if random.IntN(30) == 0 {
		r.Kind = ckpt.KindRecovery
	}
	return until(func(ctx context.Context) error {
		saved, err := c.Save(ctx, r)
		if err == nil {
			w.newest, w.state = saved, r.State
		}
		return err
	})
}

// look reads back the newest checkpoint (I1).
func (w *dweller) look(m *mixed, c *client.Client) error {
	if w.newest == nil {
		return nil
	}
	var state []byte
	err := until(func(ctx context.Context) (err error) { state, err = c.State(ctx, w.newest.ID); return err })
	if err == nil && !bytes.Equal(state, w.state) || ckpt.CodeOf(err) == ckpt.CodeNotFound {
		m.problem("I1: the checkpoint %s of %s is not what was sent: %v", w.newest.ID, w.name, err)
		return nil
	}
	return err
}

func (w *dweller) log(c *client.Client) error {
	batch, key := []ckpt.NewEvent{{Type: "seen", Payload: ckpt.JSON(fmt.Sprintf(`{"act":%d}`, w.acts))}}, newKey()
	return until(func(ctx context.Context) error { _, _, err := c.Append(ctx, w.run(w.quarter), batch, key); return err })
}

func (w *dweller) step(c *client.Client) error {
	key := fmt.Sprintf("step-%d", w.acts)
	begin := ckpt.StepRequest{Key: key, Name: "work", IdempotencyKey: newKey()}
	if err := until(func(ctx context.Context) error { _, _, err := c.BeginStep(ctx, w.run(w.quarter), begin); return err }); err != nil {
		return err
	}
	finish := ckpt.StepRequest{Key: key, Status: ckpt.StepSucceeded, Result: ckpt.JSON(`{"done":true}`), IdempotencyKey: newKey()}
	return until(func(ctx context.Context) error { _, _, err := c.FinishStep(ctx, w.run(w.quarter), finish); return err })
}

func (w *dweller) operate(c *client.Client, random *rand.Rand) error {
	key := fmt.Sprintf("op-%d", w.acts)
	begin := ckpt.OperationRequest{Key: key, Name: "push", State: someState(random, key, 4<<10), IdempotencyKey: newKey()}
	if err := until(func(ctx context.Context) error {
		_, _, err := c.BeginOperation(ctx, w.run(w.quarter), begin)
		return err
	}); err != nil {
		return err
	}
	end := ckpt.OperationEnd{Key: key, Status: ckpt.OperationSucceeded, IdempotencyKey: newKey()}
	return until(func(ctx context.Context) error { _, _, err := c.EndOperation(ctx, w.run(w.quarter), end); return err })
}

func (w *dweller) check(m *mixed, c *client.Client) error { return w.look(m, c) }
