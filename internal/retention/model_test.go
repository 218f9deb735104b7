package retention

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	ckpt "github.com/ckptsidecar/ckptsidecar"
)

// oracle returns which checkpoints stay. It is written in the opposite way from
// Plan: it collects what every promise saves, and counts again for each
// checkpoint.
func oracle(h History, p ckpt.Policy, now time.Time) map[string]bool {
	stays := map[string]bool{}
	save := func(is func(c Held) bool) {
		for _, c := range h.Checkpoints {
			if is(c) {
				stays[c.ID] = true
			}
		}
	}
	intact := func(c Held) bool { return !c.Damaged }
	newer := func(than Held, is func(c Held) bool) (n int) {
		for _, c := range h.Checkpoints {
			if c.Seq > than.Seq && is(c) {
				n++
			}
		}
		return n
	}
	anybody := func(Held) bool { return true }
	clean := func(c Held) bool { return !c.Suspect && !c.Damaged }
	routine := func(c Held) bool { return c.Kind == "routine" }
	counts := func(c Held) bool { return routine(c) && intact(c) }
	trusted := now != time.Time{}

	save(func(c Held) bool { return c.Pinned })
	save(func(c Held) bool { return c.NeededBy != "" })

	finished := (h.Status == "completed" || h.Status == "failed") && h.EndedAt != time.Time{}
	if finished && trusted && !now.Before(h.EndedAt.Add(time.Duration(p.EndedKeep))) {
		return stays
	}
	save(func(c Held) bool { return routine(c) && (p.RoutineKeep == 0 || newer(c, counts) < p.RoutineKeep) })
	save(func(c Held) bool {
		return c.Kind == "recovery" && (!trusted || now.Before(c.CreatedAt.Add(time.Duration(p.RecoveryKeep))))
	})
	save(func(c Held) bool { return c.Kind == "pre_operation" && c.Operation && !c.Released })
	save(func(c Held) bool {
		young := !trusted || p.PreOperationKeep == 0 || now.Before(c.CreatedAt.Add(time.Duration(p.PreOperationKeep)))
		return c.Kind == "pre_operation" && !c.Operation && young
	})

	switch {
	case !slices.ContainsFunc(h.Checkpoints, intact):
		save(func(c Held) bool { return newer(c, anybody) == 0 })
	case finished:
		save(func(c Held) bool { return intact(c) && newer(c, intact) == 0 })
	case slices.ContainsFunc(h.Checkpoints, clean):
		save(func(c Held) bool { return clean(c) && newer(c, clean) == 0 })
	default:
		save(func(c Held) bool { return intact(c) && newer(c, intact) == 0 })
	}
	return stays
}

// randomScene makes a history in which everything happens, often at the limits.
func randomScene(r *rand.Rand) (History, ckpt.Policy, time.Time) {
	chance := func(percent int) bool { return r.IntN(100) < percent }
	p := ckpt.DefaultPolicy()
	p.RoutineKeep = r.IntN(5)
	p.PreOperationKeep = ckpt.Duration([]time.Duration{0, 7 * ckpt.Day, 7 * ckpt.Day, 100 * ckpt.Day}[r.IntN(4)])
	statuses := []ckpt.RunStatus{"running", "suspended", "awaiting_continuation", "interrupted", "timed_out", "completed", "failed"}
	h := History{Status: statuses[r.IntN(len(statuses))]}
	if !h.Status.Resumable() {
		h.EndedAt = noon.Add(-nearly(r, 30*ckpt.Day))
	}
	suspects := []int{0, 10, 50, 100}[r.IntN(4)]
	damaged := []int{0, 0, 20, 100}[r.IntN(4)]
	seq := int64(1 + r.IntN(3))
	for range r.IntN(12) {
		c := Held{
			ID: fmt.Sprint("c", seq), Seq: seq, Kind: ckpt.Kinds[r.IntN(3)], CreatedAt: noon.Add(-nearly(r, 7*ckpt.Day)),
			StoredSize: r.Int64N(100), Pinned: chance(10), Suspect: chance(suspects), Damaged: chance(damaged),
		}
		if chance(10) {
			c.NeededBy = "a fork"
		}
		c.Operation = c.Kind == ckpt.KindPreOperation && chance(70)
		c.Released = c.Operation && chance(60)
		h.Checkpoints = append(h.Checkpoints, c)
		seq += 1 + r.Int64N(3)
	}
	slices.Reverse(h.Checkpoints)
	now := noon
	switch {
	case chance(10):
		now = time.Time{}
	case chance(5):
		now = noon.AddDate(10, 0, 0)
	case chance(5):
		now = noon.AddDate(0, 0, -1)
	}
	return h, p, now
}

// nearly returns a duration around d: at the limit, a millisecond off, or
// anywhere.
func nearly(r *rand.Rand, d time.Duration) time.Duration {
	switch r.IntN(5) {
	case 0:
		return d
	case 1:
		return d - time.Millisecond
	case 2:
		return d + time.Millisecond
	case 3:
		return -time.Duration(r.Int64N(int64(2 * d))) // made in the future
	}
	return time.Duration(r.Int64N(int64(2 * d)))
}

func kept(h History, verdicts []Verdict) map[string]bool {
	stays := map[string]bool{}
	for i, v := range verdicts {
		if v.ID != h.Checkpoints[i].ID {
			panic("the verdicts have another order")
		}
		if !v.Remove {
			stays[v.ID] = true
		}
	}
	return stays
}

// checkPlan compares with the oracle and checks what holds for every history.
func checkPlan(t *testing.T, r *rand.Rand, h History, p ckpt.Policy, now time.Time) {
	t.Helper()
	before := slices.Clone(h.Checkpoints)
	verdicts := Plan(h, p, now)
	stays := kept(h, verdicts)
	if diff := cmp.Diff(oracle(h, p, now), stays); diff != "" {
		t.Fatalf("(-oracle +plan)\n%s%+v\n%+v\nnow %s", diff, h, p, now)
	}
	for _, v := range verdicts {
		if v.Reason == "" || strings.ContainsAny(v.Reason, "\n.") {
			t.Fatalf("%q is not a phrase", v.Reason)
		}
	}
	if diff := cmp.Diff(before, h.Checkpoints); diff != "" {
		t.Fatalf("the history was changed:\n%s", diff)
	}

	rest := h
	rest.Checkpoints = slices.DeleteFunc(slices.Clone(h.Checkpoints), func(c Held) bool { return !stays[c.ID] })
	if again := kept(rest, Plan(rest, p, now)); len(again) != len(rest.Checkpoints) {
		t.Fatalf("a second plan removes more of %+v", rest)
	}
	mixed := h
	mixed.Checkpoints = slices.Clone(h.Checkpoints)
	r.Shuffle(len(mixed.Checkpoints), func(i, k int) {
		mixed.Checkpoints[i], mixed.Checkpoints[k] = mixed.Checkpoints[k], mixed.Checkpoints[i]
	})
	if diff := cmp.Diff(stays, kept(mixed, Plan(mixed, p, now))); diff != "" {
		t.Fatalf("the order of the history matters:\n%s", diff)
	}
	for id := range stays {
		if !now.IsZero() && !kept(h, Plan(h, p, time.Time{}))[id] {
			t.Fatalf("%s goes only where the clock is not trusted", id)
		}
	}
	checkBudget(t, r, h, p)
}

// checkBudget: a budget removes what it says, no more than necessary, and
// nothing that Plan protects under any policy.
func checkBudget(t *testing.T, r *rand.Rand, h History, p ckpt.Policy) {
	t.Helper()
	over := r.Int64N(400)
	remove, short := Budget([]History{h}, over)
	strict := p
	strict.RoutineKeep, strict.RecoveryKeep, strict.EndedKeep = 1, 1, ckpt.Duration(1<<62)
	may := Plan(h, strict, noon.AddDate(100, 0, 0))
	var freed, last int64
	for _, v := range remove {
		i := slices.IndexFunc(h.Checkpoints, func(c Held) bool { return c.ID == v.ID })
		c := h.Checkpoints[i]
		newestRoutine := c.Kind == ckpt.KindRoutine && strings.HasSuffix(may[i].Reason, "the newest routine checkpoint")
		damaged := c.Damaged && strings.HasPrefix(may[i].Reason, "damaged,")
		if !v.Remove || v.Reason == "" || !may[i].Remove && !newestRoutine && !damaged {
			t.Fatalf("the budget takes %+v, the plan says %+v", c, may[i])
		}
		freed, last = freed+c.StoredSize, c.StoredSize
	}
	if short != max(over-freed, 0) || len(remove) > 0 && freed-last >= over {
		t.Fatalf("over by %d, freed %d, the last %d, short by %d", over, freed, last, short)
	}
}

func TestPlanEqualsTheOracle(t *testing.T) {
	seeds := uint64(20_000)
	if testing.Short() {
		seeds /= 20
	}
	for seed := range seeds {
		r := rand.New(rand.NewPCG(seed, 1))
		h, p, now := randomScene(r)
		checkPlan(t, r, h, p, now)
	}
}

func FuzzPlan(f *testing.F) {
	f.Add(uint64(1), uint64(2))
	f.Fuzz(func(t *testing.T, a, b uint64) {
		r := rand.New(rand.NewPCG(a, b))
		h, p, now := randomScene(r)
		checkPlan(t, r, h, p, now)
	})
}

// FuzzScene makes the history from the fuzzer's bytes.
func FuzzScene(f *testing.F) {
	f.Add([]byte("\x00\x01\x02\x83\x44\x25"), uint8(3), false)
	f.Fuzz(func(t *testing.T, bytes []byte, keep uint8, over bool) {
		h := History{Status: ckpt.RunRunning}
		if over {
			h.Status, h.EndedAt = ckpt.RunFailed, noon.Add(-30*ckpt.Day+time.Duration(keep)-128)
		}
		p := ckpt.DefaultPolicy()
		p.RoutineKeep = int(keep)
		for i, b := range bytes[:min(len(bytes), 64)] {
			c := Held{ID: fmt.Sprint("c", i), Seq: -int64(i), Kind: ckpt.Kinds[b%3], CreatedAt: noon}
			c.Suspect, c.Pinned = b&4 != 0, b&8 != 0
			c.Operation = b&64 != 0 && c.Kind == ckpt.KindPreOperation
			c.Released = b&16 != 0 && c.Operation
			c.CreatedAt = noon.Add(-7*ckpt.Day + time.Duration(int8(b)))
			if b&32 != 0 {
				c.NeededBy = "a prompt"
			}
			h.Checkpoints = append(h.Checkpoints, c)
		}
		checkPlan(t, rand.New(rand.NewPCG(0, 0)), h, p, noon)
	})
}

func BenchmarkPlanOfASave(b *testing.B) {
	s := History{Status: ckpt.RunRunning}
	for seq := int64(4); seq > 0; seq-- {
		s.Checkpoints = append(s.Checkpoints, Held{ID: "c", Seq: seq, Kind: ckpt.KindRoutine, CreatedAt: noon})
	}
	b.ReportAllocs()
	for b.Loop() {
		Plan(s, ckpt.DefaultPolicy(), noon)
	}
}
