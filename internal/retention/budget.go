package retention

import (
	"cmp"
	"slices"
	"time"

	ckpt "github.com/ckptsidecar/ckptsidecar"
)

// Budget returns what to remove, and in which order, if some runs together exceed a budget by
// over bytes. The budget is that of an agent, or of the whole database. It removes no more than
// is needed. short is how many bytes are still too much when all of that is removed, 0 if the
// budget is met.
//
// First it removes checkpoints whose operation succeeded. Then it removes the oldest routine
// checkpoints that are damaged or older than the checkpoint that their run can go back to. Then
// it removes the oldest recovery checkpoints. It keeps what [Plan] protects. It also keeps
// every other checkpoint before a risky operation, and every suspect checkpoint that is newer
// than the rollback target, because it becomes clean again if the finding is dismissed.
//
// It counts bytes by each checkpoint's StoredSize, which is an estimate if checkpoints share
// pieces. So the caller measures again after the removal. It judges no age, so a clock that is
// not trusted does no harm.
func Budget(runs []History, over int64) (remove []Verdict, short int64) {
	for _, s := range spare(runs) {
		if over <= 0 {
			break
		}
		over -= max(s.size, 0)
		remove = append(remove, Verdict{Run: s.run, ID: s.id, Remove: true, Reason: s.turn.reason()})
	}
	return remove, max(over, 0)
}

// BudgetWithout is Budget after the checkpoints for whose ids gone returns true are removed.
func BudgetWithout(runs []History, over int64, gone func(id string) bool) (remove []Verdict, short int64) {
	rest := make([]History, len(runs))
	for i, h := range runs {
		rest[i] = h
		rest[i].Checkpoints = nil
		for _, c := range h.Checkpoints {
			if gone(c.ID) {
				over -= c.StoredSize
				continue
			}
			rest[i].Checkpoints = append(rest[i].Checkpoints, c)
		}
	}
	return Budget(rest, over)
}

// turn is when a checkpoint must be removed; a smaller turn comes first.
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

// spare lists the checkpoints that may be removed, in the order of removal. Within a run the
// order is that of the sequence numbers, whatever the clock said when the checkpoints were
// made. Between runs only the clock can decide, so each checkpoint counts as not older than the
// one before it.
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
