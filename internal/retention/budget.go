package retention

import (
	"cmp"
	"slices"
	"time"

	ckpt "github.com/ckptsidecar/ckptsidecar"
)

// Budget says what goes, and in which order, when some runs together are over
// a budget by so many bytes: of an agent, or of the whole database. It takes no
// more than is needed; short is how much is still over when all of it is gone,
// 0 where the budget holds.
//
// First go checkpoints whose operation succeeded, then the oldest routine ones
// that are older than what their run can go back to or are damaged, then the
// oldest recovery ones. What [Plan] protects stays, and so does every checkpoint before a risky
// operation and every suspect one that is newer than the way back: dismissing
// the finding makes it clean again.
//
// Bytes are counted as each checkpoint's StoredSize, an estimate where
// checkpoints share pieces: the caller measures again after removing. No age is
// judged, so a clock that is not trusted does no harm.
func Budget(runs []History, over int64) (remove []Verdict, short int64) {
	for _, s := range spare(runs) {
		if over <= 0 {
			break
		}
		over -= max(s.size, 0)
		remove = append(remove, Verdict{ID: s.id, Remove: true, Reason: s.turn.reason()})
	}
	return remove, max(over, 0)
}

// turn is when a checkpoint has to go; smaller goes first.
type turn int

const (
	released turn = iota
	oldRoutine
	oldRecovery
	never
)

func (t turn) reason() string {
	switch t {
	case oldRoutine:
		return "over budget: the oldest routine checkpoints are removed first"
	case oldRecovery:
		return "over budget: after the routine checkpoints, the oldest recovery checkpoints are removed"
	}
	return reasonReleased
}

type spared struct {
	id   string
	size int64
	turn turn
	at   time.Time
	run  int
	seq  int64
}

// spare lists the checkpoints that may go, first the first. In a run they go by
// sequence number, whatever the clock said when they were made; between runs
// there is only the clock, so each counts as not older than the one before it.
func spare(runs []History) []spared {
	var list []spared
	for i, h := range runs {
		checkpoints := newestFirst(h.Checkpoints)
		anchor := findAnchor(h, checkpoints).seq
		var at time.Time
		for k := len(checkpoints) - 1; k >= 0; k-- {
			c := &checkpoints[k]
			if c.CreatedAt.After(at) {
				at = c.CreatedAt
			}
			if t := turnOf(c, anchor); t != never {
				list = append(list, spared{c.ID, c.StoredSize, t, at, i, c.Seq})
			}
		}
	}
	slices.SortFunc(list, func(a, b spared) int {
		return cmp.Or(cmp.Compare(a.turn, b.turn), a.at.Compare(b.at), cmp.Compare(a.run, b.run), cmp.Compare(a.seq, b.seq))
	})
	return list
}

func turnOf(c *Held, anchor int64) turn {
	switch {
	case c.Seq == anchor || held(c) != "":
		return never
	case c.Kind == ckpt.KindPreOperation && c.Released:
		return released
	case c.Kind == ckpt.KindRoutine && (c.Seq < anchor || c.Damaged):
		return oldRoutine
	case c.Kind == ckpt.KindRecovery:
		return oldRecovery
	}
	return never
}
