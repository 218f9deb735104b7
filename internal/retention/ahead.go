package retention

import (
	"slices"
	"time"

	ckpt "github.com/ckptsidecar/ckptsidecar"
)

// Turn says when a checkpoint is removed.
type Turn string

// The turns of checkpoints. A checkpoint without a turn stays, as far as can be
// foreseen.
const (
	TurnNow      Turn = "now"
	TurnNextSave Turn = "next_save"
	TurnByAge    Turn = "age"
)

// Next says what will happen to a checkpoint.
type Next struct {
	Turn   Turn
	At     time.Time // for TurnByAge
	Reason string    // why it is removed, or why it stays
}

// NextSave is the value of Held.NeededBy for a checkpoint that the next save starts
// from.
const NextSave = "the next save"

// Ahead returns what will happen to every checkpoint of a run, in their order: what is
// removed now, what the next routine save removes, and what is removed by age if
// nothing else happens. If now is zero, nothing is removed by age now.
func Ahead(plan Func, h History, p ckpt.Policy, now, clock time.Time) []Next {
	list := make([]Next, len(h.Checkpoints))
	for i, v := range plan(h, p, now) {
		list[i].Reason = v.Reason
		if v.Remove {
			list[i].Turn = TurnNow
		}
	}
	a := ahead{plan: plan, policy: p, clock: clock, list: list}
	if !ended(h) {
		a.nextSave(h)
	}
	a.ages(h)
	return list
}

type ahead struct {
	plan   Func
	policy ckpt.Policy
	clock  time.Time
	list   []Next
}

// nextSave asks the plan about the run with one more routine checkpoint. The save after
// that starts from the new checkpoint.
func (a *ahead) nextSave(h History) {
	later := h
	later.Checkpoints = make([]Held, 0, len(h.Checkpoints)+1)
	newest := int64(0)
	for _, c := range h.Checkpoints {
		newest = max(newest, c.Seq)
	}
	later.Checkpoints = append(later.Checkpoints, Held{Seq: newest + 1, Kind: ckpt.KindRoutine, CreatedAt: a.clock})
	for _, c := range h.Checkpoints {
		if c.NeededBy == NextSave {
			c.NeededBy = ""
		}
		later.Checkpoints = append(later.Checkpoints, c)
	}
	for i, v := range a.plan(later, a.policy, time.Time{})[1:] {
		if v.Remove && a.list[i].Turn == "" {
			a.list[i].Turn, a.list[i].Reason = TurnNextSave, v.Reason
		}
	}
}

// ages asks the plan about the moments at which an age limit is reached.
func (a *ahead) ages(h History) {
	var instants []time.Time
	for i, c := range h.Checkpoints {
		if a.list[i].Turn != "" {
			continue
		}
		if keep := a.keep(&c); keep > 0 && !c.CreatedAt.IsZero() {
			instants = append(instants, c.CreatedAt.Add(time.Duration(keep)))
		}
	}
	if ended(h) && a.policy.EndedKeep > 0 {
		instants = append(instants, h.EndedAt.Add(time.Duration(a.policy.EndedKeep)))
	}
	if len(instants) == 0 {
		return
	}
	slices.SortFunc(instants, time.Time.Compare)
	// The plan removes more as time passes, so the last moment shows everything that any
	// age removes.
	last := a.plan(h, a.policy, instants[len(instants)-1])
	for i, v := range last {
		if !v.Remove || a.list[i].Turn != "" {
			continue
		}
		at := instants[len(instants)-1]
		if ended(h) && a.policy.EndedKeep > 0 {
			at = h.EndedAt.Add(time.Duration(a.policy.EndedKeep))
		}
		c := &h.Checkpoints[i]
		if keep := a.keep(c); keep > 0 {
			own := c.CreatedAt.Add(time.Duration(keep))
			if !ended(h) || own.Before(at) && a.goesAt(h, i, own) {
				at = own
			}
		}
		if at.Before(a.clock) {
			at = a.clock
		}
		a.list[i] = Next{TurnByAge, at, v.Reason}
	}
}

// goesAt reports whether a checkpoint is removed at a moment.
func (a *ahead) goesAt(h History, i int, at time.Time) bool {
	return a.plan(h, a.policy, at)[i].Remove
}

// keep returns the age limit for a checkpoint of this kind, 0 for none.
func (a *ahead) keep(c *Held) ckpt.Duration {
	switch {
	case c.Kind == ckpt.KindRecovery:
		return a.policy.RecoveryKeep
	case c.Kind == ckpt.KindPreOperation && !c.Operation:
		return a.policy.PreOperationKeep
	}
	return 0
}
