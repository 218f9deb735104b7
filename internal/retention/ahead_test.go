package retention

import (
	"math/rand/v2"
	"testing"
	"time"

	ckpt "github.com/ckptsidecar/ckptsidecar"
)

// TestAheadIsWhatThePlanDoes: for random histories, the plan does what Ahead says at that instant, or with that
// save, and not before.
func TestAheadIsWhatThePlanDoes(t *testing.T) {
	for seed := range uint64(20_000) {
		h, p, now := randomScene(rand.New(rand.NewPCG(seed, 11)))
		p.EndedKeep = []ckpt.Duration{0, ckpt.Duration(30 * ckpt.Day)}[seed%2]
		if len(h.Checkpoints) > 0 && seed%3 == 0 {
			h.Checkpoints[0].NeededBy = NextSave
		}
		clock := noon
		if now.After(clock) {
			clock = now
		}
		a := aheadCheck{t: t, seed: seed, h: h, p: p, now: now, clock: clock}
		for i, next := range Ahead(Plan, h, p, now, clock) {
			a.check(i, next)
		}
		if t.Failed() {
			return
		}
	}
}

type aheadCheck struct {
	t          *testing.T
	seed       uint64
	h          History
	p          ckpt.Policy
	now, clock time.Time
}

func (a *aheadCheck) check(i int, next Next) {
	a.t.Helper()
	c := &a.h.Checkpoints[i]
	wrong := func(what string) {
		a.t.Helper()
		a.t.Errorf("seed %d: of %s (%s), %+v: %s", a.seed, c.ID, c.Kind, next, what)
	}
	if next.Reason == "" {
		wrong("it has no reason")
	}
	switch now := a.goes(i, a.now); {
	case now != (next.Turn == TurnNow):
		wrong("the plan does not agree about now")
	case next.Turn == TurnNow:
	case (next.Turn == TurnNextSave) != a.goesWithASave(i):
		wrong("the plan does not agree about the next save")
	case next.Turn == TurnNextSave:
	case next.Turn == "" && a.goes(i, a.clock.AddDate(1, 0, 0)):
		wrong("it goes within a year")
	case next.Turn != TurnByAge:
	case next.At.Before(a.clock):
		wrong("that is over")
	case !a.goes(i, next.At):
		wrong("it does not go then")
	case next.At.After(a.clock) && a.goes(i, next.At.Add(-time.Millisecond)):
		wrong("it goes before")
	}
}

// goes reports whether the plan removes a checkpoint at an instant.
func (a *aheadCheck) goes(i int, at time.Time) bool { return Plan(a.h, a.p, at)[i].Remove }

// goesWithASave reports whether one more routine checkpoint removes a checkpoint.
func (a *aheadCheck) goesWithASave(i int) bool {
	if ended(a.h) {
		return false
	}
	h := a.h
	h.Checkpoints = append([]Held{{Seq: 1 << 40, Kind: ckpt.KindRoutine, CreatedAt: a.clock}}, h.Checkpoints...)
	for i := range h.Checkpoints {
		if h.Checkpoints[i].NeededBy == NextSave { // then the new one is the parent of the next save
			h.Checkpoints[i].NeededBy = ""
		}
	}
	return Plan(h, a.p, time.Time{})[i+1].Remove
}
