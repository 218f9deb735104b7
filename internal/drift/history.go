package drift

import (
	"math/bits"

	ckpt "github.com/ckptsidecar/ckptsidecar"
	"github.com/ckptsidecar/ckptsidecar/internal/drift/meter"
	"github.com/ckptsidecar/ckptsidecar/internal/drift/observer"
)

// maxPairs is the maximum number of remembered pairs of a run.
const maxPairs = 4096

// entry is what the loop detectors keep about a step.
type entry struct {
	key      string
	tool     string
	sig, res uint64
	cause    uint64 // 0: it did not complain
	pair     uint64
	effect   uint64 // 0: it sets nothing, or nothing that is known
	turn     uint64 // 0: the turn is unknown
	began    int64  // in milliseconds
	ended    int64
	failed   bool  // it failed by its status
	bad      bool  // it failed, or it complained and brought nothing new; false if the answer was no
	again    bool  // the same complaint came before in this turn: the model did not know it yet
	said     bool  // it has a result or an error
	told     bool  // and the call is known, so that there is a pair
	mute     bool  // it has a result, and no arguments: pair is then that of its tool and the result
	old      bool  // the pair was seen before in this run
	before   int64 // the number of the earlier step with the pair, -1 for none
	afterSeq int64 // the run's newest checkpoint when the step ended
}

// history is the newest steps of a run that the loop detectors count.
type history struct {
	ring       []entry // its length is a power of two, so that finding an index needs no division
	size       int64   // how many of the entries count
	steps      int64   // all steps that were counted
	pairsAt    []int64 // the numbers of the newest steps with a pair
	totalPairs int64
	seen       pairSet
}

func newHistory(size int) *history {
	return &history{ring: make([]entry, 1<<bits.Len(uint(size-1))), size: int64(size), pairsAt: make([]int64, 0, size)}
}

// add counts a step. It returns false for a step that does not count: the model made the
// same call earlier in the same turn, before it knew a result, and the results are the
// same.
func (h *history) add(p *observer.StepPrint) bool {
	e := entry{
		key: p.Key, tool: p.Tool, res: number(p.Res), cause: number(p.Cause), effect: number(p.Effect), turn: turnOf(p.Turn), said: p.Res != "", failed: p.Failed,
		began: p.Began.UnixMilli(), ended: p.At.UnixMilli(), afterSeq: p.AfterSeq,
	}
	if p.Sig != "" && p.Sig != observer.UnknownCall {
		e.sig, e.told = number(p.Sig), e.said
	}
	e.pair = meter.Mix(e.sig, e.res)
	if p.Sig == observer.UnknownCall && p.Shape == "" && e.said { // replaced arguments have a shape
		e.mute, e.pair = true, meter.Mix(meter.HashText(p.Tool), e.res)
	}
	if p.Began.IsZero() {
		e.began = e.ended
	}
	if h.together(&e) {
		return false
	}
	e.bad = !p.Negative && (p.Failed || e.cause != 0 && !h.bringsNews(&e))
	e.before = -1
	if e.told {
		e.before = h.seen.add(e.pair, h.steps)
		e.old = e.before >= 0
		if len(h.pairsAt) == cap(h.pairsAt) {
			copy(h.pairsAt, h.pairsAt[1:])
			h.pairsAt = h.pairsAt[:len(h.pairsAt)-1]
		}
		h.pairsAt = append(h.pairsAt, h.steps)
		h.totalPairs++
	}
	h.ring[h.steps&int64(len(h.ring)-1)] = e
	h.steps++
	return true
}

func turnOf(name string) uint64 {
	if name == "" {
		return 0
	}
	return max(1, meter.HashText(name))
}

// maxTogether is how many of the newest steps are checked for steps of the same turn.
const maxTogether = 32

// together compares a step with the earlier steps of the same turn. If the turn is
// unknown, a step that began before another one ended belongs to the same turn. same is
// true if one of them was the same call with the same outcome. together also records
// whether one had the same complaint.
func (h *history) together(e *entry) (same bool) {
	for i := range min(h.len(), maxTogether) {
		other := h.last(i)
		if e.turn != 0 && other.turn != e.turn || e.turn == 0 && (other.turn != 0 || e.began >= other.ended) {
			break
		}
		if (e.told && other.told || e.mute && other.mute) && other.pair == e.pair {
			return true
		}
		e.again = e.again || e.cause != 0 && other.cause == e.cause
	}
	return false
}

// bringsNews reports whether the same call returned something else before. Then it polls,
// and its words about waiting are not a complaint.
func (h *history) bringsNews(e *entry) bool {
	for i := range h.len() {
		if before := h.last(i); e.sig != 0 && before.sig == e.sig && before.told {
			return before.res != e.res
		}
	}
	return false
}

// len returns the number of steps in memory.
func (h *history) len() int { return int(min(h.steps, h.size)) }

// last returns the step that is i steps before the newest one.
func (h *history) last(i int) *entry {
	return &h.ring[(h.steps-1-int64(i))&int64(len(h.ring)-1)]
}

// pairs returns how many of the newest span steps have a pair.
func (h *history) pairs(span int) int {
	n := len(h.pairsAt)
	for n > 0 && h.pairsAt[len(h.pairsAt)-n] < h.steps-int64(span) {
		n--
	}
	return n
}

// pairBack returns the i-th newest step with a pair.
func (h *history) pairBack(i int) *entry {
	return &h.ring[h.pairsAt[len(h.pairsAt)-1-i]&int64(len(h.ring)-1)]
}

// reach returns how many of the newest steps contain the newest n pairs.
func (h *history) reach(n int) int { return int(h.steps - h.pairsAt[len(h.pairsAt)-n]) }

// keys returns the keys of the newest n steps that match, oldest first, at most as many
// as a finding names.
func (h *history) keys(n int, match func(*entry) bool) []string {
	var keys []string
	for i := n - 1; i >= 0; i-- {
		if e := h.last(i); match(e) {
			keys = append(keys, e.key)
		}
	}
	return clip(keys)
}

// clip keeps the first keys and the last one of a list that is too long.
func clip(keys []string) []string {
	if len(keys) <= ckpt.MaxEvidence {
		return keys
	}
	return append(keys[:ckpt.MaxEvidence-1:ckpt.MaxEvidence-1], keys[len(keys)-1])
}

// pairSet remembers maxPairs pairs and the step of each pair's last occurrence. A new
// pair replaces the next pair in the ring that has not occurred again (the clock
// algorithm).
type pairSet struct {
	ring []known
	next int
	at   map[uint64]int // the indexes in the ring
}

type known struct {
	pair uint64
	last int64 // the number of the step
	used bool  // it occurred again
}

// add remembers a pair, and returns the step of its last occurrence, or -1 if it is new.
func (s *pairSet) add(pair uint64, step int64) int64 {
	if i, ok := s.at[pair]; ok {
		before := s.ring[i].last
		s.ring[i].last, s.ring[i].used = step, true
		return before
	}
	if s.at == nil {
		s.at = make(map[uint64]int)
	}
	if len(s.ring) < maxPairs {
		s.at[pair] = len(s.ring)
		s.ring = append(s.ring, known{pair: pair, last: step})
		return -1
	}
	for s.ring[s.next].used {
		s.ring[s.next].used = false
		s.next = (s.next + 1) % maxPairs
	}
	delete(s.at, s.ring[s.next].pair)
	s.at[pair] = s.next
	s.ring[s.next] = known{pair: pair, last: step}
	s.next = (s.next + 1) % maxPairs
	return -1
}

// number returns the first 16 hexadecimal digits of a hash as a number; 0 for an empty
// hash.
func number(hash string) uint64 {
	var n uint64
	if len(hash) >= 16 {
		n = digits(hash[:8])<<32 | digits(hash[8:16])
	} else {
		for i := range len(hash) {
			c := hash[i]
			n = n<<4 | uint64(c&15+9*(c>>6)) // the low bits of a letter count from 1
		}
	}
	if n == 0 && hash != "" {
		return 1
	}
	return n
}

// digits returns the number that 8 hexadecimal digits represent. It converts all of them
// at once.
func digits(s string) uint64 {
	_ = s[7]
	n := uint64(s[0])<<56 | uint64(s[1])<<48 | uint64(s[2])<<40 | uint64(s[3])<<32 |
		uint64(s[4])<<24 | uint64(s[5])<<16 | uint64(s[6])<<8 | uint64(s[7])
	n = n&0x0f0f0f0f0f0f0f0f + 9*(n>>6&0x0101010101010101)
	n = (n | n>>4) & 0x00ff00ff00ff00ff
	n = (n | n>>8) & 0x0000ffff0000ffff
	return (n | n>>16) & 0xffffffff
}
