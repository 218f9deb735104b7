package drift

import (
	"strings"

	ckpt "github.com/ckptsidecar/ckptsidecar"
)

// The sizes of the blocks that a cycle may repeat.
const (
	minBlock = 2
	maxBlock = 5
	minAgain = 3 // steps that only repeat: with fewer the agent may be on its way out
)

// cycle finds that the newest pairs are copies of one block. Steps without a
// result are passed over: a word in between does not end a cycle.
type cycle struct{}

func (cycle) rule() string  { return RuleCycle }
func (cycle) repeats() bool { return true }

func (cycle) look(h *history, set setting, span int) hit {
	if !h.last(0).told || !h.last(0).old {
		return hit{}
	}
	pairs := h.pairs(span)
	return tiers(set, func(need threshold, _ bool) (hit, bool) {
		for size := minBlock; size <= maxBlock; size++ {
			n := max(size*int(need.value), size+minAgain)
			if n <= pairs && isCopies(h, size, n) {
				return hit{n: int(need.value), among: h.reach(n), size: size}, true
			}
		}
		return hit{}, false
	})
}

// isCopies says whether the newest n pairs are copies of one block of a size,
// in which not all pairs are equal.
func isCopies(h *history, size, n int) bool {
	varied := false
	for i := range n - size {
		if h.pairBack(i).pair != h.pairBack(i+size).pair {
			return false
		}
		varied = varied || h.pairBack(i).pair != h.pairBack(i+1).pair
	}
	return varied
}

func (cycle) making(h *history, need threshold, span int) int {
	pairs, longest := h.pairs(span), 0
	for size := minBlock; size <= maxBlock; size++ {
		same := 0
		for same+size < min(pairs, size*int(need.value)) && h.pairBack(same).pair == h.pairBack(same+size).pair {
			same++
		}
		if same > 0 {
			longest = max(longest, same+size)
		}
	}
	if longest == 0 {
		return 0
	}
	return h.reach(longest)
}

func (c cycle) tell(h *history, x hit) ckpt.Found {
	f := x.found(h, RuleCycle, func(e *entry) bool { return e.told })
	f.Evidence.Threshold = sentence("%d copies of a block of %d to %d", int(x.need.value), minBlock, maxBlock)
	f.Evidence.Observed = sentence("%d copies of a block of %d", x.n, x.size)
	block := make([]string, x.size)
	for i := range block {
		block[i] = h.pairBack(x.size - 1 - i).tool
	}
	f.Message = sentence("The same %s (%s) came %s in a row, with the same results.", count(x.size, "step"), strings.Join(block, ", "), times(x.n))
	f.Advice = sentence("You go in a circle of %s and have been through it %s with the same results. Leave it: do something that you have not tried.", count(x.size, "step"), times(x.n))
	return f
}
