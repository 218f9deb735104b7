package jsontext

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"unicode/utf16"
	"unicode/utf8"
)

// Canonical checks data as Check does and returns it in the form of RFC 8785: no white space, keys
// sorted by UTF-16 code units, strings with the fewest escapes, numbers as ECMAScript writes them.
// So texts with the same meaning become the same bytes, which can be hashed.
//
// It differs from the RFC in two points, so that it does not lose or refuse data that agents do
// send:
//   - Integers written without fraction and exponent whose magnitude is above 2^53 are kept digit by
//     digit. The RFC would round them to a float64, and different identifiers would become the same.
//     Numbers with a fraction or an exponent (1e20, 9007199254740993.0) are rounded as the RFC says.
//   - Lone surrogates, which the RFC refuses, are written as escapes in lower case, as ECMAScript's
//     JSON.stringify does.
//
// Numbers with fraction or exponent that float64 cannot hold (1e400) are an error.
//
// go-json-experiment/json v1.27.2 cannot replace this code: it refuses lone surrogates and changes
// 1e400 to the largest float64, so fingerprints and idempotency keys would change. It takes three
// quarters of our time.
func Canonical(data []byte) ([]byte, error) {
	if err := check(data); err != nil {
		return nil, err
	}
	c := canonicalizer{data: data, out: make([]byte, 0, len(data)), badNumber: -1}
	start := skipSpace(data, 0)
	c.index(start)
	c.emit(start)
	if c.badNumber >= 0 {
		return nil, newError(data, c.badNumber, "number out of range for float64")
	}
	return c.out, nil
}

// canonicalizer first finds the members of all objects, then writes them in order. Moving members
// after they were written would copy deep texts once per level.
type canonicalizer struct {
	data      []byte
	out       []byte
	objects   []canonicalObject // by start
	members   []canonicalMember // those of each object together, sorted
	pending   []canonicalMember // members of objects that are being read
	scratch   []byte
	badNumber int // the place of the first number that is too large, or -1
}

// canonicalObject is an object with members: its place, and the range of its members.
type canonicalObject struct{ start, end, from, to uint32 }

type canonicalMember struct{ key, value uint32 }

// index notes the objects in the value at p and returns the place after it. The depth of its
// recursion was checked before.
func (c *canonicalizer) index(p int) int {
	switch c.data[p] {
	case '{':
		return c.indexObject(p)
	case '[':
		for p = skipSpace(c.data, p+1); c.data[p] != ']'; p = skipComma(c.data, p) {
			p = c.index(p)
		}
		return p + 1
	}
	return skipValue(c.data, p)
}

func (c *canonicalizer) indexObject(start int) int {
	p := skipSpace(c.data, start+1)
	if c.data[p] == '}' {
		return p + 1
	}
	self, base := len(c.objects), len(c.pending)
	c.objects = append(c.objects, canonicalObject{start: uint32(start)})
	for ; c.data[p] != '}'; p = skipComma(c.data, p) {
		end, _ := scanString(c.data, p)
		value := skipSpace(c.data, skipSpace(c.data, end)+1)
		c.pending = append(c.pending, canonicalMember{uint32(p), uint32(value)})
		p = c.index(value)
	}
	if len(c.pending)-base > 1 {
		c.sort(c.pending[base:])
	}
	from := len(c.members)
	c.members = append(c.members, c.pending[base:]...)
	c.pending = c.pending[:base]
	c.objects[self] = canonicalObject{uint32(start), uint32(p + 1), uint32(from), uint32(len(c.members))}
	return p + 1
}

// sort orders members by their keys' UTF-16 code units. For plain ASCII keys, that is the order of
// their bytes.
func (c *canonicalizer) sort(members []canonicalMember) {
	type sortable struct {
		order  []byte
		member canonicalMember
	}
	list := make([]sortable, len(members))
	plain := true
	for i, m := range members {
		end, _ := scanString(c.data, int(m.key))
		key := c.data[m.key+1 : end-1]
		list[i] = sortable{key, m}
		plain = plain && plainRun(key, 0) == len(key)
	}
	if !plain {
		for i := range list {
			list[i].order = utf16Order(list[i].order)
		}
	}
	slices.SortFunc(list, func(a, b sortable) int { return bytes.Compare(a.order, b.order) })
	for i := range list {
		members[i] = list[i].member
	}
}

// utf16Order returns a raw key's UTF-16 code units, big-endian.
func utf16Order(raw []byte) []byte {
	var units []byte
	text := appendUnescaped(nil, raw, false)
	for len(text) > 0 {
		r, size := decodeWithSurrogates(text)
		text = text[size:]
		if r > 0xFFFF {
			high, low := utf16.EncodeRune(r)
			units = binary.BigEndian.AppendUint16(units, uint16(high))
			r = low
		}
		units = binary.BigEndian.AppendUint16(units, uint16(r))
	}
	return units
}

// decodeWithSurrogates is utf8.DecodeRune for the result of appendUnescaped, which can contain
// surrogates.
func decodeWithSurrogates(b []byte) (rune, int) {
	if len(b) >= 3 && b[0] == 0xED && b[1] >= 0xA0 {
		return 0xD000 | rune(b[1]&0x3F)<<6 | rune(b[2]&0x3F), 3
	}
	return utf8.DecodeRune(b)
}

// emit writes the value at p and returns the place after it.
func (c *canonicalizer) emit(p int) int {
	switch c.data[p] {
	case '{':
		return c.emitObject(p)
	case '[':
		c.out = append(c.out, '[')
		sep := ""
		for p = skipSpace(c.data, p+1); c.data[p] != ']'; p = skipComma(c.data, p) {
			c.out = append(c.out, sep...)
			p = c.emit(p)
			sep = ","
		}
		c.out = append(c.out, ']')
		return p + 1
	case '"':
		return c.emitString(p)
	}
	end := skipScalar(c.data, p)
	if isNumber(c.data, p) {
		c.emitNumber(p, end)
	} else {
		c.out = append(c.out, c.data[p:end]...)
	}
	return end
}

func (c *canonicalizer) emitObject(p int) int {
	i, ok := slices.BinarySearchFunc(c.objects, p, func(o canonicalObject, p int) int {
		return cmp.Compare(int(o.start), p)
	})
	if !ok {
		c.out = append(c.out, "{}"...)
		return skipSpace(c.data, p+1) + 1
	}
	sep := byte('{')
	for _, m := range c.members[c.objects[i].from:c.objects[i].to] {
		c.out = append(c.out, sep)
		c.emitString(int(m.key))
		c.out = append(c.out, ':')
		c.emit(int(m.value))
		sep = ','
	}
	c.out = append(c.out, '}')
	return int(c.objects[i].end)
}

func (c *canonicalizer) emitString(p int) int {
	end, _ := scanString(c.data, p)
	raw := c.data[p+1 : end-1]
	if bytes.IndexByte(raw, '\\') < 0 {
		c.out = append(c.out, c.data[p:end]...) // nothing here needs an escape
		return end
	}
	c.scratch = appendUnescaped(c.scratch[:0], raw, false)
	c.out = append(c.out, '"')
	for text := c.scratch; len(text) > 0; {
		r, size := decodeWithSurrogates(text)
		c.out = appendCanonicalRune(c.out, r)
		text = text[size:]
	}
	c.out = append(c.out, '"')
	return end
}

func appendCanonicalRune(out []byte, r rune) []byte {
	switch r {
	case '"', '\\':
		return append(out, '\\', byte(r))
	case '\b':
		return append(out, `\b`...)
	case '\f':
		return append(out, `\f`...)
	case '\n':
		return append(out, `\n`...)
	case '\r':
		return append(out, `\r`...)
	case '\t':
		return append(out, `\t`...)
	}
	if r < ' ' || utf16.IsSurrogate(r) {
		return fmt.Appendf(out, `\u%04x`, r)
	}
	return utf8.AppendRune(out, r)
}

// emitNumber writes data[p:end] as ECMAScript's Number.toString does, but keeps integers beyond
// 2^53 as they are.
func (c *canonicalizer) emitNumber(p, end int) {
	text := string(c.data[p:end])
	f, err := strconv.ParseFloat(text, 64)
	isInteger := !strings.ContainsAny(text, ".eE")
	switch {
	case isInteger && (math.Abs(f) > 1<<53 || isJustAbove53(text)):
		c.out = append(c.out, text...)
	case err != nil:
		if c.badNumber < 0 {
			c.badNumber = p
		}
	default:
		c.out = appendECMANumber(c.out, f)
	}
}

// isJustAbove53 recognizes the one integer above 2^53 that rounds down to it.
func isJustAbove53(text string) bool {
	return strings.TrimPrefix(text, "-") == "9007199254740993"
}

func appendECMANumber(out []byte, f float64) []byte {
	if f == 0 {
		return append(out, '0') // -0 too
	}
	if a := math.Abs(f); a >= 1e-6 && a < 1e21 {
		return strconv.AppendFloat(out, f, 'f', -1, 64)
	}
	from := len(out)
	out = strconv.AppendFloat(out, f, 'e', -1, 64)
	// Go writes at least two digits of the exponent, ECMAScript does not.
	if i := from + bytes.IndexByte(out[from:], 'e') + 2; out[i] == '0' {
		out = slices.Delete(out, i, i+1)
	}
	return out
}
