package jsontext

import "sort"

// Members calls visit with each member of a JSON object, in order, until visit returns false. The
// arguments are the member's name, and its value as it is in the text, which must not be changed.
// Members says whether the text is an object and was read to its end or to the place where visit
// stopped.
//
// It is for texts that Check has accepted, and far faster than decoding them. In other texts it may
// miss faults, but it reads nothing beyond them.
func Members(object []byte, visit func(name string, value []byte) bool) bool {
	return MembersAt(object, 0, nil, func(name string, begin, end int) bool {
		return visit(name, object[begin:end:end])
	})
}

// MembersAt is Members for the object that begins at a place of a text. If there is a map of the
// text, large values are skipped without reading them. visit gets the places where the value begins
// and ends.
func MembersAt(text []byte, at int, m *Map, visit func(name string, begin, end int) bool) bool {
	p := skipSpace(text, at)
	if p >= len(text) || text[p] != '{' {
		return false
	}
	p = skipSpace(text, p+1)
	if p < len(text) && text[p] == '}' {
		return true
	}
	var room [64]byte // for most names
	for {
		if p >= len(text) || text[p] != '"' {
			return false
		}
		end, reason := scanString(text, p)
		if reason != "" {
			return false
		}
		name := string(appendUnescaped(room[:0], text[p+1:end-1], true))
		p = skipSpace(text, end)
		if p >= len(text) || text[p] != ':' {
			return false
		}
		p = skipSpace(text, p+1)
		begin := p
		if p = passValue(text, p, m); p < 0 {
			return false
		}
		if !visit(name, begin, p) {
			return true
		}
		p = skipSpace(text, p)
		if p >= len(text) || text[p] != ',' {
			return p < len(text) && text[p] == '}'
		}
		p = skipSpace(text, p+1)
	}
}

// passValue returns the place after the value at p, from the map if the map knows it, and -1 if the
// data ends too early.
func passValue(data []byte, p int, m *Map) int {
	if end := m.endOf(p); end > 0 && end <= len(data) {
		return end
	}
	for depth := 0; p < len(data); {
		switch data[p] {
		case '"':
			end, reason := scanString(data, p)
			if reason != "" {
				return -1
			}
			p = end
		case '{', '[':
			depth++
			p++
		case '}', ']':
			depth--
			p++
		default:
			p = skipScalar(data, p)
		}
		if depth <= 0 {
			return p
		}
	}
	return -1
}

// endOf is the place where the value that begins at a place ends, 0 if the map does not know.
func (m *Map) endOf(p int) int {
	if m == nil {
		return 0
	}
	i := sort.Search(len(m.marks), func(i int) bool { return int(m.marks[i].start) >= p })
	for ; i < len(m.marks) && int(m.marks[i].start) == p; i++ {
		if !m.marks[i].run() { // a run of elements comes before the value that begins it
			return int(m.marks[i].end)
		}
	}
	return 0
}

// Elements calls visit with each element of a JSON array, in order, until visit returns false, and says whether the text is an
// array and was read to its end or to the place where visit stopped. Like Members, it is for texts that Check has accepted.
func Elements(array []byte, visit func(value []byte) bool) bool {
	p := skipSpace(array, 0)
	if p >= len(array) || array[p] != '[' {
		return false
	}
	p = skipSpace(array, p+1)
	if p < len(array) && array[p] == ']' {
		return true
	}
	for {
		begin := p
		if p = passValue(array, p, nil); p < 0 {
			return false
		}
		if !visit(array[begin:p:p]) {
			return true
		}
		p = skipSpace(array, p)
		if p >= len(array) || array[p] != ',' {
			return p < len(array) && array[p] == ']'
		}
		p = skipSpace(array, p+1)
	}
}
