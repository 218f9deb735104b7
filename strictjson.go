package ckptsidecar

import (
	"bytes"
	"cmp"
	"encoding"
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"hash/maphash"
	"math"
	"math/bits"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"sync"
	"unicode"
	"unicode/utf16"
	"unicode/utf8"
)

// MaxJSONDepth is how many objects and arrays may be open inside one another.
// Readers of what we store may well be recursive, so the limit is far below
// what would hurt this package.
const MaxJSONDepth = 1000

// maxShownKey is how many bytes of a key an error shows; maxShownPath is the
// same for a whole pointer in an error's text.
const (
	maxShownKey  = 64
	maxShownPath = 256
)

// What can be wrong with a text. Reasons that name a key are built where they
// are found.
const (
	jsonReasonEnd         = "unexpected end"
	jsonReasonAfter       = "data after the value"
	jsonReasonUTF8        = "invalid UTF-8"
	jsonReasonBOM         = "byte order mark before the value"
	jsonReasonControl     = "unescaped control character in a string"
	jsonReasonEscape      = "invalid escape in a string"
	jsonReasonNumber      = "invalid number"
	jsonReasonNaN         = "NaN and Infinity are not JSON"
	jsonReasonValue       = "expected a value"
	jsonReasonFirstKey    = `expected a key or "}"`
	jsonReasonKey         = "expected a key"
	jsonReasonColon       = `expected ":"`
	jsonReasonCommaBrace  = `expected "," or "}"`
	jsonReasonCommaSquare = `expected "," or "]"`
	jsonReasonTooLong     = "longer than 4 GiB"
)

var jsonReasonDepth = fmt.Sprintf("nested more than %d deep", MaxJSONDepth)

// JSONError says what is wrong in a JSON text and where.
type JSONError struct {
	// Offset is the 0-based byte offset of the fault; Line and Column say the
	// same 1-based, the column in bytes.
	Offset int
	Line   int
	Column int
	// Path is the JSON pointer (RFC 6901) of the value being read, "" for the
	// whole text. A fault in a key, or between members, belongs to the object
	// around it. Keys longer than 64 bytes are cut and end in "…".
	Path string
	// Reason is one sentence part, such as `duplicate key "a"`. It may name a
	// key or a Go type, never a value.
	Reason string
}

// Error returns one line with the place and the reason. It never shows values,
// which may be secrets.
func (e *JSONError) Error() string {
	where := "top level"
	if e.Path != "" {
		where = strconv.Quote(cutPointer(e.Path))
	}
	return fmt.Sprintf("JSON line %d, column %d (byte %d), at %s: %s",
		e.Line, e.Column, e.Offset, where, e.Reason)
}

// newJSONError works out line, column and path, which only errors need, by
// reading data again up to offset.
func newJSONError(data []byte, offset int, reason string) *JSONError {
	before := data[:offset]
	return &JSONError{
		Offset: offset,
		Line:   1 + bytes.Count(before, []byte{'\n'}),
		Column: offset - bytes.LastIndexByte(before, '\n'),
		Path:   jsonPathAt(data, offset),
		Reason: reason,
	}
}

// cutPointer keeps the end of a long pointer: that is where the fault is.
func cutPointer(path string) string {
	if len(path) <= maxShownPath {
		return path
	}
	tail := path[len(path)-maxShownPath:]
	if i := strings.IndexByte(tail, '/'); i >= 0 {
		tail = tail[i:]
	}
	return "…" + strings.ToValidUTF8(tail, "")
}

// shownKey returns a raw key (between its quotes) as an error may show it.
func shownKey(raw []byte) string {
	key := string(raw)
	if bytes.IndexByte(raw, '\\') >= 0 {
		// An escape is at most six times as long as what it stands for, so
		// this prefix is enough; it may end in the middle of an escape.
		key = string(appendUnescaped(nil, wholeEscapes(raw, 6*maxShownKey+6), true))
	}
	return cutKey(key)
}

func cutKey(key string) string {
	if len(key) <= maxShownKey {
		return key
	}
	n := maxShownKey
	for n > 0 && !utf8.RuneStart(key[n]) {
		n--
	}
	return key[:n] + "…"
}

// wholeEscapes returns at least the first n bytes of raw (or all), not ending
// within an escape or a rune.
func wholeEscapes(raw []byte, n int) []byte {
	p := 0
	for p < len(raw) && p < n {
		switch {
		case raw[p] == '\\':
			size, _ := escapeLen(raw, p)
			p += max(size, 1)
		default:
			_, size := utf8.DecodeRune(raw[p:])
			p += size
		}
	}
	return raw[:p]
}

// CheckJSON reports whether data is exactly one strict JSON value: RFC 8259
// grammar, valid UTF-8 without byte order mark, no key twice in one object
// (keys are compared after unescaping), nothing after the value but white
// space, at most MaxJSONDepth levels. Escaped lone surrogates such as "\ud800"
// are legal JSON that agents do emit, so they are accepted; as keys they equal
// only themselves. The error is a *JSONError or nil.
//
// It reads data once, keeps no reference to it, and for usual documents does
// not allocate.
func CheckJSON(data []byte) error {
	if err := checkJSON(data); err != nil {
		return err
	}
	return nil
}

func checkJSON(data []byte) *JSONError {
	if uint64(len(data)) > math.MaxUint32 {
		// Key places are kept in 32 bits.
		return &JSONError{Line: 1, Column: 1, Reason: jsonReasonTooLong}
	}
	s := jsonScanners.Get().(*jsonScanner)
	p, reason := s.scan(data)
	s.reset()
	jsonScanners.Put(s)
	if reason != "" {
		return newJSONError(data, p, reason)
	}
	return nil
}

// jsonScanner walks one text without recursion. What it keeps between texts is
// small and bounded; large key tables are left to the garbage collector.
type jsonScanner struct {
	stack  []jsonFrame
	keys   []jsonKeySpan   // keys of open objects that have no table, innermost last
	free   []*jsonKeyTable // tables of minimum size, empty
	mapper *jsonMapper     // nil where no map is wanted
}

// jsonFrame is one open object or array.
type jsonFrame struct {
	object bool
	from   int           // where the object's keys begin in jsonScanner.keys
	table  *jsonKeyTable // set once the object has many or escaped keys
}

// jsonKeySpan is a key without its quotes, as offsets into the text.
type jsonKeySpan struct{ start, end uint32 }

var jsonScanners = sync.Pool{New: func() any { return new(jsonScanner) }}

func (s *jsonScanner) reset() {
	clear(s.stack) // after an error, frames still hold tables
	s.stack = s.stack[:0]
	s.keys = s.keys[:0]
	s.mapper = nil
}

// scan returns "" if data is one strict value, else a reason and its place.
func (s *jsonScanner) scan(data []byte) (p int, reason string) {
	if bytes.HasPrefix(data, []byte("\xef\xbb\xbf")) {
		return 0, jsonReasonBOM
	}
	for {
		if p = skipSpace(data, p); p == len(data) {
			return p, jsonReasonEnd
		}
		var opened bool
		switch data[p] {
		case '"':
			p, reason = scanString(data, p)
		case '{':
			p, opened, reason = s.openObject(data, p)
		case '[':
			p, opened, reason = s.openArray(data, p)
		default:
			p, reason = scanScalar(data, p)
		}
		if reason != "" {
			return p, reason
		}
		if opened {
			continue // the first member's value is due
		}
		var done bool
		if p, done, reason = s.afterValue(data, p); done || reason != "" {
			return p, reason
		}
	}
}

// openObject reads "{" and, unless the object is empty, its first key.
func (s *jsonScanner) openObject(data []byte, p int) (next int, opened bool, reason string) {
	if len(s.stack) == MaxJSONDepth {
		return p, false, jsonReasonDepth
	}
	p = skipSpace(data, p+1)
	if p < len(data) && data[p] == '}' {
		return p + 1, false, ""
	}
	s.stack = append(s.stack, jsonFrame{object: true, from: len(s.keys)})
	p, reason = s.key(data, p, jsonReasonFirstKey)
	return p, true, reason
}

func (s *jsonScanner) openArray(data []byte, p int) (next int, opened bool, reason string) {
	if len(s.stack) == MaxJSONDepth {
		return p, false, jsonReasonDepth
	}
	p = skipSpace(data, p+1)
	if p < len(data) && data[p] == ']' {
		return p + 1, false, ""
	}
	s.stack = append(s.stack, jsonFrame{})
	return p, true, ""
}

// afterValue reads what follows a value, through closing brackets, up to where
// the next value is due or the text is done.
func (s *jsonScanner) afterValue(data []byte, p int) (next int, done bool, reason string) {
	for {
		p = skipSpace(data, p)
		if len(s.stack) == 0 {
			if p < len(data) {
				return p, false, jsonReasonAfter
			}
			return p, true, ""
		}
		if p == len(data) {
			return p, false, jsonReasonEnd
		}
		object := s.stack[len(s.stack)-1].object
		switch c := data[p]; {
		case c == ',' && object:
			p, reason = s.key(data, skipSpace(data, p+1), jsonReasonKey)
			return p, false, reason
		case c == ',':
			return p + 1, false, ""
		case c == '}' && object:
			s.closeObject()
			if s.mapper != nil {
				s.mapper.closed(p + 1)
			}
		case c == ']' && !object:
			s.stack = s.stack[:len(s.stack)-1]
			if s.mapper != nil {
				s.mapper.closed(p + 1)
			}
		case object:
			return p, false, jsonReasonCommaBrace
		default:
			return p, false, jsonReasonCommaSquare
		}
		p++
	}
}

func (s *jsonScanner) closeObject() {
	top := &s.stack[len(s.stack)-1]
	s.keys = s.keys[:top.from]
	if top.table != nil {
		s.release(top.table)
		top.table = nil
	}
	s.stack = s.stack[:len(s.stack)-1]
}

// key reads a key and its colon; expected is the reason if there is no key.
func (s *jsonScanner) key(data []byte, p int, expected string) (int, string) {
	if p == len(data) {
		return p, jsonReasonEnd
	}
	if data[p] != '"' {
		return p, expected
	}
	end, reason := scanString(data, p)
	if reason != "" {
		return end, reason
	}
	if !s.addKey(data, p+1, end-1) {
		return p, fmt.Sprintf("duplicate key %q", shownKey(data[p+1:end-1]))
	}
	p = skipSpace(data, end)
	switch {
	case p == len(data):
		return p, jsonReasonEnd
	case data[p] != ':':
		return p, jsonReasonColon
	}
	return p + 1, ""
}

// maxLinearKeys is up to how many keys comparing with each is cheaper than
// hashing.
const maxLinearKeys = 16

// addKey notes the key data[start:end] of the innermost object and reports
// whether it is new there.
func (s *jsonScanner) addKey(data []byte, start, end int) bool {
	top := &s.stack[len(s.stack)-1]
	if top.table != nil {
		return top.table.add(data, start, end)
	}
	known := s.keys[top.from:]
	// Escaped keys go to a table, which unescapes each only once or twice.
	if len(known) == maxLinearKeys || bytes.IndexByte(data[start:end], '\\') >= 0 {
		top.table = s.newTable()
		for _, k := range known {
			top.table.add(data, int(k.start), int(k.end))
		}
		s.keys = s.keys[:top.from]
		return top.table.add(data, start, end)
	}
	key := data[start:end]
	for _, k := range known {
		if int(k.end-k.start) == len(key) && string(data[k.start:k.end]) == string(key) {
			return false
		}
	}
	s.keys = append(s.keys, jsonKeySpan{uint32(start), uint32(end)})
	return true
}

// minTableSlots is a power of two that holds more than maxLinearKeys keys.
const minTableSlots = 64

// jsonKeySeed is drawn once per process, so nobody outside can prepare keys that
// collide.
var jsonKeySeed = maphash.MakeSeed()

// jsonKeyTable is the set of an object's keys: an open-addressing hash table whose
// entries point into the text, eight bytes each.
type jsonKeyTable struct {
	slots   []jsonKeySlot // length is a power of two
	used    int
	scratch []byte // for unescaping
}

// jsonKeySlot is free if start is 0: a key never begins a text.
type jsonKeySlot struct{ hash, start uint32 }

func (s *jsonScanner) newTable() *jsonKeyTable {
	if n := len(s.free); n > 0 {
		t := s.free[n-1]
		s.free = s.free[:n-1]
		return t
	}
	return &jsonKeyTable{slots: make([]jsonKeySlot, minTableSlots)}
}

// release keeps only tables that never grew: clearing a big one for each later
// small object could cost quadratic time.
func (s *jsonScanner) release(t *jsonKeyTable) {
	if len(t.slots) > minTableSlots || cap(t.scratch) > 1024 {
		return
	}
	clear(t.slots)
	t.used = 0
	s.free = append(s.free, t)
}

// add inserts the key data[start:end] and reports whether it was new.
func (t *jsonKeyTable) add(data []byte, start, end int) bool {
	key := data[start:end]
	escaped := bytes.IndexByte(key, '\\') >= 0
	if escaped {
		t.scratch = appendUnescaped(t.scratch[:0], key, false)
		key = t.scratch
	}
	hash := uint32(maphash.Bytes(jsonKeySeed, key))
	mask := uint32(len(t.slots) - 1)
	i := hash & mask
	for t.slots[i].start != 0 {
		if t.slots[i].hash == hash && sameKey(data, int(t.slots[i].start), key) {
			return false
		}
		i = (i + 1) & mask
	}
	t.slots[i] = jsonKeySlot{hash, uint32(start)}
	if t.used++; t.used > len(t.slots)/4*3 {
		t.grow()
	}
	return true
}

// sameKey compares the key that begins at start with an unescaped one. Keys
// with equal hashes are nearly always equal, so this runs rarely.
func sameKey(data []byte, start int, unescaped []byte) bool {
	end, _ := scanString(data, start-1)
	key := data[start : end-1]
	if bytes.IndexByte(key, '\\') >= 0 {
		key = appendUnescaped(nil, key, false)
	}
	return bytes.Equal(key, unescaped)
}

func (t *jsonKeyTable) grow() {
	old := t.slots
	t.slots = make([]jsonKeySlot, 2*len(old))
	mask := uint32(len(t.slots) - 1)
	for _, slot := range old {
		if slot.start == 0 {
			continue
		}
		i := slot.hash & mask
		for t.slots[i].start != 0 {
			i = (i + 1) & mask
		}
		t.slots[i] = slot
	}
}

const (
	wordOnes   = 0x0101010101010101
	wordHighs  = 0x8080808080808080
	wordSpaces = ' ' * wordOnes
)

func skipSpace(data []byte, p int) int {
	if p < len(data) && data[p] > ' ' {
		return p // compact JSON: nearly always
	}
	return skipSpaceSlow(data, p)
}

func skipSpaceSlow(data []byte, p int) int {
	for p < len(data) {
		switch data[p] {
		case ' ':
			// Indentation comes in runs.
			for p+8 <= len(data) && binary.LittleEndian.Uint64(data[p:]) == wordSpaces {
				p += 8
			}
			for p < len(data) && data[p] == ' ' {
				p++
			}
		case '\n', '\r', '\t':
			p++
		default:
			return p
		}
	}
	return p
}

// scanString reads the string that begins at p and returns the place after its
// closing quote, or the place of the fault and a reason.
func scanString(data []byte, p int) (int, string) {
	p = plainRun(data, p+1)
	for p < len(data) {
		switch c := data[p]; {
		case c == '"':
			return p + 1, ""
		case c == '\\':
			size, whole := escapeLen(data, p)
			if !whole {
				return len(data), jsonReasonEnd
			}
			if size == 0 {
				return p, jsonReasonEscape
			}
			p = plainRun(data, p+size)
		case c < ' ':
			return p, jsonReasonControl
		case c < utf8.RuneSelf:
			// Only after a rune that is not ASCII: the run begins again.
			p = plainRun(data, p)
		default:
			size := wideRuneLen(data[p:])
			if size == 0 {
				return p, jsonReasonUTF8
			}
			p += size
		}
	}
	return len(data), jsonReasonEnd
}

// plainRun returns the place of the first byte from p on that is a quote, a
// backslash, a control character or not ASCII, or len(data).
func plainRun(data []byte, p int) int {
	for p+8 <= len(data) {
		if m := specialBytes(binary.LittleEndian.Uint64(data[p:])); m != 0 {
			return p + bits.TrailingZeros64(m)>>3
		}
		p += 8
	}
	for p < len(data) && data[p] >= ' ' && data[p] < utf8.RuneSelf && data[p] != '"' && data[p] != '\\' {
		p++
	}
	return p
}

// specialBytes sets the high bit of the bytes of w at which plainRun stops.
// The subtractions borrow from the next byte only where a byte is special, so
// the lowest bit set is always right; those above it may not be.
func specialBytes(w uint64) uint64 {
	control := w - wordSpaces
	quote := (w ^ '"'*wordOnes) - wordOnes
	backslash := (w ^ '\\'*wordOnes) - wordOnes
	return (control | quote | backslash | w) & wordHighs
}

// escapeLen returns the length of the escape at p, 0 if it is invalid; whole is
// false if data ends within it.
func escapeLen(data []byte, p int) (size int, whole bool) {
	if p+1 >= len(data) {
		return 0, false
	}
	switch data[p+1] {
	case '"', '\\', '/', 'b', 'f', 'n', 'r', 't':
		return 2, true
	case 'u':
		for i := p + 2; i < p+6; i++ {
			if i >= len(data) {
				return 0, false
			}
			if !isJSONHex(data[i]) {
				return 0, true
			}
		}
		return 6, true
	}
	return 0, true
}

func isJSONHex(c byte) bool {
	return c-'0' <= 9 || c|0x20-'a' <= 5
}

// wideRuneLen returns the length of the UTF-8 sequence of two to four bytes
// that begins b, or 0 if it is invalid. The masks test the shape of all its
// bytes at once; what remains are overlong forms, surrogates and too large
// code points, all of which show in the first two bytes.
func wideRuneLen(b []byte) int {
	if len(b) < 4 {
		if r, size := utf8.DecodeRune(b); r != utf8.RuneError || size > 1 {
			return size
		}
		return 0
	}
	w := binary.LittleEndian.Uint32(b)
	switch {
	case w&0x00C0C0F0 == 0x008080E0:
		if m := w & 0x200F; m != 0 && m != 0x200D {
			return 3
		}
	case w&0xC0E0 == 0x80C0:
		if w&0x1E != 0 {
			return 2
		}
	case w&0xC0C0C0F8 == 0x808080F0:
		if m := w & 0x3007; m != 0 && (m&7 < 4 || m == 4) {
			return 4
		}
	}
	return 0
}

// scanScalar reads true, false, null or a number.
func scanScalar(data []byte, p int) (int, string) {
	switch c := data[p]; {
	case c == '-' || isJSONDigit(c):
		return scanNumber(data, p)
	case c == 't':
		return scanWord(data, p, "true")
	case c == 'f':
		return scanWord(data, p, "false")
	case c == 'n':
		return scanWord(data, p, "null")
	case bytes.HasPrefix(data[p:], []byte("NaN")) || bytes.HasPrefix(data[p:], []byte("Infinity")):
		return p, jsonReasonNaN
	}
	return p, jsonReasonValue
}

func scanWord(data []byte, p int, word string) (int, string) {
	have := data[p:min(p+len(word), len(data))]
	switch {
	case string(have) == word:
		return p + len(word), ""
	case string(have) == word[:len(have)]:
		return len(data), jsonReasonEnd
	}
	return p, jsonReasonValue
}

func isJSONDigit(c byte) bool { return c-'0' <= 9 }

// skipDigits returns the place of the first byte from p on that is no digit.
func skipDigits(data []byte, p int) int {
	for p < len(data) && isJSONDigit(data[p]) {
		p++
	}
	return p
}

// scanNumber reads a number. The place of a fault is the number's beginning,
// unless the text ends in it.
func scanNumber(data []byte, start int) (int, string) {
	p := start
	if data[p] == '-' {
		p++
	}
	from := p
	p = skipDigits(data, p)
	switch {
	case p == from:
		return numberFault(data, start, p)
	case data[from] == '0' && p-from > 1:
		return start, jsonReasonNumber
	}
	if p < len(data) && data[p] == '.' {
		from = p + 1
		if p = skipDigits(data, from); p == from {
			return numberFault(data, start, p)
		}
	}
	if p < len(data) && data[p]|0x20 == 'e' {
		from = p + 1
		if from < len(data) && (data[from] == '+' || data[from] == '-') {
			from++
		}
		if p = skipDigits(data, from); p == from {
			return numberFault(data, start, p)
		}
	}
	return p, ""
}

// numberFault explains why there is no digit at p.
func numberFault(data []byte, start, p int) (int, string) {
	switch {
	case p == len(data):
		return p, jsonReasonEnd
	case bytes.HasPrefix(data[start:], []byte("-Infinity")):
		return start, jsonReasonNaN
	}
	return start, jsonReasonNumber
}

// appendUnescaped appends the text of a checked string (without its quotes).
// Lone surrogates become U+FFFD if replace is set, as encoding/json does; else
// they are appended as three bytes each that no valid UTF-8 contains, so that
// different strings stay different.
func appendUnescaped(dst, raw []byte, replace bool) []byte {
	for {
		i := bytes.IndexByte(raw, '\\')
		if i < 0 {
			return append(dst, raw...)
		}
		dst = append(dst, raw[:i]...)
		raw = raw[i:]
		if raw[1] != 'u' {
			dst = append(dst, simpleEscape(raw[1]))
			raw = raw[2:]
			continue
		}
		r := hexRune(raw)
		raw = raw[6:]
		if utf16.IsSurrogate(r) && len(raw) >= 6 && raw[0] == '\\' && raw[1] == 'u' {
			if pair := utf16.DecodeRune(r, hexRune(raw)); pair != utf8.RuneError {
				r = pair
				raw = raw[6:]
			}
		}
		if utf16.IsSurrogate(r) && !replace {
			dst = append(dst, 0xE0|byte(r>>12), 0x80|byte(r>>6)&0x3F, 0x80|byte(r)&0x3F)
		} else {
			dst = utf8.AppendRune(dst, r) // U+FFFD for a surrogate
		}
	}
}

func simpleEscape(c byte) byte {
	switch c {
	case 'b':
		return '\b'
	case 'f':
		return '\f'
	case 'n':
		return '\n'
	case 'r':
		return '\r'
	case 't':
		return '\t'
	}
	return c
}

// hexRune returns the code unit of the escape \uXXXX that begins raw.
func hexRune(raw []byte) rune {
	var r rune
	for _, c := range raw[2:6] {
		if isJSONDigit(c) {
			r = r<<4 | rune(c-'0')
		} else {
			r = r<<4 | rune(c|0x20-'a'+10)
		}
	}
	return r
}

// skipValue returns the place after the value that begins at p in checked data.
func skipValue(data []byte, p int) int {
	for depth := 0; ; {
		switch data[p] {
		case '"':
			p, _ = scanString(data, p)
		case '{', '[':
			depth++
			p++
		case '}', ']':
			depth--
			p++
		default:
			p = skipScalar(data, p)
		}
		if depth == 0 {
			return p
		}
	}
}

// skipScalar skips at least one byte and then all up to the next byte with a
// meaning of its own; within containers that may be commas, colons and space.
func skipScalar(data []byte, p int) int {
	for p++; p < len(data); p++ {
		switch data[p] {
		case ',', ':', ']', '}', '[', '{', '"', ' ', '\n', '\r', '\t':
			return p
		}
	}
	return p
}

// jsonStep is one open container on the way to a place.
type jsonStep struct {
	object  bool
	inValue bool // a member's value is due or being read
	key     []byte
	index   int
}

// jsonPathAt returns the JSON pointer of the value being read at offset; data
// is valid up to there.
func jsonPathAt(data []byte, offset int) string {
	var steps []jsonStep
	var outside jsonStep // stands for a container around the whole text
	for p := 0; p < offset; {
		top := &outside
		if len(steps) > 0 {
			top = &steps[len(steps)-1]
		}
		start := p
		switch data[p] {
		case ' ', '\n', '\r', '\t':
			p++
			continue
		case '{':
			steps = append(steps, jsonStep{object: true})
			p++
			continue
		case '[':
			steps = append(steps, jsonStep{inValue: true})
			p++
			continue
		case '}', ']':
			steps = steps[:len(steps)-1]
			p++
			if len(steps) > 0 {
				steps[len(steps)-1].inValue = false
			}
			continue
		case ',':
			top.index++
			top.inValue = !top.object
			p++
			continue
		case ':':
			top.inValue = true
			p++
			continue
		case '"':
			var reason string
			if p, reason = scanString(data, p); reason != "" {
				p = offset + 1 // the fault is in this string
			}
		default:
			if p = skipScalar(data, p); p == len(data) {
				p = offset + 1 // it may have been meant to go on
			}
		}
		switch {
		case p > offset: // the fault is in this token
		case top.object && !top.inValue:
			top.key = data[start+1 : p-1]
		default:
			top.inValue = false
		}
	}
	return joinPointer(steps)
}

var pointerEscaper = strings.NewReplacer("~", "~0", "/", "~1")

func joinPointer(steps []jsonStep) string {
	var b strings.Builder
	for _, s := range steps {
		switch {
		case !s.inValue: // only the last may be so
		case s.object:
			b.WriteString("/" + pointerEscaper.Replace(shownKey(s.key)))
		default:
			b.WriteString("/" + strconv.Itoa(s.index))
		}
	}
	return b.String()
}

// DecodeStrict checks data as CheckJSON does and decodes it into v, a non-nil
// pointer, as encoding/json would, except that an object's keys must be exactly
// the names of the fields of the struct it is decoded into, at every level:
// unknown ones are refused, and so are those that differ in case. Types that
// implement json.Unmarshaler (such as json.RawMessage) and empty interfaces take
// what they get; maps take any key, and their values are decoded by the same
// rules, as is what a pointer within an interface points to.
// Slices are always new, and a value's own decoder is given the value's bytes
// without a further check.
//
// The error is a *JSONError, or a *json.InvalidUnmarshalError if v is no
// pointer. After an error, v may be filled in part.
func DecodeStrict(data []byte, v any) error {
	target := reflect.ValueOf(v)
	if target.Kind() != reflect.Pointer || target.IsNil() {
		return &json.InvalidUnmarshalError{Type: reflect.TypeOf(v)}
	}
	if err := checkJSON(data); err != nil {
		return err
	}
	d := jsonDecoder{data}
	if _, err := d.value(skipSpace(data, 0), target.Elem()); err != nil {
		return err
	}
	return nil
}

// jsonDecoder decodes checked data. Its methods take the place of a value and
// return the place after it.
type jsonDecoder struct{ data []byte }

func (d *jsonDecoder) fault(p int, reason string) *JSONError {
	return newJSONError(d.data, p, reason)
}

func (d *jsonDecoder) mismatch(p int, want string) *JSONError {
	return d.fault(p, "expected "+want+", got "+jsonTypeName(d.data[p]))
}

// jsonTypeName names the type of a value by its first byte.
func jsonTypeName(c byte) string {
	switch c {
	case '{':
		return "an object"
	case '[':
		return "an array"
	case '"':
		return "a string"
	case 't', 'f':
		return "a boolean"
	case 'n':
		return "null"
	}
	return "a number"
}

func (d *jsonDecoder) value(p int, v reflect.Value) (int, *JSONError) {
	if next, handled, err := d.custom(p, v); handled {
		return next, err
	}
	if d.data[p] == 'n' {
		switch v.Kind() {
		case reflect.Pointer, reflect.Interface, reflect.Map, reflect.Slice:
			v.SetZero()
		}
		return p + len("null"), nil // other kinds keep what they hold
	}
	switch v.Kind() {
	case reflect.Pointer:
		if v.IsNil() {
			v.Set(reflect.New(v.Type().Elem()))
		}
		return d.value(p, v.Elem())
	case reflect.Interface:
		return d.iface(p, v)
	case reflect.Struct:
		return d.structure(p, v)
	case reflect.Map:
		return d.mapping(p, v)
	case reflect.Slice:
		if d.data[p] == '"' && v.Type().Elem().Kind() == reflect.Uint8 {
			return d.base64(p, v)
		}
		return d.slice(p, v)
	case reflect.Array:
		return d.array(p, v)
	}
	return d.scalar(p, v)
}

// custom lets a value's own UnmarshalJSON or UnmarshalText read it.
func (d *jsonDecoder) custom(p int, v reflect.Value) (next int, handled bool, fault *JSONError) {
	if v.Kind() == reflect.Pointer || !v.CanAddr() || !v.Addr().CanInterface() {
		return p, false, nil
	}
	switch u := v.Addr().Interface().(type) {
	case json.Unmarshaler:
		end := skipValue(d.data, p)
		if err := u.UnmarshalJSON(d.data[p:end:end]); err != nil {
			return p, true, d.refused(p, v.Type(), err)
		}
		return end, true, nil
	case encoding.TextUnmarshaler:
		switch d.data[p] {
		case 'n':
			return p, false, nil
		case '"':
			text, end := d.text(p)
			if err := u.UnmarshalText(text); err != nil {
				return p, true, d.refused(p, v.Type(), err)
			}
			return end, true, nil
		}
		return p, true, d.mismatch(p, "a string")
	}
	return p, false, nil
}

// refused explains that a type's own decoder returned cause. Its text is not
// shown, it may quote the value; but if it comes from this package it is known
// to be safe, and says more exactly where.
func (d *jsonDecoder) refused(p int, t reflect.Type, cause error) *JSONError {
	var inner *JSONError
	if !errors.As(cause, &inner) {
		return d.fault(p, "not a valid "+t.String())
	}
	if inner.Offset < 0 || p+inner.Offset > len(d.data) {
		return d.fault(p, inner.Reason)
	}
	fault := d.fault(p+inner.Offset, inner.Reason)
	fault.Path = jsonPathAt(d.data, p) + inner.Path
	return fault
}

// text returns what the string at p says, as encoding/json would.
func (d *jsonDecoder) text(p int) (text []byte, next int) {
	next, _ = scanString(d.data, p)
	text = d.data[p+1 : next-1 : next-1]
	if bytes.IndexByte(text, '\\') >= 0 {
		text = appendUnescaped(nil, text, true)
	}
	return text, next
}

// iface decodes into what a pointer in the interface points to, or else leaves
// the choice of types to encoding/json, which can only object to numbers that
// float64 cannot hold and to interfaces with methods.
func (d *jsonDecoder) iface(p int, v reflect.Value) (int, *JSONError) {
	if e := v.Elem(); e.Kind() == reflect.Pointer && !e.IsNil() && e.Elem().Kind() != reflect.Interface {
		return d.value(p, e.Elem())
	}
	end := skipValue(d.data, p)
	err := json.Unmarshal(d.data[p:end], v.Addr().Interface())
	var wrongType *json.UnmarshalTypeError
	switch {
	case err == nil:
		return end, nil
	case v.NumMethod() == 0 && errors.As(err, &wrongType) && strings.HasPrefix(wrongType.Value, "number"):
		return p, d.fault(p, "a number in this value is out of range")
	}
	return p, d.fault(p, "cannot be read into "+v.Type().String())
}

func (d *jsonDecoder) structure(p int, v reflect.Value) (int, *JSONError) {
	if d.data[p] != '{' {
		return p, d.mismatch(p, "an object")
	}
	fields := jsonFieldsOf(v.Type())
	return d.members(p, func(key, value int) (int, *JSONError) {
		name, _ := d.text(key)
		field, ok := fields[string(name)]
		if !ok {
			return key, d.fault(key, unknownField(name, fields))
		}
		target, ok := fieldByIndex(v, field.index)
		if !ok {
			return key, d.fault(key, fmt.Sprintf("field %q cannot be set", cutKey(string(name))))
		}
		if field.quoted {
			return d.quoted(value, target)
		}
		return d.value(value, target)
	})
}

// members calls each with the places of each key and value of the object at p.
func (d *jsonDecoder) members(p int, each func(key, value int) (int, *JSONError)) (int, *JSONError) {
	for p = skipSpace(d.data, p+1); d.data[p] != '}'; p = skipComma(d.data, p) {
		end, _ := scanString(d.data, p)
		value := skipSpace(d.data, skipSpace(d.data, end)+1)
		next, fault := each(p, value)
		if fault != nil {
			return p, fault
		}
		p = next
	}
	return p + 1, nil
}

// skipComma goes from the end of a member to the next one or to the closing
// bracket, in checked data.
func skipComma(data []byte, p int) int {
	if p = skipSpace(data, p); data[p] == ',' {
		p = skipSpace(data, p+1)
	}
	return p
}

func unknownField(name []byte, fields map[string]jsonField) string {
	reason := fmt.Sprintf("unknown field %q", cutKey(string(name)))
	var near []string
	for known := range fields {
		if strings.EqualFold(known, string(name)) {
			near = append(near, known)
		}
	}
	if len(near) == 0 {
		return reason
	}
	return fmt.Sprintf("%s: did you mean %q?", reason, slices.Min(near))
}

// quoted reads a field with the option ",string": a scalar within a string.
func (d *jsonDecoder) quoted(p int, v reflect.Value) (int, *JSONError) {
	switch d.data[p] {
	case 'n':
		return d.value(p, v)
	case '"':
	default:
		return p, d.mismatch(p, "a string")
	}
	text, end := d.text(p)
	if checkJSON(text) != nil || len(bytes.TrimSpace(text)) != len(text) {
		return p, d.fault(p, "expected a JSON scalar in the string")
	}
	inner := jsonDecoder{text}
	if _, fault := inner.value(0, v); fault != nil {
		return p, d.fault(p, fault.Reason+" in the string")
	}
	return end, nil
}

// fieldByIndex finds a field, making the embedded structs on the way to it. It
// reports false if one of these is a nil pointer to an unexported type.
func fieldByIndex(v reflect.Value, index []int) (reflect.Value, bool) {
	for i, n := range index {
		if i > 0 && v.Kind() == reflect.Pointer {
			if v.IsNil() {
				if !v.CanSet() {
					return v, false
				}
				v.Set(reflect.New(v.Type().Elem()))
			}
			v = v.Elem()
		}
		v = v.Field(n)
	}
	return v, v.CanSet() || v.Kind() == reflect.Struct
}

func (d *jsonDecoder) mapping(p int, v reflect.Value) (int, *JSONError) {
	if d.data[p] != '{' {
		return p, d.mismatch(p, "an object")
	}
	t := v.Type()
	if v.IsNil() {
		v.Set(reflect.MakeMap(t))
	}
	return d.members(p, func(key, value int) (int, *JSONError) {
		k := reflect.New(t.Key()).Elem()
		if fault := d.mapKey(key, k); fault != nil {
			return key, fault
		}
		elem := reflect.New(t.Elem()).Elem()
		next, fault := d.value(value, elem)
		if fault == nil {
			v.SetMapIndex(k, elem)
		}
		return next, fault
	})
}

// mapKey decodes a key as encoding/json does: text, or an integer in it.
func (d *jsonDecoder) mapKey(p int, k reflect.Value) *JSONError {
	text, _ := d.text(p)
	ok := true
	if u, custom := k.Addr().Interface().(encoding.TextUnmarshaler); custom {
		ok = u.UnmarshalText(text) == nil
	} else if k.Kind() == reflect.String {
		k.SetString(string(text))
	} else if k.CanInt() || k.CanUint() {
		// Only one spelling of each number, or "1" and "+1" were one key twice.
		ok = setInteger(k, string(text)) && integerText(k) == string(text)
	} else {
		return d.fault(p, "cannot be read into a map with keys of type "+k.Type().String())
	}
	if !ok {
		return d.fault(p, "key is not a valid "+k.Type().String())
	}
	return nil
}

func integerText(v reflect.Value) string {
	if v.CanInt() {
		return strconv.FormatInt(v.Int(), 10)
	}
	return strconv.FormatUint(v.Uint(), 10)
}

func (d *jsonDecoder) base64(p int, v reflect.Value) (int, *JSONError) {
	text, end := d.text(p)
	b, err := base64.StdEncoding.DecodeString(string(text))
	if err != nil {
		return p, d.fault(p, "expected base64 text")
	}
	v.SetBytes(b)
	return end, nil
}

// slice decodes into new memory, so that nothing of an old slice, which others
// may share, shows through or is written over.
func (d *jsonDecoder) slice(p int, v reflect.Value) (int, *JSONError) {
	if d.data[p] != '[' {
		return p, d.mismatch(p, "an array")
	}
	s := reflect.New(v.Type()).Elem()
	s.Set(reflect.MakeSlice(v.Type(), 0, 0))
	next, fault := d.elements(p, func(n, p int) (int, *JSONError) {
		if n == s.Cap() {
			s.Grow(1)
		}
		s.SetLen(n + 1)
		return d.value(p, s.Index(n))
	})
	if fault == nil {
		v.Set(s)
	}
	return next, fault
}

// array ignores elements too many and zeroes those missing, as encoding/json.
func (d *jsonDecoder) array(p int, v reflect.Value) (int, *JSONError) {
	if d.data[p] != '[' {
		return p, d.mismatch(p, "an array")
	}
	count := 0
	next, fault := d.elements(p, func(n, p int) (int, *JSONError) {
		count = n + 1
		if n >= v.Len() {
			return skipValue(d.data, p), nil
		}
		return d.value(p, v.Index(n))
	})
	for i := count; i < v.Len(); i++ {
		v.Index(i).SetZero()
	}
	return next, fault
}

// elements calls each with the number and place of each element.
func (d *jsonDecoder) elements(p int, each func(n, p int) (int, *JSONError)) (int, *JSONError) {
	n := 0
	for p = skipSpace(d.data, p+1); d.data[p] != ']'; p = skipComma(d.data, p) {
		next, fault := each(n, p)
		if fault != nil {
			return p, fault
		}
		p = next
		n++
	}
	return p + 1, nil
}

func (d *jsonDecoder) scalar(p int, v reflect.Value) (int, *JSONError) {
	switch {
	case v.Type() == reflect.TypeFor[json.Number]():
		return d.jsonNumber(p, v)
	case v.Kind() == reflect.String:
		if d.data[p] != '"' {
			return p, d.mismatch(p, "a string")
		}
		text, end := d.text(p)
		v.SetString(string(text))
		return end, nil
	case v.Kind() == reflect.Bool:
		if c := d.data[p]; c != 't' && c != 'f' {
			return p, d.mismatch(p, "a boolean")
		}
		v.SetBool(d.data[p] == 't')
		return skipScalar(d.data, p), nil
	case v.CanInt() || v.CanUint() || v.CanFloat():
		return d.number(p, v)
	}
	return p, d.fault(p, "cannot be read into "+v.Type().String())
}

func isJSONNumber(data []byte, p int) bool {
	return data[p] == '-' || isJSONDigit(data[p])
}

// jsonNumber keeps a number's text, also if it comes in a string.
func (d *jsonDecoder) jsonNumber(p int, v reflect.Value) (int, *JSONError) {
	var text []byte
	var end int
	switch {
	case isJSONNumber(d.data, p):
		end = skipScalar(d.data, p)
		text = d.data[p:end]
	case d.data[p] == '"':
		text, end = d.text(p)
		if len(text) == 0 || !isJSONNumber(text, 0) {
			return p, d.fault(p, "expected a number in the string")
		}
		if n, reason := scanNumber(text, 0); reason != "" || n < len(text) {
			return p, d.fault(p, "expected a number in the string")
		}
	default:
		return p, d.mismatch(p, "a number")
	}
	v.SetString(string(text))
	return end, nil
}

func (d *jsonDecoder) number(p int, v reflect.Value) (int, *JSONError) {
	if !isJSONNumber(d.data, p) {
		return p, d.mismatch(p, "a number")
	}
	end := skipScalar(d.data, p)
	text := string(d.data[p:end])
	if v.CanFloat() {
		f, err := strconv.ParseFloat(text, v.Type().Bits())
		if err != nil || v.OverflowFloat(f) {
			return p, d.fault(p, "number out of range for "+v.Type().String())
		}
		v.SetFloat(f)
		return end, nil
	}
	if strings.ContainsAny(text, ".eE") {
		return p, d.fault(p, "expected an integer without fraction or exponent")
	}
	if !setInteger(v, text) {
		return p, d.fault(p, "number out of range for "+v.Type().String())
	}
	return end, nil
}

// setInteger sets v, of an integer kind, and reports whether text is one and
// fits.
func setInteger(v reflect.Value, text string) bool {
	if v.CanInt() {
		n, err := strconv.ParseInt(text, 10, v.Type().Bits())
		if err == nil {
			v.SetInt(n)
		}
		return err == nil
	}
	n, err := strconv.ParseUint(text, 10, v.Type().Bits())
	if err == nil {
		v.SetUint(n)
	}
	return err == nil
}

// jsonField is a field as encoding/json sees it, reached by index.
type jsonField struct {
	index  []int
	tagged bool // its name comes from a tag
	quoted bool // it has the option ",string"
}

// jsonFieldCache caches what jsonFieldsOf finds, by reflect.Type.
var jsonFieldCache sync.Map

// jsonFieldsOf returns the fields of a struct type by their JSON names.
func jsonFieldsOf(t reflect.Type) map[string]jsonField {
	if cached, ok := jsonFieldCache.Load(t); ok {
		return cached.(map[string]jsonField)
	}
	fields := findJSONFields(t)
	jsonFieldCache.Store(t, fields)
	return fields
}

// embeddedStruct is a struct type to be searched and how to reach it.
type embeddedStruct struct {
	t     reflect.Type
	index []int
	twice bool // it is embedded more than once at its level: all ambiguous
}

// findJSONFields searches a type and the structs embedded in it, level by level:
// a name found at one level hides it at deeper ones, and a name that is
// ambiguous at its level is no field at all, as in Go itself, but for a tag
// winning over its absence.
func findJSONFields(t reflect.Type) map[string]jsonField {
	fields := map[string]jsonField{}
	taken := map[string]bool{} // names seen at higher levels
	seen := map[reflect.Type]bool{t: true}
	for level := []embeddedStruct{{t: t}}; len(level) > 0; {
		found := map[string][]jsonField{}
		var deeper []embeddedStruct
		for _, e := range level {
			deeper = append(deeper, e.collect(found)...)
		}
		for name, candidates := range found {
			if field, ok := dominantField(candidates); ok && !taken[name] {
				fields[name] = field
			}
			taken[name] = true
		}
		level = nextLevel(deeper, seen)
	}
	return fields
}

// nextLevel drops types that were searched before and joins equal ones.
func nextLevel(deeper []embeddedStruct, seen map[reflect.Type]bool) (level []embeddedStruct) {
	at := map[reflect.Type]int{}
	for _, e := range deeper {
		if i, ok := at[e.t]; ok {
			level[i].twice = true
		} else if !seen[e.t] {
			at[e.t] = len(level)
			level = append(level, e)
			seen[e.t] = true
		}
	}
	return level
}

// collect adds a struct's own fields to found and returns what it embeds.
func (e embeddedStruct) collect(found map[string][]jsonField) (deeper []embeddedStruct) {
	for i := range e.t.NumField() {
		sf := e.t.Field(i)
		elem := sf.Type
		if elem.Kind() == reflect.Pointer && elem.Name() == "" {
			elem = elem.Elem()
		}
		tag := sf.Tag.Get("json")
		if tag == "-" || !sf.IsExported() && (!sf.Anonymous || elem.Kind() != reflect.Struct) {
			continue
		}
		name, options, _ := strings.Cut(tag, ",")
		if !isFieldName(name) {
			name = ""
		}
		index := append(slices.Clone(e.index), i)
		if name == "" && sf.Anonymous && elem.Kind() == reflect.Struct {
			deeper = append(deeper, embeddedStruct{t: elem, index: index})
			continue
		}
		field := jsonField{index: index, tagged: name != ""}
		field.quoted = slices.Contains(strings.Split(options, ","), "string") && isQuotable(elem.Kind())
		name = cmp.Or(name, sf.Name)
		found[name] = append(found[name], field)
		if e.twice {
			found[name] = append(found[name], field)
		}
	}
	return deeper
}

// dominantField picks the only tagged candidate, else the only one.
func dominantField(candidates []jsonField) (jsonField, bool) {
	tagged := slices.DeleteFunc(slices.Clone(candidates), func(f jsonField) bool { return !f.tagged })
	if len(tagged) > 0 {
		candidates = tagged
	}
	return candidates[0], len(candidates) == 1
}

// isFieldName reports whether encoding/json takes a tag's name.
func isFieldName(name string) bool {
	return name != "" && !strings.ContainsFunc(name, func(c rune) bool {
		return !strings.ContainsRune("!#$%&()*+-./:;<=>?@[]^_{|}~ ", c) && !unicode.IsLetter(c) && !unicode.IsDigit(c)
	})
}

func isQuotable(k reflect.Kind) bool {
	return k == reflect.String || k == reflect.Bool || k >= reflect.Int && k <= reflect.Float64
}

// CanonicalJSON checks data as CheckJSON does and returns it in the form of RFC
// 8785: no white space, keys sorted by UTF-16 code units, strings with the
// fewest escapes, numbers as ECMAScript writes them. Texts that mean the same
// thus become the same bytes, fit for hashing.
//
// It differs from the RFC in two points, so as not to lose or refuse what
// agents do send:
//   - Integers written without fraction and exponent whose magnitude is above
//     2^53 are kept digit by digit. The RFC would round them to a float64, and
//     different identifiers would become the same. Written with a fraction or
//     an exponent (1e20, 9007199254740993.0) they are rounded as it says.
//   - Lone surrogates, which the RFC refuses, are written as escapes in lower
//     case, as ECMAScript's JSON.stringify does.
//
// Numbers with fraction or exponent that float64 cannot hold (1e400) are an
// error.
func CanonicalJSON(data []byte) ([]byte, error) {
	if err := checkJSON(data); err != nil {
		return nil, err
	}
	c := canonicalizer{data: data, out: make([]byte, 0, len(data)), badNumber: -1}
	start := skipSpace(data, 0)
	c.index(start)
	c.emit(start)
	if c.badNumber >= 0 {
		return nil, newJSONError(data, c.badNumber, "number out of range for float64")
	}
	return c.out, nil
}

// canonicalizer first finds every object's members, then writes them in order.
// Moving written members about instead would copy deep texts once per level.
type canonicalizer struct {
	data      []byte
	out       []byte
	objects   []canonicalObject // by start
	members   []canonicalMember // of each object in one piece, sorted
	pending   []canonicalMember // of objects being read
	scratch   []byte
	badNumber int // the first number too large, or -1
}

// canonicalObject is an object with members: where it is, and which they are.
type canonicalObject struct{ start, end, from, to uint32 }

type canonicalMember struct{ key, value uint32 }

// index notes the objects in the value at p and returns the place after it.
// The depth of its recursion has been checked.
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

// sort orders members by their keys' UTF-16 code units. Among plain ASCII keys
// that is the order of their bytes.
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

// decodeWithSurrogates is utf8.DecodeRune for what appendUnescaped returns,
// where surrogates may occur.
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
	if isJSONNumber(c.data, p) {
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
		c.out = append(c.out, c.data[p:end]...) // nothing here may be escaped
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

// emitNumber writes data[p:end] as ECMAScript's Number.toString does, but
// integers beyond 2^53 as they are.
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

// isJustAbove53 catches the one integer above 2^53 that rounds down to it.
func isJustAbove53(text string) bool {
	return strings.TrimPrefix(text, "-") == "9007199254740993"
}

func appendECMANumber(out []byte, f float64) []byte {
	if f == 0 {
		return append(out, '0') // also for -0
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
