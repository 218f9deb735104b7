package retention

import (
	"cmp"
	"math"
	"slices"
	"strconv"
	"time"

	ckpt "github.com/ckptsidecar/ckptsidecar"
)

// Plan is a [Func]: it decides for every checkpoint of a run whether it stays, and why.
// The verdicts have the order of the checkpoints.
//
// In doubt a checkpoint stays. A run counts as alive unless both its status and its end
// say otherwise. A count or an age limit that is not positive keeps all checkpoints,
// and a missing date keeps its checkpoint.
func Plan(h History, p ckpt.Policy, now time.Time) []Verdict {
	j := newJudge(h, p, now)
	verdicts := make([]Verdict, len(h.Checkpoints))
	for i := range h.Checkpoints {
		c := &h.Checkpoints[i]
		remove, reason := j.judge(c)
		verdicts[i] = Verdict{ID: c.ID, Remove: remove, Reason: reason}
	}
	return verdicts
}

// Over reports whether an ended run is over: it ended so long ago, or was begun anew so
// often since, that it is removed, with its steps and events, as soon as it has no
// checkpoint left.
func Over(h History, p ckpt.Policy, now time.Time) bool {
	return whyOver(h, p, now) != ""
}

// whyOver returns why an ended run is over, "" if it is not.
func whyOver(h History, p ckpt.Policy, now time.Time) string {
	switch {
	case !ended(h):
		return ""
	case aged(h.EndedAt, p.EndedKeep, now):
		return "its run ended, and the " + p.EndedKeep.String() + " that follow are over"
	case p.LivesKeep > 0 && h.Ago > p.LivesKeep && !now.IsZero():
		return "its run was begun anew " + strconv.Itoa(h.Ago) + " times since, and the policy keeps " + strconv.Itoa(p.LivesKeep) + " earlier lives"
	}
	return ""
}

// judge is what must be known about a run before its checkpoints are judged.
type judge struct {
	policy  ckpt.Policy
	now     time.Time
	over    string // why the run is over, "" if it is not
	anchor  anchor
	routine int64  // the sequence number of the oldest routine checkpoint that the count keeps
	among   string // the reason why those stay
}

func newJudge(h History, p ckpt.Policy, now time.Time) judge {
	list := newestFirst(h.Checkpoints)
	j := judge{policy: p, now: now, over: whyOver(h, p, now), anchor: findAnchor(h, list)}
	j.routine = oldestKept(list, p.RoutineKeep)
	j.among = "the newest routine checkpoint"
	if p.RoutineKeep > 1 {
		j.among = "among the newest " + strconv.Itoa(p.RoutineKeep) + " routine checkpoints"
	}
	return j
}

func (j *judge) judge(c *Held) (remove bool, reason string) {
	if why := held(c); why != "" {
		return false, why
	}
	if j.over != "" {
		return true, j.over
	}
	remove, reason = j.byKind(c)
	if remove && c.Seq == j.anchor.seq {
		return false, j.anchor.why + ", though " + reason
	}
	return remove, reason
}

// held returns why a checkpoint stays whatever the policy says, "" for no such reason.
func held(c *Held) string {
	switch {
	case c.Pinned:
		return "pinned"
	case c.NeededBy != "":
		return "needed by " + c.NeededBy
	}
	return ""
}

func (j *judge) byKind(c *Held) (remove bool, reason string) {
	switch c.Kind {
	case ckpt.KindRoutine:
		return j.byCount(c)
	case ckpt.KindRecovery:
		return j.byAge(c, j.policy.RecoveryKeep)
	case ckpt.KindPreOperation:
		switch {
		case c.Released:
			return true, reasonReleased
		case c.Operation:
			return false, "its operation has not succeeded"
		}
		return j.byAge(c, j.policy.PreOperationKeep)
	}
	return false, "no rule covers its kind"
}

const reasonReleased = "its operation succeeded"

func (j *judge) byCount(c *Held) (remove bool, reason string) {
	switch {
	case j.policy.RoutineKeep <= 0:
		return false, "the policy keeps all routine checkpoints"
	case c.Seq >= j.routine && c.Damaged:
		return false, "damaged, so it is not counted, and it is not older than the checkpoints that are"
	case c.Seq >= j.routine:
		return false, j.among
	}
	return true, "not " + j.among
}

func (j *judge) byAge(c *Held, keep ckpt.Duration) (remove bool, reason string) {
	as, all := "a recovery checkpoint", "recovery checkpoints"
	if c.Kind == ckpt.KindPreOperation {
		as, all = "one without an operation", "pre_operation checkpoints"
	}
	switch {
	case keep <= 0:
		return false, "the policy keeps all " + all
	case j.now.IsZero():
		return false, as + ", and the clock is not trusted"
	}
	days := "its " + keep.String() + " as " + as + " are "
	if aged(c.CreatedAt, keep, j.now) {
		return true, days + "over"
	}
	return false, days + "not over"
}

// anchor is the one checkpoint of a run that the rules for the kinds do not remove. For
// a run that may go on it is the rollback target, for a run that ended the final
// checkpoint. A damaged checkpoint is neither, unless there is no other.
type anchor struct {
	seq int64
	why string
}

func findAnchor(h History, newestFirst []Held) anchor {
	if len(newestFirst) == 0 {
		return anchor{}
	}
	intact := slices.IndexFunc(newestFirst, func(c Held) bool { return !c.Damaged })
	clean := slices.IndexFunc(newestFirst, func(c Held) bool { return !c.Damaged && !c.Suspect })
	switch {
	case intact < 0 && ended(h):
		return anchor{newestFirst[0].Seq, "the final checkpoint of an ended run, all of whose checkpoints are damaged"}
	case intact < 0:
		return anchor{newestFirst[0].Seq, "the newest checkpoint of a resumable run, all of whose checkpoints are damaged"}
	case ended(h) && intact > 0:
		return anchor{newestFirst[intact].Seq, "the newest intact checkpoint of an ended run"}
	case ended(h):
		return anchor{newestFirst[0].Seq, "the final checkpoint of an ended run"}
	case clean < 0:
		return anchor{newestFirst[intact].Seq, "the newest checkpoint of a resumable run, all of whose checkpoints are suspect"}
	}
	return anchor{newestFirst[clean].Seq, "the newest clean checkpoint of a resumable run"}
}

// oldestKept returns the sequence number of the oldest routine checkpoint among the
// newest keep intact ones.
func oldestKept(newestFirst []Held, keep int) int64 {
	for i := range newestFirst {
		if newestFirst[i].Kind != ckpt.KindRoutine || newestFirst[i].Damaged {
			continue
		}
		if keep--; keep == 0 {
			return newestFirst[i].Seq
		}
	}
	return math.MinInt64
}

// newestFirst sorts a list by sequence number, newest first. It returns the list itself
// if it is sorted already.
func newestFirst(list []Held) []Held {
	if slices.IsSortedFunc(list, bySeqDown) {
		return list
	}
	list = slices.Clone(list)
	slices.SortFunc(list, bySeqDown)
	return list
}

func bySeqDown(a, b Held) int { return cmp.Compare(b.Seq, a.Seq) }

func ended(h History) bool { return !h.Status.Resumable() && !h.EndedAt.IsZero() }

// aged reports whether at is at least keep ago. Neither a clock that is not trusted nor
// a missing date makes anything old.
func aged(at time.Time, keep ckpt.Duration, now time.Time) bool {
	return keep > 0 && !now.IsZero() && !at.IsZero() && now.Sub(at) >= time.Duration(keep)
}
