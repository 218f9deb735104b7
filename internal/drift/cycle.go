package drift

import (
	"fmt"
	"strings"

	"github.com/ckptsidecar/ckptsidecar/internal/drift/observer"
	"github.com/ckptsidecar/ckptsidecar/internal/drift/phrase"
)

// The sizes of the blocks that a cycle can repeat.
const (
	minBlock = 2
	maxBlock = 5
	minAgain = 3 // the least number of steps that only repeat: with fewer the agent may be about to leave the cycle
)

// cycle finds that the newest pairs are copies of one block. It skips steps without a
// result: such a step does not end a cycle.
type cycle struct{}

func (cycle) rule() string  { return RuleCycle }
func (cycle) sees() sign    { return signOld }
func (cycle) repeats() bool { return true }

func (cycle) count(h *history, _, span int, _ bool) (x hit) {
	if !h.last(0).told || !h.last(0).old {
		return x
	}
	pairs := h.pairs(span)
	for size := minBlock; size <= maxBlock; size++ {
		length := copied(h, size, pairs)
		if n := length / size; n > x.n && length >= size+minAgain {
			x = hit{value: float64(n), n: n, among: h.reach(n * size), size: size}
		}
	}
	return x
}

// copied returns how many of the newest pairs are copies of one block of a size. It is 0
// if all pairs of the block are equal.
func copied(h *history, size, pairs int) int {
	length, varied := size, false
	for length < pairs && h.pairBack(length-size).pair == h.pairBack(length).pair {
		varied = varied || h.pairBack(length-size).pair != h.pairBack(length-size+1).pair
		length++
	}
	if !varied {
		return 0
	}
	return length
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

func (c cycle) tell(h *history, x hit) observer.Found {
	f := x.found(h, RuleCycle, func(e *entry) bool { return e.told })
	f.Evidence.Threshold = fmt.Sprintf("%d copies of a block of %d to %d", int(x.need.value), minBlock, maxBlock)
	f.Evidence.Observed = fmt.Sprintf("%d copies of a block of %d", x.n, x.size)
	block := make([]string, x.size)
	for i := range block {
		block[i] = h.pairBack(x.size - 1 - i).tool
	}
	f.Message = fmt.Sprintf("The same %s (%s) came %s in a row, with the same results.", phrase.Count(x.size, "step"),
		strings.Join(block, ", "), phrase.Times(x.n))
	f.Advice = fmt.Sprintf("You are going in a circle of %s and have repeated it %s with the same results. Leave it and do "+
		"something that you have not tried.", phrase.Count(x.size, "step"), phrase.Times(x.n))
	return f
}
