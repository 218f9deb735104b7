package db_test

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/ckptsidecar/ckptsidecar/internal/expect"
)

// The environment of a child that makes the steps of a seed until it is killed.
const (
	modelChildPath = "CKPTSIDECAR_TEST_MODEL_DB"
	modelChildSeed = "CKPTSIDECAR_TEST_MODEL_SEED"
)

// TestModelChild is the child of TestModelKilled.
func TestModelChild(t *testing.T) {
	path := os.Getenv(modelChildPath)
	if path == "" {
		t.Skip("it is the child of TestModelKilled")
	}
	seed, err := strconv.ParseUint(os.Getenv(modelChildSeed), 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	h := newHarness(t, seed, path)
	h.acks = os.Stdout
	for {
		h.step(h.next())
	}
}

// TestModelKilled kills a process in the middle of the steps of a seed.
// Everything that it had acknowledged is there. Of the interrupted step
// everything is there, a part that the model allows, or nothing.
func TestModelKilled(t *testing.T) {
	t.Parallel()
	for _, seed := range seeds(100, 2, 20) {
		t.Run(fmt.Sprint("seed=", seed), func(t *testing.T) { killed(t, seed) })
	}
}

// killed kills a child somewhere in a step. For a replay, it instead cuts off
// that step at each place where a kill can make a difference.
func killed(t *testing.T, seed uint64) {
	if *modelAcked >= 0 {
		acks, cuts := cutStep(t, seed, *modelAcked)
		for _, path := range cuts {
			judgeKilled(t, seed, acks, path)
		}
		return
	}
	path := filepath.Join(t.TempDir(), "ckpt.db")
	acks := killChild(t, seed, path)
	t.Logf("killed after %d steps", len(acks))
	judgeKilled(t, seed, acks, path)
}

// TestModelCut makes steps of a few seeds in this process and cuts some of them
// off between any two of their transactions. The result is what a kill leaves,
// without depending on chance.
func TestModelCut(t *testing.T) {
	t.Parallel()
	expect.OneThread(t)
	for _, seed := range seeds(200, 2, 12) {
		t.Run(fmt.Sprint("seed=", seed), func(t *testing.T) {
			t.Parallel()
			r := rand.New(rand.NewPCG(seed, 7))
			for range moreOf(1, 2) {
				acks, cuts := cutStep(t, seed, 50+r.IntN(250))
				for _, path := range cuts {
					judgeKilled(t, seed, acks, path)
				}
			}
		})
	}
}

// TestModelKilledRunEnd repeats a case that once made TestModelKilled fail: the
// end of a run was on disk, but unacknowledged, when the process was killed.
// The judge assumed that the run had ended at the time of the check, an hour
// later, and so missed that all of its checkpoints had become due.
func TestModelKilledRunEnd(t *testing.T) {
	t.Parallel()
	expect.OneThread(t)
	for seed := uint64(101); ; seed++ {
		h := newCut(t, seed)
		for range 300 {
			s := h.next()
			if h.endsOneSoonDue(s) {
				acks, cuts := h.cut(s)
				for _, path := range cuts {
					judgeKilled(t, seed, acks, path)
				}
				return
			}
			h.step(s)
		}
	}
}

// endsOneSoonDue reports whether a step ends a run that has several checkpoints
// and a policy that keeps it for an hour after its end.
func (h *harness) endsOneSoonDue(s *step) bool {
	for _, r := range h.runs() {
		if s.what == fmt.Sprintf("end %s/%s failed", r.agent.name, r.name) && len(r.list) > 1 && time.Duration(r.agent.policy.EndedKeep) == time.Hour {
			return true
		}
	}
	return false
}

// cutStep makes steps and then one more. It returns copies of the files from
// before each transaction of that step, and after the last one. A kill at any
// other instruction leaves one of these states, because a transaction is whole
// or absent.
func cutStep(t *testing.T, seed uint64, acked int) (acks [][]string, cuts []string) {
	t.Helper()
	h := newCut(t, seed)
	for range acked {
		h.step(h.next())
	}
	return h.cut(h.next())
}

// newCut makes a harness that records what it has acknowledged.
func newCut(t *testing.T, seed uint64) *harness {
	t.Helper()
	h := newHarness(t, seed, filepath.Join(t.TempDir(), "ckpt.db"))
	h.acks = &bytes.Buffer{}
	return h
}

// cut makes the last step and copies the files around each of its transactions.
func (h *harness) cut(s *step) (acks [][]string, cuts []string) {
	h.t.Helper()
	acks, _ = readAcks(h.t, h.acks.(*bytes.Buffer))
	h.replay = fmt.Sprintf("-run 'TestModelKilled$' -model.seed=%d -model.acked=%d", h.seed, len(acks))
	cut := func() { cuts = append(cuts, copyFiles(h.t, h.path)) }
	h.begins = cut
	h.step(s)
	h.begins = nil
	cut()
	return acks, cuts
}

// copyFiles copies an open database, as a kill would leave it.
func copyFiles(t testing.TB, path string) string {
	t.Helper()
	to := filepath.Join(t.TempDir(), "ckpt.db")
	for _, suffix := range []string{"", "-wal"} {
		b, err := os.ReadFile(path + suffix)
		if err == nil {
			err = os.WriteFile(to+suffix, b, 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	return to
}

// after returns the model after the steps that a child has acknowledged.
func after(t *testing.T, seed uint64, acks [][]string) *generator {
	t.Helper()
	g := newGenerator(seed)
	for i, removed := range acks {
		s := g.next()
		if s.code != "" {
			continue
		}
		o := s.change()
		for id := range o.must {
			if !slices.Contains(removed, id) {
				t.Fatalf("step %d of seed %d: the child did not remove %s", i+1, seed, id)
			}
		}
		g.apply(o, removed)
	}
	return g
}

// judgeKilled checks what a process has left that was killed in the step after
// the acknowledged ones. An hour later it makes a round, which shows parts of
// that step that are on disk but do not show in the checkpoints.
func judgeKilled(t *testing.T, seed uint64, acks [][]string, path string) {
	t.Helper()
	g := after(t, seed, acks)
	h := &harness{generator: g, t: t, ctx: t.Context(), seed: seed, n: len(acks) + 1}
	h.replay = fmt.Sprintf("-run 'TestModelKilled$' -model.seed=%d -model.acked=%d", seed, len(acks))
	h.path, h.clocks = path, &clocks{wall: g.wall, mono: g.mono}
	h.start()
	defer h.store.Close()
	defer h.reader.Close()

	there := rows(t, h.reader)
	slices.Sort(there)
	s := g.next()
	h.recent = []string{s.what + " (cut off)"}
	if slices.Equal(there, slices.Sorted(slices.Values(h.rows()))) {
		h.generator = after(t, seed, acks) // the step is not there, or does not show
	} else {
		if s.code != "" || s.still {
			h.fail("there is %v, and the step had nothing to change", there)
		}
		o := s.change()
		o.must, o.settled = nil, nil
		h.settle(o, h.ids())
		h.same("checkpoints", there, h.rows())
	}

	hourLater := func(g *generator) outcome {
		g.held = g.mono
		g.pass(time.Hour)
		return exactly(g.due(g.runs()...))
	}
	o := hourLater(h.generator)
	h.clocks.mu.Lock()
	h.clocks.wall, h.clocks.mono = h.wall, h.mono
	h.clocks.mu.Unlock()
	h.round(false, 5)
	left := h.ids()
	if !h.explains(o, left) && s.code == "" && !s.still {
		// The step may be there without showing. Then its time is the time of
		// the step, not now.
		other := after(t, seed, acks)
		other.next().change()
		if o2 := hourLater(other); other.explains(o2, left) {
			h.generator, o = other, o2
		}
	}
	h.settle(o, left)
	h.same("checkpoints", rows(t, h.reader), h.rows())
	h.oneAuditRowEach()
	sound(t, path, operationByHand)
}

// explains reports whether the remaining checkpoints are those of the model,
// without the ones that had to be removed and some of those that could be.
func (g *generator) explains(o outcome, left map[string]bool) bool {
	for _, r := range g.runs() {
		for _, c := range r.list {
			_, must := o.must[c.id]
			_, may := o.may[c.id]
			if must == left[c.id] && (must || !may) {
				return false
			}
		}
	}
	return true
}

// killChild runs the steps of a seed in a separate process and kills it. It
// returns the removals of each acknowledged step.
func killChild(t *testing.T, seed uint64, path string) [][]string {
	t.Helper()
	r := rand.New(rand.NewPCG(seed, uint64(time.Now().UnixNano())))
	until := 50 + r.IntN(250)
	cmd := exec.Command(os.Args[0], "-test.run=^TestModelChild$", "-test.timeout=10m")
	cmd.Env = append(os.Environ(), modelChildPath+"="+path, modelChildSeed+"="+strconv.FormatUint(seed, 10), "GOCOVERDIR="+t.TempDir())
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	dead := false
	acks, rest := readAcks(t, out, func(n int) {
		if n == until {
			dead = true
			go func() {
				time.Sleep(time.Duration(r.IntN(4000)) * time.Microsecond)
				_ = cmd.Process.Kill()
			}()
		}
	})
	if err := cmd.Wait(); err == nil || !dead || strings.Contains(rest, "--- FAIL") {
		t.Fatalf("the child ended by itself after %d steps: %v\n%s", len(acks), err, rest)
	}
	return acks
}

// readAcks reads the removals of each acknowledged step, and the other output
// lines.
func readAcks(t testing.TB, from io.Reader, seen ...func(n int)) (acks [][]string, rest string) {
	t.Helper()
	lines := bufio.NewScanner(from)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		words := strings.Fields(lines.Text())
		if len(words) < 2 || words[0] != "ack" {
			rest += lines.Text() + "\n"
			continue
		}
		acks = append(acks, words[2:])
		for _, f := range seen {
			f(len(acks))
		}
	}
	return acks, rest
}
