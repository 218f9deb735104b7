package jsontext

import (
	"bytes"
	"math"
	"slices"
	"sort"

	ckpt "github.com/ckptsidecar/ckptsidecar"
)

// Copy is a part that a text has in common with an earlier text.
type Copy = ckpt.Copy

// Map says where some values in a checked JSON text begin and end. With it, the check of a text
// that has much in common with the checked one reads only the new parts. A map never changes, and
// keeps nothing of the text.
type Map struct{ marks []mark }

// Size is how many bytes of memory the map takes, 1 or 2 % of most texts.
func (m *Map) Size() int {
	if m == nil {
		return 0
	}
	return cap(m.marks) * markSize
}

// Checked is the result of CheckAfter for a text that is JSON: its map, and the parts in common
// with the previous text that the check skipped, in order. Skipped parts are whole values, and runs
// of an array's whole elements, each with its comma.
type Checked struct {
	Map    *Map
	Passed []Copy
}

// CheckAfter is Check for a text that has parts in common with a text that was checked before. It
// skips whole values and elements that are both in same and in the map of the previous text: these
// are valid JSON in any place, and neighboring values matter only in objects. The entries of same
// must be correct, in the order of At, and must not overlap. before may be nil if there is no
// previous text.
func CheckAfter(data []byte, before *Map, same []Copy) (Checked, error) {
	return checkAfter(data, before, same, spanLimits{value: 1 << 10, run: 2 << 10})
}

// spanLimits are the sizes in bytes from which a value or a run gets a mark.
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
	if reason != "" { // the whole check finds the reason and the place
		return Checked{}, Check(data)
	}
	return Checked{&Map{slices.DeleteFunc(mapper.marks, mark.void)}, mapper.passed}, nil
}

// mark is a part of a checked text, outside its strings. It is a string, an object or an array, or
// a run: elements of an array, each with its comma, up to the place where the next element begins.
// Only one value begins at a place, so the place identifies the array.
type mark struct {
	start, end uint32
	more       uint32 // from the lowest bit: whether it is a run; 10 bits: the number of containers open around it; the elements of a run
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

// within says whether the part lies before limit. For a run, the first byte of the element after it
// must too, because there might be white space in its place.
func (m mark) within(limit int) bool {
	return !m.void() && (int(m.end) < limit || int(m.end) == limit && !m.run())
}

// mapper makes the map of a text while the text is scanned, and knows which parts of the text can
// be skipped.
type mapper struct {
	spans spanLimits
	marks []mark // by start; a run comes before the value that begins it
	most  int
	open  []openContainer // parallel to the scanner's stack

	before []mark
	same   []Copy // copies that are not behind the current place
	next   int    // the first mark of before that is not behind the current place in same[0]
	watch  int    // where that mark begins in the text: nothing is skipped before
	passed []Copy
}

// openContainer is an open container. Marks are given by their index in marks, -1 for none.
type openContainer struct {
	mark     int // the container's own mark
	run      int // for an array: the run that continues
	elements int // elements of that run
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

// enter moves to the first mark that begins at or after a place of the text.
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

// wait sets watch to the next mark. It returns false if that mark is no longer in the copy.
func (m *mapper) wait() bool {
	c := m.same[0]
	if m.next == len(m.before) || int(m.before[m.next].start) >= c.From+c.Length {
		return false
	}
	m.watch = int(m.before[m.next].start) - c.From + c.At
	return true
}

// pass says what was skipped at a place.
type pass int

const (
	passNone    pass = iota
	passedValue      // a value: next comes what may follow a value
	passedRun        // elements: next comes another element
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

// mappedValue reads a value, or up to the place of the first value inside it. If it skips elements
// of an array, it continues with the next element as if the array began there.
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

// due notes that a value begins at p, and returns where and how to continue.
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
		case !mark.within(limit) || len(m.open) > mark.depth(): // deeper than before, so it may be too deep
		case !mark.run():
			return m.passValue(p, i), passedValue
		case array:
			return m.passRun(p, i, limit), passedRun
		}
	}
	return p, passNone
}

// step moves to the next mark that may be for p.
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

// passValue takes over the mark of a value and the marks inside it, and returns where the value
// ends.
func (m *mapper) passValue(p, i int) int {
	mark := m.before[i]
	j := i
	for j < len(m.before) && m.before[j].start < mark.end {
		j++
	}
	m.carry(p, i, j, mark.end)
	return p + int(mark.end-mark.start)
}

// passRun takes over consecutive runs, and returns where the next element begins.
func (m *mapper) passRun(p, i, limit int) int {
	first := m.before[i]
	end, j := first.end, i+1
	for ; j < len(m.before) && m.before[j].start <= end; j++ {
		mark := m.before[j]
		if mark.start < end { // inside a run
			continue
		}
		if !mark.run() || !mark.within(limit) {
			break
		}
		end = mark.end
	}
	array := &m.open[len(m.open)-1]
	array.elements-- // without the one at p
	m.endRun(array, p)
	m.carry(p, i, j, end)
	next := p + int(end-first.start)
	array.run = m.reserve(next, len(m.open), true)
	return next
}

// carry copies the marks i to j of the previous text that lie before its place end, for the part
// that is skipped at p.
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

// reserve makes the mark of a part that begins at p and has not ended yet.
func (m *mapper) reserve(p, depth int, run bool) int {
	if len(m.marks) >= m.most {
		return -1
	}
	m.marks = append(m.marks, newMark(p, depth, run))
	return len(m.marks) - 1
}

// dropIfVoid removes a mark if it is void and the last one.
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
	if top.run >= 0 { // a run must not end with the last element, which has no comma
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

// Hops moves through a text over the parts that its map knows, from the beginning on.
type Hops struct{ marks []mark }

// Hops begins to move through a map's text. A nil map knows no parts.
func (m *Map) Hops() Hops {
	if m == nil {
		return Hops{}
	}
	return Hops{m.marks}
}

// From returns how far the map knows the text from p, where a value begins, but not beyond limit:
// to the end of the value, or over some elements of its array to the place where the next one
// begins. It returns p itself if the map knows nothing. From call to call, p must not decrease.
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
