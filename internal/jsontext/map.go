package jsontext

import (
	"bytes"
	"math"
	"slices"
	"sort"

	ckpt "github.com/ckptsidecar/ckptsidecar"
)

// Copy is what a text has in common with an earlier one.
type Copy = ckpt.Copy

// Map says where in a checked JSON text some values begin and end. With it
// a text that has much in common is checked by what is new in it. A map is
// never changed, and keeps nothing of the text.
type Map struct{ marks []mark }

// Size is how many bytes of memory the map takes, 1 or 2 % of most texts.
func (m *Map) Size() int {
	if m == nil {
		return 0
	}
	return cap(m.marks) * markSize
}

// Checked is what is known of a text that CheckJSONAfter has found to be
// JSON: its map, and what it has in common with the text before that was passed
// over, in order. That is whole values, and runs of an array's whole elements,
// each with its comma.
type Checked struct {
	Map    *Map
	Passed []Copy
}

// CheckAfter is CheckJSON for a text that has something in common with one
// that was checked before. It passes over whole values and elements that stand
// in same and in the map of the text before: they are JSON wherever they stand,
// and only in objects do values beside one another matter. same must be true,
// in the order of At, and not overlap. before may be nil, for none.
func CheckAfter(data []byte, before *Map, same []Copy) (Checked, error) {
	return checkAfter(data, before, same, spanLimits{value: 1 << 10, run: 2 << 10})
}

// spanLimits are from how many bytes on a value or a run is worth a mark.
type spanLimits struct{ value, run int }

func checkAfter(data []byte, before *Map, same []Copy, spans spanLimits) (Checked, error) {
	if uint64(len(data)) > math.MaxUint32 {
		return Checked{}, Check(data)
	}
	s := scanners.Get().(*scanner)
	mapper := newMapper(len(data), before, same, spans)
	s.mapper = mapper
	_, reason := s.scanMapped(data)
	s.reset()
	scanners.Put(s)
	if reason != "" { // the whole check says what and where
		return Checked{}, Check(data)
	}
	return Checked{&Map{slices.DeleteFunc(mapper.marks, mark.void)}, mapper.passed}, nil
}

// mark is a part of a checked text, outside its strings: a string, an
// object or an array, or a run: elements of an array, each with its comma, up
// to where the next element begins. Since only one value begins at a place, the
// place says which array that is.
type mark struct {
	start, end uint32
	more       uint32 // from the lowest bit: whether it is a run; 10 bits of how many containers are open around it; the elements of a run
}

const markSize = 12

func newMark(start, depth int, run bool) mark {
	m := mark{start: uint32(start), end: uint32(start), more: uint32(depth) << 1}
	if run {
		m.more |= 1
	}
	return m
}

func (m mark) run() bool     { return m.more&1 != 0 }
func (m mark) depth() int    { return int(m.more >> 1 & 1023) }
func (m mark) elements() int { return int(m.more >> 11) }
func (m mark) void() bool    { return m.end == m.start }

// within says whether the part stands before limit. Of the element after a run
// the first byte must as well: there might be white space in its place.
func (m mark) within(limit int) bool {
	return !m.void() && (int(m.end) < limit || int(m.end) == limit && !m.run())
}

// mapper makes the map of a text while it is scanned, and knows what of it
// need not be.
type mapper struct {
	spans spanLimits
	marks []mark // by start; a run before the value that begins it
	most  int
	open  []openContainer // as the scanner's stack

	before []mark
	same   []Copy // those that are not behind
	next   int    // the first mark of before that is not behind in same[0]
	watch  int    // where in the text that one begins: nothing is passed before
	passed []Copy
}

// openContainer is an open container. Marks are named by their place in marks, -1
// where there is none.
type openContainer struct {
	mark     int // the container's own
	run      int // of an array: the run that goes on
	elements int // of that run
}

func newMapper(size int, before *Map, same []Copy, spans spanLimits) *mapper {
	m := &mapper{spans: spans, most: 2*size/spans.value + 64, watch: math.MaxInt}
	if before != nil && len(same) > 0 {
		m.before, m.same = before.marks, same
		m.marks = make([]mark, 0, len(before.marks)+16)
		m.enter(0)
	}
	return m
}

// enter goes to the first mark that begins at or after a place of the text.
func (m *mapper) enter(p int) {
	for ; len(m.same) > 0; m.same = m.same[1:] {
		c := m.same[0]
		from := uint32(c.From + max(p-c.At, 0))
		m.next = sort.Search(len(m.before), func(i int) bool { return m.before[i].start >= from })
		if m.wait() {
			return
		}
	}
	m.watch = math.MaxInt
}

// wait sets watch to the next mark, and answers false where that is not in the
// copy any more.
func (m *mapper) wait() bool {
	c := m.same[0]
	if m.next == len(m.before) || int(m.before[m.next].start) >= c.From+c.Length {
		return false
	}
	m.watch = int(m.before[m.next].start) - c.From + c.At
	return true
}

// pass is what was passed over at a place.
type pass int

const (
	passNone    pass = iota
	passedValue      // a value: what may follow one is due
	passedRun        // elements: the next one is due
)

// scanMapped is scan with a map.
func (s *scanner) scanMapped(data []byte) (p int, reason string) {
	if bytes.HasPrefix(data, []byte("\xef\xbb\xbf")) {
		return 0, reasonBOM
	}
	for {
		if p = skipSpace(data, p); p == len(data) {
			return p, reasonEnd
		}
		var opened, done bool
		if p, opened, reason = s.mappedValue(data, p); reason != "" {
			return p, reason
		}
		if opened {
			continue
		}
		if p, done, reason = s.afterValue(data, p); done || reason != "" {
			return p, reason
		}
	}
}

// mappedValue reads a value, or up to where the first value inside it is due.
// Where it passes over elements of an array, the next one is due as if the
// array began there.
func (s *scanner) mappedValue(data []byte, p int) (next int, opened bool, reason string) {
	array := len(s.stack) > 0 && !s.stack[len(s.stack)-1].object
	switch next, pass := s.mapper.due(p, array); pass {
	case passedValue:
		return next, false, ""
	case passedRun:
		return next, true, ""
	}
	switch data[p] {
	case '"':
		next, reason = scanString(data, p)
		s.mapper.text(p, next)
	case '{':
		next, opened, reason = s.openObject(data, p)
	case '[':
		next, opened, reason = s.openArray(data, p)
	default:
		next, reason = scanScalar(data, p)
	}
	if opened {
		s.mapper.opened(p)
	}
	return next, opened, reason
}

// due notes that a value is to begin at p, and answers where to go on, and how.
func (m *mapper) due(p int, array bool) (int, pass) {
	if array {
		m.element(p)
	}
	for p > m.watch {
		m.step(p)
	}
	if p < m.watch {
		return p, passNone
	}
	limit := m.same[0].From + m.same[0].Length
	for i := m.next; i < len(m.before) && m.before[i].start == m.before[m.next].start; i++ {
		switch mark := m.before[i]; {
		case !mark.within(limit) || len(m.open) > mark.depth(): // deeper than it was, it may be too deep
		case !mark.run():
			return m.passValue(p, i), passedValue
		case array:
			return m.passRun(p, i, limit), passedRun
		}
	}
	return p, passNone
}

// step goes to the next mark that may be one for p.
func (m *mapper) step(p int) {
	c := m.same[0]
	if p >= c.At+c.Length {
		m.enter(p)
		return
	}
	from := uint32(p - c.At + c.From)
	for m.next < len(m.before) && m.before[m.next].start < from {
		m.next++
	}
	if !m.wait() {
		m.enter(c.At + c.Length)
	}
}

// passValue takes over a value's mark and those inside it, and answers where
// the value ends.
func (m *mapper) passValue(p, i int) int {
	mark := m.before[i]
	j := i
	for j < len(m.before) && m.before[j].start < mark.end {
		j++
	}
	m.carry(p, i, j, mark.end)
	return p + int(mark.end-mark.start)
}

// passRun takes over as many runs as follow one another, and answers where the
// next element begins.
func (m *mapper) passRun(p, i, limit int) int {
	first := m.before[i]
	end, j := first.end, i+1
	for ; j < len(m.before) && m.before[j].start <= end; j++ {
		mark := m.before[j]
		if mark.start < end { // inside
			continue
		}
		if !mark.run() || !mark.within(limit) {
			break
		}
		end = mark.end
	}
	array := &m.open[len(m.open)-1]
	array.elements-- // the one at p
	m.endRun(array, p)
	m.carry(p, i, j, end)
	next := p + int(end-first.start)
	array.run = m.reserve(next, len(m.open), true)
	return next
}

// carry copies the marks i to j of the text before that lie before its place
// end, for what is passed over at p.
func (m *mapper) carry(p, i, j int, end uint32) {
	from := m.before[i].start
	deeper := uint32(m.before[i].depth()-len(m.open)) << 1
	for _, mark := range m.before[i:j] {
		if mark.end > end || mark.void() || len(m.marks) >= m.most {
			continue
		}
		mark.start, mark.end = mark.start-from+uint32(p), mark.end-from+uint32(p)
		mark.more -= deeper
		m.marks = append(m.marks, mark)
	}
	c := Copy{At: p, From: int(from), Length: int(end - from)}
	if n := len(m.passed); n > 0 {
		if last := &m.passed[n-1]; last.At+last.Length == c.At && last.From+last.Length == c.From {
			last.Length += c.Length
			return
		}
	}
	m.passed = append(m.passed, c)
}

// element notes that an element of the innermost array begins at p.
func (m *mapper) element(p int) {
	array := &m.open[len(m.open)-1]
	if array.run >= 0 && p-int(m.marks[array.run].start) < m.spans.run {
		array.elements++
		return
	}
	m.endRun(array, p)
	array.run, array.elements = m.reserve(p, len(m.open), true), 1
}

// endRun ends an array's run at p, where its next element begins.
func (m *mapper) endRun(array *openContainer, p int) {
	if array.run < 0 {
		return
	}
	m.marks[array.run].end = uint32(p)
	m.marks[array.run].more |= uint32(array.elements) << 11
	m.dropIfVoid(array.run)
	array.run, array.elements = -1, 0
}

// reserve makes the mark of something that begins at p and has yet to end.
func (m *mapper) reserve(p, depth int, run bool) int {
	if len(m.marks) >= m.most {
		return -1
	}
	m.marks = append(m.marks, newMark(p, depth, run))
	return len(m.marks) - 1
}

// dropIfVoid takes a mark back if it is void and the last.
func (m *mapper) dropIfVoid(i int) {
	if i == len(m.marks)-1 && m.marks[i].void() {
		m.marks = m.marks[:i]
	}
}

// opened notes that a container begins at p.
func (m *mapper) opened(p int) {
	m.open = append(m.open, openContainer{mark: m.reserve(p, len(m.open), false), run: -1})
}

// closed notes that the innermost container ends before end.
func (m *mapper) closed(end int) {
	top := m.open[len(m.open)-1]
	m.open = m.open[:len(m.open)-1]
	if top.run >= 0 { // of which nobody would pass over the last element
		m.dropIfVoid(top.run)
	}
	if top.mark < 0 {
		return
	}
	if mark := &m.marks[top.mark]; end-int(mark.start) >= m.spans.value {
		mark.end = uint32(end)
	}
	m.dropIfVoid(top.mark)
}

// text notes a string.
func (m *mapper) text(start, end int) {
	if end-start < m.spans.value {
		return
	}
	if i := m.reserve(start, len(m.open), false); i >= 0 {
		m.marks[i].end = uint32(end)
	}
}

// Hops leads over what the map of a text knows, from its beginning on.
type Hops struct{ marks []mark }

// Hops begins to lead over a map's text. A nil map leads nowhere.
func (m *Map) Hops() Hops {
	if m == nil {
		return Hops{}
	}
	return Hops{m.marks}
}

// From answers how far the map knows the way from p, where a value begins, but
// not beyond limit: to the end of the value, or over so many elements of its
// array to where the next begins. It answers p itself where it knows none.
// From call to call p must not fall.
func (h *Hops) From(p, limit int) (next, elements int) {
	for len(h.marks) > 0 && int(h.marks[0].start) < p {
		h.marks = h.marks[1:]
	}
	next = p
	for _, m := range h.marks {
		if int(m.start) != p {
			break
		}
		if end := int(m.end); end > next && end <= limit {
			next, elements = end, m.elements()
		}
	}
	return next, elements
}
