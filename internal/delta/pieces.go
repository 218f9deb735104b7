package delta

import (
	"container/heap"
	"sort"
)

// MaxPieces is the most pieces of a state: if there are more, some are joined.
const MaxPieces = 64

// New is the segment of a piece whose bytes are not stored yet.
const New = 0

// Piece is a part of a state: Length bytes from Offset of a segment's bytes.
type Piece struct{ Segment, Offset, Length int64 }

// Base is a stored state, and how it is stored.
type Base struct {
	State  []byte
	Pieces []Piece         // they make up State
	Sizes  map[int64]int64 // of the segments that the pieces name
}

const (
	shortPiece = 128      // a shorter piece beside new bytes is stored with them: its entry in every later list costs more
	spare      = 64 << 10 // how many unused bytes a state's segments may hold, whatever its size is
)

// Encode describes a state by pieces of the base's segments and of a new segment, New,
// whose bytes it returns as well. If the state has little in common with the base, it
// is one piece, all new. b may be nil.
func (b *Base) Encode(state []byte) (pieces []Piece, literal []byte) {
	return b.EncodeBy(state, b.Compare(state))
}

// MaxOperations is the most operations by which Encode describes a state.
const MaxOperations = 8 * MaxPieces

// Compare returns the operations that Encode uses, nil if there is nothing to compare.
func (b *Base) Compare(state []byte) []Op {
	if b == nil || len(b.State) == 0 || len(state) == 0 {
		return nil
	}
	return Compare(b.State, state, MaxOperations)
}

// EncodeBy is Encode with known operations, which must make the state from the base's
// state. Without operations, all is new.
func (b *Base) EncodeBy(state []byte, ops []Op) (pieces []Piece, literal []byte) {
	if len(ops) == 0 {
		return whole(state)
	}
	l := b.parts(ops)
	l = renew(l, func(i int) bool { return l[i].Length < shortPiece && besideNew(l, i) })
	l = b.leaveWaste(l, len(state))
	l = join(l, limit(len(state)))
	if fresh := freshBytes(l); fresh > len(state)/4*3 {
		return whole(state)
	}
	return l.collect(state)
}

func whole(state []byte) ([]Piece, []byte) {
	return []Piece{{New, 0, int64(len(state))}}, state
}

// limit returns how many pieces a state of a size may have, so that their list stays
// small compared with the state.
func limit(size int) int { return min(max(size>>10, 4), MaxPieces) }

// list is a state's pieces while they are computed. The offsets of new pieces are not
// set yet.
type list []Piece

// add appends a piece. If the piece continues the last one, add extends that one.
func (l list) add(p Piece) list {
	if n := len(l); n > 0 && l[n-1].Segment == p.Segment && (p.Segment == New || l[n-1].Offset+l[n-1].Length == p.Offset) {
		l[n-1].Length += p.Length
		return l
	}
	return append(l, p)
}

// parts turns copies from the base into copies from its segments.
func (b *Base) parts(ops []Op) list {
	starts := make([]int64, len(b.Pieces)) // the places of the pieces in the base
	at := int64(0)
	for i, p := range b.Pieces {
		starts[i] = at
		at += p.Length
	}
	var l list
	for _, op := range ops {
		if op.Offset == Literal {
			l = l.add(Piece{New, 0, int64(op.Length)})
			continue
		}
		from, left := int64(op.Offset), int64(op.Length)
		i := sort.Search(len(starts), func(i int) bool { return starts[i] > from }) - 1
		for ; left > 0; i++ {
			p := b.Pieces[i]
			skip := from - starts[i]
			n := min(left, p.Length-skip)
			if n > 0 {
				l = l.add(Piece{p.Segment, p.Offset + skip, n})
			}
			from, left = from+n, left-n
		}
	}
	return l
}

// renew makes new pieces of those for which should returns true.
func renew(l list, should func(i int) bool) list {
	out := make(list, 0, len(l))
	for i, p := range l {
		if p.Segment != New && should(i) {
			p = Piece{New, 0, p.Length}
		}
		out = out.add(p)
	}
	return out
}

func besideNew(l list, i int) bool {
	return i > 0 && l[i-1].Segment == New || i+1 < len(l) && l[i+1].Segment == New
}

// leaveWaste keeps a state from holding segments that it hardly uses. If all of its
// segments together are more than three times as large as the state, it stops using
// those of which it uses less than a third.
func (b *Base) leaveWaste(l list, size int) list {
	used := map[int64]int64{}
	for _, p := range l {
		if p.Segment != New {
			used[p.Segment] += p.Length
		}
	}
	held := int64(0)
	for segment := range used {
		held += b.Sizes[segment]
	}
	if held <= 3*int64(size)+spare {
		return l
	}
	return renew(l, func(i int) bool { return used[l[i].Segment]*3 < b.Sizes[l[i].Segment] })
}

func freshBytes(l list) int {
	n := int64(0)
	for _, p := range l {
		if p.Segment == New {
			n += p.Length
		}
	}
	return int(n)
}

// collect gathers the new bytes, and sets the offset of each new piece in them.
func (l list) collect(state []byte) ([]Piece, []byte) {
	if len(l) == 1 && l[0].Segment == New {
		return whole(state)
	}
	literal := make([]byte, 0, freshBytes(l))
	at := int64(0)
	for i, p := range l {
		if p.Segment == New {
			l[i].Offset = int64(len(literal))
			literal = append(literal, state[at:at+p.Length]...)
		}
		at += p.Length
	}
	return l, literal
}

// join shortens a list that is longer than most to half of that. It makes new the two
// neighbors that together are cheapest to store again, and repeats that. So the bytes
// of a growing history are stored again only a few times, in growing lengths.
func join(l list, most int) list {
	if len(l) <= most {
		return l
	}
	j := joiner{list: l, prev: make([]int, len(l)), next: make([]int, len(l)), cost: make([]int64, len(l))}
	for i := range l {
		j.prev[i], j.next[i] = i-1, i+1
		j.push(i)
	}
	for left := len(l); left > most/2 && len(j.pairs) > 0; {
		p := heap.Pop(&j.pairs).(pair)
		if p.cost != j.cost[p.first] || j.next[p.first] >= len(l) { // the pair has changed since
			continue
		}
		j.merge(p.first)
		left--
	}
	var out list
	for i := 0; i < len(l); i = j.next[i] {
		out = out.add(l[i])
	}
	return out
}

// joiner is a list with a heap of its pairs of neighbors.
type joiner struct {
	list
	prev, next []int
	cost       []int64 // the cost of the pair that begins at a piece; -1 if there is none
	pairs      pairs
}

func (j *joiner) push(i int) {
	if i < 0 {
		return
	}
	j.cost[i] = -1
	if j.next[i] >= len(j.list) {
		return
	}
	j.cost[i] = j.again(i) + j.again(j.next[i])
	heap.Push(&j.pairs, pair{j.cost[i], i})
}

// again returns how many bytes of a piece would be stored again.
func (j *joiner) again(i int) int64 {
	if j.list[i].Segment == New {
		return 0
	}
	return j.list[i].Length
}

func (j *joiner) merge(i int) {
	k := j.next[i]
	j.list[i] = Piece{New, 0, j.list[i].Length + j.list[k].Length}
	j.next[i], j.cost[k] = j.next[k], -1
	if j.next[i] < len(j.list) {
		j.prev[j.next[i]] = i
	}
	j.push(i)
	j.push(j.prev[i])
}

type pair struct {
	cost  int64
	first int
}

type pairs []pair

func (p pairs) Len() int           { return len(p) }
func (p pairs) Less(i, j int) bool { return p[i].cost < p[j].cost }
func (p pairs) Swap(i, j int)      { p[i], p[j] = p[j], p[i] }
func (p *pairs) Push(x any)        { *p = append(*p, x.(pair)) }
func (p *pairs) Pop() any {
	last := (*p)[len(*p)-1]
	*p = (*p)[:len(*p)-1]
	return last
}
