package delta

import (
	"bytes"
	"encoding/binary"
	"math/bits"
	"sync"
)

// Literal in the place of an Op's offset says that its bytes are new.
const Literal = -1

// Op is one part of a state: Length bytes from Offset of the base, or, where
// Offset is Literal, the next Length bytes that the base does not have.
type Op struct{ Offset, Length int }

const (
	block    = 16 // bytes that are indexed as one
	spacing  = 64 // of such blocks in the index of a whole base; a match of minMatch + block - 1 bytes holds one
	minMatch = 64 // shorter ones lose their way in repetitive text
	minCopy  = 32 // a shorter common beginning is not worth an operation
	chain    = 8  // places of the same block that are compared for the longest match
	stride   = 31 // the largest step through what is nowhere to be found; odd, so that it meets every alignment

	// In a near window every block is indexed, unless another one has its place. A match
	// of minMatch bytes holds three of them, block bytes apart. So block places beside
	// each other are looked up in every minMatch - block of the state: one of the three
	// is among them.
	group = minMatch - block
)

// tagless are the bits of an entry of a near window that say the place.
const tagless = 1<<16 - 1

// near are the windows of the old state that are searched first, because what
// was edited goes on nearby. A base of at most fewWindows of a window is indexed as a
// whole instead: that takes less time than a search in the window that finds nothing.
var near = [...]int{2 << 10, 32 << 10}

const fewWindows = 8

// Compare describes state by copies from base and literals. Its time is linear
// in both, whatever they hold. It stops searching after so many operations;
// then what comes is new, but for a common end.
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

// finish ends the comparison with what is left.
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

// differ is one comparison on its way.
type differ struct {
	most        int
	base, state []byte
	ops         []Op
	window      [4096]uint32 // the index of a near window: places, counted from 1, and above them bits of the hash
	whole       index
	patience    int // bytes of near searches left: then all of the base is indexed
	doubt       int // bytes of matches left that may turn out too short
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

// search finds where base and state meet again after they parted at i and j.
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

// searchNear looks for the next bytes of the state in the next of the base.
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

// match extends an assumed match at (at, from) in both directions, backwards
// not beyond least, and answers where it begins and how long it is at least:
// it is not compared further than shows that it is one.
func (d *differ) match(at, from, least int) (start, begin, length int) {
	forward := common(d.base[at:min(at+minMatch, len(d.base))], d.state[from:min(from+minMatch, len(d.state))])
	if forward < block { // not the block at all: only its hash
		return at, from, 0
	}
	back := commonEnd(d.base[:at], d.state[least:from])
	return at - back, from - back, forward + back
}

// index is where each block of the base stands.
type index struct {
	memory *[]uint32
	table  []uint32 // by hash: the first place, in blocks from 1
	next   []uint32 // by place: the next place of the same hash
	shift  uint
}

// worthwhile says whether to index all of the base for what is left of the
// state: for a small rest it costs more than storing it.
func (d *differ) worthwhile(j int) bool {
	return d.whole.table != nil || len(d.state)-j >= len(d.base)/256
}

// indexes are kept: each save would clear and fault in as much memory again.
var indexes sync.Pool // of *[]uint32

// free gives the memory back. The largest are not kept.
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

// searchWhole looks for the rest of the state anywhere in the base. It goes
// faster the longer it finds nothing.
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

// longest compares the places of a block and answers the best of the first few.
func (d *differ) longest(b uint32, from, least int) (at, start int, found bool) {
	best := 0
	for tries := 0; b != 0 && tries < chain; tries++ {
		p := int(b-1) * spacing
		if binary.LittleEndian.Uint64(d.base[p:]) != binary.LittleEndian.Uint64(d.state[from:]) { // only its hash
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

// common is how many bytes a and b have in common at their beginning.
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

// commonEnd is how many bytes a and b have in common at their end.
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
