package delta

import (
	"bytes"
	"encoding/binary"
	"math/bits"
	"sync"
)

// Literal as the offset of an Op means that its bytes are new.
const Literal = -1

// Op is one part of a state: Length bytes from Offset of the base or, if Offset is
// Literal, the next Length bytes that the base does not have.
type Op struct{ Offset, Length int }

const (
	block    = 16 // bytes that the index treats as one unit
	spacing  = 64 // distance of blocks in the index of a whole base; a match of minMatch + block - 1 bytes contains one
	minMatch = 64 // shorter matches mislead in repetitive text
	minCopy  = 32 // a shorter common beginning is not worth an operation
	chain    = 8  // how many places of the same block are compared for the longest match
	stride   = 31 // the largest step through bytes that are found nowhere; odd, so that it meets every alignment

	// In a near window every block is indexed, unless another block has its slot. A match
	// of minMatch bytes contains three of them, block bytes apart. So in every minMatch -
	// block bytes of the state, block adjacent places are looked up: one of the three is
	// among them.
	group = minMatch - block
)

// tagless masks the bits of an entry of a near window that hold the place.
const tagless = 1<<16 - 1

// near are the windows of the old state that are searched first, because the text
// usually continues near an edit. A base of at most fewWindows times a window is
// indexed as a whole instead: that takes less time than a search in the window that
// finds nothing.
var near = [...]int{2 << 10, 32 << 10}

const fewWindows = 8

// Compare describes state by copies from base and literals. Its time is linear in both,
// whatever they contain. It stops searching after most operations; then the rest is
// new, except for a common end.
func Compare(base, state []byte, most int) []Op {
	d := differ{base: base, state: state, most: most, patience: (len(base)+len(state))/4 + 1<<16, doubt: 4 * len(state)}
	defer d.whole.free()
	for i, j := 0, 0; ; {
		n := common(base[i:], state[j:])
		d.copy(i, n)
		i, j = i+n, j+n
		if j == len(state) {
			return d.ops
		}
		at, from, found := d.search(i, j)
		if !found {
			return d.finish(i, j)
		}
		d.insert(from - j)
		i, j = at, from
	}
}

// finish ends the comparison with the rest of the state.
func (d *differ) finish(i, j int) []Op {
	end := 0
	if len(d.state)-j >= minMatch {
		end = commonEnd(d.base[i:], d.state[j:])
	}
	if end < minMatch {
		end = 0
	}
	d.insert(len(d.state) - j - end)
	d.copy(len(d.base)-end, end)
	return d.ops
}

// differ is a comparison that is under way.
type differ struct {
	most        int
	base, state []byte
	ops         []Op
	window      [4096]uint32 // the index of a near window: places, counted from 1, with bits of the hash above them
	whole       index
	patience    int // how many bytes near searches may still cost; then all of the base is indexed
	doubt       int // how many bytes may still be spent on matches that turn out too short
}

func (d *differ) copy(offset, length int) {
	if length < minCopy {
		d.insert(length)
		return
	}
	if n := len(d.ops); n > 0 && d.ops[n-1].Offset != Literal && d.ops[n-1].Offset+d.ops[n-1].Length == offset {
		d.ops[n-1].Length += length
		return
	}
	d.ops = append(d.ops, Op{offset, length})
}

func (d *differ) insert(length int) {
	if length == 0 {
		return
	}
	if n := len(d.ops); n > 0 && d.ops[n-1].Offset == Literal {
		d.ops[n-1].Length += length
		return
	}
	d.ops = append(d.ops, Op{Literal, length})
}

// search finds where base and state agree again after they differ at i and j.
func (d *differ) search(i, j int) (at, from int, found bool) {
	if len(d.state)-j < minMatch || len(d.ops) >= d.most {
		return 0, 0, false
	}
	for n, size := range near {
		if d.patience < 0 || len(d.base)-i < minMatch || n > 0 && len(d.base) <= fewWindows*size {
			break
		}
		if at, from, found = d.searchNear(i, j, size); found {
			return at, from, true
		}
	}
	return d.searchWhole(j)
}

// searchNear looks for the next bytes of the state in the next bytes of the base.
func (d *differ) searchNear(i, j, size int) (at, from int, found bool) {
	window := d.base[i:min(i+size, len(d.base))]
	last := min(j+2*size, len(d.state)) - block
	shift := uint(64 - bits.Len(uint(size/block*2-1)))
	table := d.window[:1<<(64-shift)]
	clear(table)
	for p := (len(window) - block) / block * block; p >= 0; p -= block { // so that the first of equal blocks stays
		h := hash(window[p:])
		table[h>>shift] = uint32(h)&^tagless | uint32(p+1)
	}
	d.patience -= len(window)
	for first := j; first <= last; first += group + (first-j)>>12*block {
		for from = first; from <= min(first+block-1, last); from++ {
			h := hash(d.state[from:])
			p := table[h>>shift]
			if p == 0 || (p^uint32(h))&^tagless != 0 {
				continue
			}
			if at, start, n := d.match(i+int(p&tagless-1), from, j); n >= minMatch {
				d.patience -= from - j
				return at, start, true
			}
		}
	}
	d.patience -= max(last-j, 0)
	return 0, 0, false
}

// match extends an assumed match at (at, from) in both directions, backwards not beyond
// least. It returns where the match begins and its length at least: it stops comparing
// as soon as it is certain that this is a match.
func (d *differ) match(at, from, least int) (start, begin, length int) {
	forward := common(d.base[at:min(at+minMatch, len(d.base))], d.state[from:min(from+minMatch, len(d.state))])
	if forward < block { // the blocks differ, only their hashes are equal
		return at, from, 0
	}
	back := commonEnd(d.base[:at], d.state[least:from])
	return at - back, from - back, forward + back
}

// index holds the places of each block of the base.
type index struct {
	memory *[]uint32
	table  []uint32 // by hash: the first place, counted in blocks from 1
	next   []uint32 // by place: the next place with the same hash
	shift  uint
}

// worthwhile reports whether to index all of the base for the rest of the state: for a
// small rest the index costs more than storing the rest.
func (d *differ) worthwhile(j int) bool {
	return d.whole.table != nil || len(d.state)-j >= len(d.base)/256
}

// indexes keeps the memory of indexes. Otherwise each save would clear and fault in as
// much memory again.
var indexes sync.Pool // of *[]uint32

// free returns the memory to the pool. It does not keep the largest.
func (x *index) free() {
	if x.memory != nil && cap(*x.memory) <= 1<<20 {
		indexes.Put(x.memory)
	}
}

func (d *differ) buildIndex() {
	blocks := (len(d.base)-block)/spacing + 1
	size := bits.Len(uint(blocks))
	x := &d.whole
	x.shift = uint(64 - size)
	x.memory, _ = indexes.Get().(*[]uint32)
	if n := 1<<size + blocks + 1; x.memory == nil || cap(*x.memory) < n {
		x.memory = new(make([]uint32, n))
	}
	x.table, x.next = (*x.memory)[:1<<size], (*x.memory)[1<<size:1<<size+blocks+1]
	clear(x.table)
	for b := blocks; b > 0; b-- {
		h := hash(d.base[(b-1)*spacing:]) >> x.shift
		x.next[b], x.table[h] = x.table[h], uint32(b)
	}
}

// searchWhole looks for the rest of the state anywhere in the base. Its steps become
// larger the longer it finds nothing.
func (d *differ) searchWhole(j int) (at, from int, found bool) {
	if len(d.base) < minMatch || !d.worthwhile(j) {
		return 0, 0, false
	}
	if d.whole.table == nil {
		d.buildIndex()
	}
	x := &d.whole
	for from = j; from <= len(d.state)-block; from += min(1|(from-j)>>9, stride) {
		b := x.table[hash(d.state[from:])>>x.shift]
		if b == 0 {
			continue
		}
		if at, start, found := d.longest(b, from, j); found {
			return at, start, true
		}
		if d.doubt < 0 {
			return 0, 0, false
		}
	}
	return 0, 0, false
}

// longest compares the places of a block, and returns the best of the first few.
func (d *differ) longest(b uint32, from, least int) (at, start int, found bool) {
	best := 0
	for tries := 0; b != 0 && tries < chain; tries++ {
		p := int(b-1) * spacing
		if binary.LittleEndian.Uint64(d.base[p:]) != binary.LittleEndian.Uint64(d.state[from:]) { // only the hashes are equal
			b = d.whole.next[b]
			continue
		}
		a, s, n := d.match(p, from, least)
		if n >= minMatch {
			n = from - s + common(d.base[p:], d.state[from:])
		} else {
			d.doubt -= n
		}
		if n >= minMatch && n > best {
			best, at, start, found = n, a, s, true
		}
		b = d.whole.next[b]
	}
	return at, start, found
}

func hash(b []byte) uint64 {
	_ = b[block-1]
	h := binary.LittleEndian.Uint64(b)*0x9E3779B97F4A7C15 ^ bits.RotateLeft64(binary.LittleEndian.Uint64(b[8:])*0xC2B2AE3D27D4EB4F, 29)
	return h * 0x9FB21C651E98DF25
}

// common returns how many bytes a and b have in common at their beginning.
func common(a, b []byte) int {
	const stretch = 1 << 10
	n := min(len(a), len(b))
	a, b = a[:n], b[:n]
	i := 0
	for i+stretch <= n && bytes.Equal(a[i:i+stretch], b[i:i+stretch]) {
		i += stretch
	}
	for i+8 <= n {
		if x := binary.LittleEndian.Uint64(a[i:]) ^ binary.LittleEndian.Uint64(b[i:]); x != 0 {
			return i + bits.TrailingZeros64(x)/8
		}
		i += 8
	}
	for i < n && a[i] == b[i] {
		i++
	}
	return i
}

// commonEnd returns how many bytes a and b have in common at their end.
func commonEnd(a, b []byte) int {
	n := min(len(a), len(b))
	a, b = a[len(a)-n:], b[len(b)-n:]
	i := 0
	for i+8 <= n {
		if x := binary.LittleEndian.Uint64(a[n-i-8:]) ^ binary.LittleEndian.Uint64(b[n-i-8:]); x != 0 {
			return i + bits.LeadingZeros64(x)/8
		}
		i += 8
	}
	for i < n && a[n-1-i] == b[n-1-i] {
		i++
	}
	return i
}
