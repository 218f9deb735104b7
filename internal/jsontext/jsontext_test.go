package jsontext

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
	"unicode/utf8"
)

func TestCheckJSONHostile(t *testing.T) {
	deep := strings.Repeat("[", MaxDepth)
	longKey := strings.Repeat("k", 200)
	many := new(strings.Builder) // more keys than are compared one by one
	many.WriteString(`{"\u0030":0`)
	for i := 1; i < 100; i++ {
		fmt.Fprintf(many, `,"%d":%d`, i, i)
	}
	var manyPlain = "{" + strings.TrimPrefix(many.String(), `{"\u0030":0,`)

	tests := []struct {
		name, in     string
		offset       int
		line, column int
		path, reason string
	}{
		{"empty", "", 0, 1, 1, "", "unexpected end"},
		{"only space", " \n ", 3, 2, 2, "", "unexpected end"},
		{"byte order mark", "\xef\xbb\xbf{}", 0, 1, 1, "", "byte order mark before the value"},
		{"two values", `{} {}`, 3, 1, 4, "", "data after the value"},
		{"NUL after", "1\x00", 1, 1, 2, "", "data after the value"},
		{"comma after", `[],`, 2, 1, 3, "", "data after the value"},
		{"form feed is no space", "\f1", 0, 1, 1, "", "expected a value"},
		{"no-break space", "\u00a01", 0, 1, 1, "", "expected a value"},

		{"duplicate", `{"a":1,"a":2}`, 7, 1, 8, "", `duplicate key "a"`},
		{"duplicate, escaped later", `{"a":1,"\u0061":2}`, 7, 1, 8, "", `duplicate key "a"`},
		{"duplicate, escaped first", `{"\u0061":1,"b":0,"a":2}`, 18, 1, 19, "", `duplicate key "a"`},
		{"duplicate, both escaped", `{"\u00E9\/":1,"\u00e9\u002f":2}`, 14, 1, 15, "", `duplicate key "é/"`},
		{"duplicate, escaped pair", `{"😀":1,"\ud83d\ude00":2}`, 10, 1, 11, "", `duplicate key "😀"`},
		{"duplicate lone surrogates", `{"\ud800":1,"\uD800":2}`, 12, 1, 13, "", `duplicate key "�"`},
		{"duplicate empty key", `{"":1,"":2}`, 6, 1, 7, "", `duplicate key ""`},
		{"duplicate deep", `{"x":[0,{"y~/":{"a":1,"a":2}}]}`, 22, 1, 23, "/x/1/y~0~1", `duplicate key "a"`},
		{"duplicate among many", many.String() + `,"57":1}`, many.Len() + 1, 1, many.Len() + 2, "", `duplicate key "57"`},
		{"duplicate among many, escaped", many.String() + `,"0":1}`, many.Len() + 1, 1, many.Len() + 2, "", `duplicate key "0"`},
		{"duplicate among many plain", manyPlain + `,"5\u0037":1}`, len(manyPlain) + 1, 1, len(manyPlain) + 2, "", `duplicate key "57"`},
		{"duplicate long key", `{"` + longKey + `":1,"` + longKey + `":2}`, 206, 1, 207, "", `duplicate key "` + longKey[:64] + `…"`},
		{"duplicate key with newline", `{"a\n":1,"a\n":2}`, 9, 1, 10, "", `duplicate key "a\n"`},

		{"invalid UTF-8", "[\"ab\xff\"]", 4, 1, 5, "/0", "invalid UTF-8"},
		{"lone continuation", "\"\x80\"", 1, 1, 2, "", "invalid UTF-8"},
		{"overlong slash", "\"\xc0\xaf    \"", 1, 1, 2, "", "invalid UTF-8"},
		{"overlong, three bytes", "\"\xe0\x9f\xbf    \"", 1, 1, 2, "", "invalid UTF-8"},
		{"overlong, four bytes", "\"\xf0\x8f\xbf\xbf    \"", 1, 1, 2, "", "invalid UTF-8"},
		{"raw surrogate", "\"\xed\xa0\x80    \"", 1, 1, 2, "", "invalid UTF-8"},
		{"above U+10FFFF", "\"\xf4\x90\x80\x80    \"", 1, 1, 2, "", "invalid UTF-8"},
		{"five bytes", "\"\xf8\x88\x80\x80\x80    \"", 1, 1, 2, "", "invalid UTF-8"},
		{"rune cut by the quote", "\"é\xe2\x82\"", 3, 1, 4, "", "invalid UTF-8"},
		{"rune cut by the end", "\"é\xe2\x82", 3, 1, 4, "", "invalid UTF-8"},
		{"invalid UTF-8 in key", "{\"a\":{\"b\xff\":1}}", 8, 1, 9, "/a", "invalid UTF-8"},
		{"invalid UTF-8 outside strings", "[1,\xff]", 3, 1, 4, "/1", "expected a value"},

		{"control character", "{\"a\":\n\"x\ty\"}", 8, 2, 3, "/a", "unescaped control character in a string"},
		{"NUL in string", "\"0123456789\x00\"", 11, 1, 12, "", "unescaped control character in a string"},
		{"bad escape", `["\x41"]`, 2, 1, 3, "/0", "invalid escape in a string"},
		{"bad hex", `["\u00g0"]`, 2, 1, 3, "/0", "invalid escape in a string"},
		{"bad hex by case bit", `["\u001` + "\x10" + `"]`, 2, 1, 3, "/0", "invalid escape in a string"},
		{"bad hex at sign", `["\u00@0"]`, 2, 1, 3, "/0", "invalid escape in a string"},
		{"short hex", `["\u00"]`, 2, 1, 3, "/0", "invalid escape in a string"},
		{"end in escape", `["\`, 3, 1, 4, "/0", "unexpected end"},
		{"end in hex", `{"a":"\u12`, 10, 1, 11, "/a", "unexpected end"},
		{"end in string", `{"a":"bc`, 8, 1, 9, "/a", "unexpected end"},
		{"end in key", `{"a`, 3, 1, 4, "", "unexpected end"},
		{"end before colon", `{"a" `, 5, 1, 6, "", "unexpected end"},
		{"end before value", `{"a":`, 5, 1, 6, "/a", "unexpected end"},
		{"end after value", `{"a":"b"`, 8, 1, 9, "", "unexpected end"},
		{"end after comma", `{"a":1,`, 7, 1, 8, "", "unexpected end"},
		{"end after bracket", `{"a":[`, 6, 1, 7, "/a/0", "unexpected end"},
		{"end after brace", `[{`, 2, 1, 3, "/0", "unexpected end"},
		{"end after element", `["", `, 5, 1, 6, "/1", "unexpected end"},
		{"end in number", `[1,-`, 4, 1, 5, "/1", "unexpected end"},
		{"end in fraction", `{"a":1.`, 7, 1, 8, "/a", "unexpected end"},
		{"end in exponent", `[1e+`, 4, 1, 5, "/0", "unexpected end"},
		{"end in true", `[tru`, 4, 1, 5, "/0", "unexpected end"},

		{"trailing comma in object", `{"a":1,}`, 7, 1, 8, "", "expected a key"},
		{"trailing comma in array", `[1,]`, 3, 1, 4, "/1", "expected a value"},
		{"only a comma", `[,]`, 1, 1, 2, "/0", "expected a value"},
		{"unquoted key", `{a:1}`, 1, 1, 2, "", `expected a key or "}"`},
		{"number as key", `{1:1}`, 1, 1, 2, "", `expected a key or "}"`},
		{"single quotes", `['a']`, 1, 1, 2, "/0", "expected a value"},
		{"comment", "[1 // one\n]", 3, 1, 4, "", `expected "," or "]"`},
		{"no colon", `{"a" 1}`, 5, 1, 6, "", `expected ":"`},
		{"no value", `{"a":}`, 5, 1, 6, "/a", "expected a value"},
		{"no comma in object", "{\"a\":1\n\"b\":2}", 7, 2, 1, "", `expected "," or "}"`},
		{"no comma in array", `[[1 2]]`, 4, 1, 5, "/0", `expected "," or "]"`},
		{"wrong bracket", `{"a":[1}}`, 7, 1, 8, "/a", `expected "," or "]"`},
		{"wrong brace", `[{"a":1]]`, 7, 1, 8, "/0", `expected "," or "}"`},
		{"closing only", `]`, 0, 1, 1, "", "expected a value"},

		{"leading zero", `[01]`, 1, 1, 2, "/0", "invalid number"},
		{"minus only", `[-]`, 1, 1, 2, "/0", "invalid number"},
		{"plus", `[+1]`, 1, 1, 2, "/0", "expected a value"},
		{"no digit after point", `[0,1.]`, 3, 1, 4, "/1", "invalid number"},
		{"no digit before point", `[.5]`, 1, 1, 2, "/0", "expected a value"},
		{"no exponent", `[1e]`, 1, 1, 2, "/0", "invalid number"},
		{"hexadecimal", `[0x1F]`, 2, 1, 3, "/0", `expected "," or "]"`},
		{"NaN", `{"loss":NaN}`, 8, 1, 9, "/loss", "NaN and Infinity are not JSON"},
		{"Infinity", `Infinity`, 0, 1, 1, "", "NaN and Infinity are not JSON"},
		{"minus Infinity", `[-Infinity]`, 1, 1, 2, "/0", "NaN and Infinity are not JSON"},
		{"Python literal", `[True]`, 1, 1, 2, "/0", "expected a value"},
		{"undefined", `undefined`, 0, 1, 1, "", "expected a value"},
		{"misspelt", `[nulL]`, 1, 1, 2, "/0", "expected a value"},

		{"too deep", deep + "[", MaxDepth, 1, MaxDepth + 1, strings.Repeat("/0", MaxDepth), "nested more than 1000 deep"},
		{"too deep by objects", strings.Repeat(`{"":`, MaxDepth) + "{", 4 * MaxDepth, 1, 4*MaxDepth + 1, strings.Repeat("/", MaxDepth), "nested more than 1000 deep"},
		{"path with long key", `{"` + longKey + `":[}`, 205, 1, 206, "/" + longKey[:64] + "…/0", "expected a value"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			var got *Error
			if err := Check([]byte(test.in)); !errors.As(err, &got) {
				t.Fatalf("CheckJSON(%.80q) = %v, want a *JSONError", test.in, err)
			}
			want := Error{test.offset, test.line, test.column, test.path, test.reason}
			if *got != want {
				t.Errorf("CheckJSON(%.80q)\n got %+v\nwant %+v", test.in, *got, want)
			}
			if text := got.Error(); strings.ContainsAny(text, "\n\r") || len(text) > 600 || !utf8.ValidString(text) {
				t.Errorf("unfit text: %q", text)
			}
		})
	}
}

func TestCheckJSONAccepts(t *testing.T) {
	accepted := []string{
		`0`, `-0`, `-0.0e-0`, `1E+99999`, `""`, `null`, " \t\r\n{ } \n", `[[],{},[{}]]`,
		`{"a":1,"A":2,"á":3,"a\u0301":4,"a ":5,"":6}`,
		`"\ud800"`, `"\udc00\ud800"`, `{"\ud800":1,"\ud801":2,"\ufffd":3}`,
		`{"a":{"a":{"a":1}},"b":[{"a":1},{"a":1}]}`,
		"\"\u0080\u07ff\u0800\uffff\U00010000\U0010ffff\ufffd\u007f\ufeff\"",
		strings.Repeat("[", MaxDepth) + strings.Repeat("]", MaxDepth),
		strings.Repeat(`{"a":`, MaxDepth) + "1" + strings.Repeat("}", MaxDepth),
		strings.Repeat(`{"a":`, MaxDepth-1) + "{}" + strings.Repeat("}", MaxDepth-1),
		"[\n                         1,\n                 2   ]",
	}
	for _, in := range accepted {
		if err := Check([]byte(in)); err != nil {
			t.Errorf("CheckJSON(%.80q) = %v", in, err)
		}
	}
}

// TestCheckJSONEveryPosition puts each fault at every place of a word and near
// the end of the text, where the fast paths change.
func TestCheckJSONEveryPosition(t *testing.T) {
	faults := map[string]string{
		"\xff": reasonUTF8, "\x1f": reasonControl, `\q`: reasonEscape,
		"\xe2\x82": reasonUTF8, "\xf0\x9f\x98": reasonUTF8, "\xed\xbf\xbf": reasonUTF8,
	}
	for fault, reason := range faults {
		for before := range 40 {
			for after := range 12 {
				in := `"` + strings.Repeat("a", before) + fault + strings.Repeat("b", after) + `"`
				var got *Error
				errors.As(Check([]byte(in)), &got)
				if got == nil || got.Offset != before+1 || got.Reason != reason {
					t.Fatalf("CheckJSON(%q) = %v, want %s at %d", in, got, reason, before+1)
				}
			}
		}
	}
	for _, good := range []string{"é", "€", "😀", `\n`, `\u00e9`, `\"`, "\x7f"} {
		for before := range 40 {
			for after := range 12 {
				in := `"` + strings.Repeat("a", before) + good + strings.Repeat("b", after) + `"`
				if err := Check([]byte(in)); err != nil {
					t.Fatalf("CheckJSON(%q) = %v", in, err)
				}
			}
		}
	}
}

// TestWideRuneLen compares with unicode/utf8 for all two-byte beginnings, with
// all kinds of bytes after them.
func TestWideRuneLen(t *testing.T) {
	ends := []byte{0x00, '"', 0x7f, 0x80, 0xa5, 0xbf, 0xc0, 0xff}
	for a := 0x80; a <= 0xff; a++ {
		for b := range 256 {
			for _, c := range ends {
				for _, d := range ends {
					in := []byte{byte(a), byte(b), c, d}
					for n := 1; n <= 4; n++ {
						r, want := utf8.DecodeRune(in[:n])
						if r == utf8.RuneError && want <= 1 {
							want = 0
						}
						if got := wideRuneLen(in[:n]); got != want {
							t.Fatalf("wideRuneLen(% x) = %d, want %d", in[:n], got, want)
						}
					}
				}
			}
		}
	}
}

// reference is a slow second check of texts that json.Valid accepts: it reports
// duplicate keys, and compares UTF-16 code units.
type reference struct {
	in        []byte
	p         int
	duplicate bool
}

func (r *reference) value() {
	switch r.peek() {
	case '{':
		seen := map[string]bool{}
		r.p++
		for r.peek() != '}' {
			if r.in[r.p] == ',' {
				r.p++
				continue
			}
			key := r.text()
			r.duplicate = r.duplicate || seen[key]
			seen[key] = true
			r.peek()
			r.p++ // the colon
			r.value()
		}
		r.p++
	case '[':
		r.p++
		for r.peek() != ']' {
			if r.in[r.p] == ',' {
				r.p++
				continue
			}
			r.value()
		}
		r.p++
	case '"':
		r.text()
	default:
		for r.p < len(r.in) && !bytes.ContainsRune([]byte(",]} \t\r\n"), rune(r.in[r.p])) {
			r.p++
		}
	}
}

func (r *reference) peek() byte {
	for bytes.IndexByte([]byte(" \t\r\n"), r.in[r.p]) >= 0 {
		r.p++
	}
	return r.in[r.p]
}

// text reads a string and returns its code units in hexadecimal.
func (r *reference) text() string {
	var units []string
	for r.p++; r.in[r.p] != '"'; {
		c := rune(r.in[r.p])
		size := 1
		switch {
		case c == '\\' && r.in[r.p+1] == 'u':
			n, _ := strconv.ParseUint(string(r.in[r.p+2:r.p+6]), 16, 16)
			c, size = rune(n), 6
		case c == '\\':
			c, size = rune(map[byte]byte{'n': 10, 'r': 13, 't': 9, 'b': 8, 'f': 12}[r.in[r.p+1]]), 2
			if c == 0 {
				c = rune(r.in[r.p+1])
			}
		default:
			c, size = utf8.DecodeRune(r.in[r.p:])
		}
		if c > 0xffff {
			units = append(units, fmt.Sprintf("%04x", 0xd800+(c-0x10000)>>10))
			c = 0xdc00 + (c-0x10000)&0x3ff
		}
		units = append(units, fmt.Sprintf("%04x", c))
		r.p += size
	}
	r.p++
	return strings.Join(units, "")
}

// strictlyValid is the result that CheckJSON should have, by the reference.
func strictlyValid(in []byte) bool {
	if !json.Valid(in) || !utf8.Valid(in) {
		return false
	}
	r := reference{in: in}
	r.value()
	return !r.duplicate && bracketDepth(in) <= MaxDepth
}

func bracketDepth(in []byte) (deepest int) {
	depth, inString := 0, false
	for p := 0; p < len(in); p++ {
		switch c := in[p]; {
		case inString && c == '\\':
			p++
		case c == '"':
			inString = !inString
		case inString:
		case c == '{' || c == '[':
			depth++
			deepest = max(deepest, depth)
		case c == '}' || c == ']':
			depth--
		}
	}
	return deepest
}

// checkAgainstReference also checks what must hold for any error.
func checkAgainstReference(t *testing.T, in []byte) {
	t.Helper()
	err := Check(in)
	if want := strictlyValid(in); (err == nil) != want {
		t.Fatalf("CheckJSON(%q) = %v, the reference says %v", in, err, want)
	}
	if err == nil {
		return
	}
	var e *Error
	if !errors.As(err, &e) {
		t.Fatalf("%T is no *JSONError", err)
	}
	if e.Offset < 0 || e.Offset > len(in) || e.Line < 1 || e.Column < 1 || e.Column > e.Offset+1 || e.Reason == "" {
		t.Fatalf("CheckJSON(%q): impossible place %+v", in, e)
	}
	if text := err.Error(); !utf8.ValidString(text) || strings.ContainsAny(text, "\n\r\x00") {
		t.Fatalf("CheckJSON(%q): unfit text %q", in, text)
	}
}

var seedTexts = []string{
	`{"v":4,"channel_values":{"messages":[{"role":"user","content":"hé \"llo\"\n"},{"role":"ai","n":-1.5e+10}]}}`,
	`{"a":{"b":[1,2,{"c":null,"d":true,"e":false}]},"\u0061b":"\ud83d\ude00","😀":"\udc00"}`,
	`[0,-0.1,1e5,"",{},[],{"a":1,"b":2,"\u0062c":3}]`,
	`{"a":1,"b":2,"c":3,"d":4,"e":5,"f":6,"g":7,"h":8,"i":9,"j":10,"k":11,"l":12,"m":13,"n":14,"o":15,"p":16,"q":17,"r":18}`,
	"{\n    \"pretty\": [\n        1,\n        \"日本語テキスト\"\n    ]\n}\n",
}

// mutateJSON changes a text in ways that often leave it valid.
func mutateJSON(r *rand.Rand, in []byte) []byte {
	out := slices.Clone(in)
	for range 1 + r.IntN(3) {
		i, j := r.IntN(len(out)+1), r.IntN(len(out)+1)
		switch r.IntN(6) {
		case 0:
			out = slices.Delete(out, min(i, j), max(i, j))
		case 1:
			out = slices.Insert(out, i, slices.Clone(out[min(i, j):max(i, j)])...)
		case 2:
			if i < len(out) {
				out[i] = byte(r.IntN(256))
			}
		case 3, 4:
			pieces := []string{`"a"`, `\u0061`, "é", "\xff", "{", "}", "[", "]", ",", ":", " ", "0", "-", "e", ".", `"`, `\`, "null", `"a":1,`, `\ud83d`, "\t"}
			out = slices.Insert(out, i, []byte(pieces[r.IntN(len(pieces))])...)
		case 5:
			if i < len(out) && j < len(out) {
				out[i] = out[j]
			}
		}
	}
	return out
}

func TestCheckJSONAgrees(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	var valid, strict int
	for range 60_000 {
		in := mutateJSON(r, []byte(seedTexts[r.IntN(len(seedTexts))]))
		checkAgainstReference(t, in)
		if json.Valid(in) {
			valid++
			if Check(in) != nil {
				strict++
			}
		}
	}
	if valid < 1000 || strict < 100 {
		t.Errorf("too few interesting texts: %d valid, %d of them refused", valid, strict)
	}
}

// TestCheckJSONManyKeys fills objects across every size at which the key set
// changes, with a duplicate at the end.
func TestCheckJSONManyKeys(t *testing.T) {
	for n := range 400 {
		var b strings.Builder
		b.WriteByte('{')
		for i := range n {
			key := fmt.Sprintf("key%d", i)
			if i%7 == 3 {
				key = fmt.Sprintf(`\u006bey%d`, i)
			}
			fmt.Fprintf(&b, `"%s":{"x":1,"key1":[]},`, key)
		}
		good := b.String() + `"end":0}`
		if err := Check([]byte(good)); err != nil {
			t.Fatalf("%d keys: %v", n, err)
		}
		if n > 0 {
			bad := b.String() + fmt.Sprintf(`"key%d":0}`, n/2)
			var got *Error
			errors.As(Check([]byte(bad)), &got)
			if got == nil || got.Offset != b.Len() {
				t.Fatalf("%d keys: duplicate not found: %v", n, got)
			}
		}
	}
}

// TestCheckJSONLinear finds quadratic work: a large object, then many small
// ones that must not pay for its table.
func TestCheckJSONLinear(t *testing.T) {
	var b bytes.Buffer
	b.WriteString(`[{"first":0`)
	for i := range 200_000 {
		fmt.Fprintf(&b, `,"k%d":0`, i)
	}
	b.WriteByte('}')
	for range 20_000 {
		b.WriteString(`,{"a":0,"b":0,"c":0,"d":0,"e":0,"f":0,"g":0,"h":0,"i":0,"j":0,"k":0,"l":0,"m":0,"n":0,"o":0,"p":0,"q":0}`)
	}
	b.WriteByte(']')
	start := time.Now()
	if err := Check(b.Bytes()); err != nil {
		t.Fatal(err)
	}
	if took := time.Since(start); took > time.Minute { // hours, if the work is quadratic
		t.Errorf("took %v for %d bytes", took, b.Len())
	}
}

func TestCheckJSONAllocs(t *testing.T) {
	in := chatState(64 << 10)
	allocs := testing.AllocsPerRun(100, func() {
		if err := Check(in); err != nil {
			t.Fatal(err)
		}
	})
	if allocs >= 1 && !poolsForget() {
		t.Errorf("CheckJSON allocates %v times", allocs)
	}
}

// poolsForget reports whether sync.Pool drops items at random, as it does under
// the race detector.
func poolsForget() bool {
	var pool sync.Pool
	for range 64 {
		pool.Put(new(int))
		if pool.Get() == nil {
			return true
		}
	}
	return false
}

func TestJSONErrorText(t *testing.T) {
	secret := "hunter2"
	texts := []string{
		`{"password":"` + secret + "\x01\"}",
		`{"password":` + secret + `}`,
		`{"password":"` + secret + `" "x"}`,
		`{"n":"` + secret + `"}`,
		`{"when":"` + secret + `"}`,
		`{"blob":"` + secret + `!"}`,
		`{"quoted":"` + secret + `"}`,
		`{"number":"` + secret + `"}`,
		`{"n":123456789012345678901234567890}`,
		`{"any":1e999}`,
	}
	type target struct {
		Password string      `json:"password"`
		N        int         `json:"n"`
		When     time.Time   `json:"when"`
		Blob     []byte      `json:"blob"`
		Quoted   int         `json:"quoted,string"`
		Number   json.Number `json:"number"`
		Any      any         `json:"any"`
	}
	for _, in := range texts {
		err := Decode([]byte(in), new(target))
		if err == nil {
			t.Errorf("%q: no error", in)
			continue
		}
		for _, leak := range []string{secret, "123456789012345678901234567890", "1e999"} {
			if strings.Contains(err.Error(), leak) {
				t.Errorf("%q shows a value: %v", in, err)
			}
		}
	}
	long := strings.Repeat(`{"`+strings.Repeat("é", 100)+`":`, 900)
	if text := Check([]byte(long)).Error(); len(text) > 1000 || !utf8.ValidString(text) {
		t.Errorf("unfit text: %q", text)
	}
	got := Check([]byte("{\"a\":[\n{\"b\":1,\"b\":2}]}")).Error()
	want := `JSON line 2, column 8 (byte 14), at "/a/0": duplicate key "b"`
	if got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
}

// The types below cover the cases of DecodeStrict.

type strictInner struct {
	Kind  string          `json:"kind"`
	Count int8            `json:"count"`
	Raw   json.RawMessage `json:"raw"`
}

type strictEmbedded struct {
	Deep  string
	Shade string `json:"shade"`
}

type strictDoc struct {
	strictEmbedded
	*strictOther
	Name   string                 `json:"name"`
	Inner  *strictInner           `json:"inner"`
	List   []strictInner          `json:"list"`
	Map    map[string]strictInner `json:"map"`
	ByID   map[int]bool           `json:"by_id"`
	Any    any                    `json:"any"`
	When   time.Time              `json:"when"`
	Text   strictText             `json:"text"`
	Blob   []byte                 `json:"blob"`
	Pair   [2]float32             `json:"pair"`
	Num    json.Number            `json:"num"`
	Quoted uint16                 `json:"quoted,string"`
	Shade  int                    `json:"shade"`
	Hidden string                 `json:"-"`
	Dash   string                 `json:"-,"`
	Bad    string                 `json:"a\"b"`
	Chan   chan int               `json:"chan"`
	Nested strictNested           `json:"nested"`
	_      string                 // unexported fields are skipped
}

type strictOther struct{ Other bool }

// strictText accepts all but "bad".
type strictText string

func (s *strictText) UnmarshalText(b []byte) error {
	if string(b) == "bad" {
		return errors.New("bad text: bad")
	}
	*s = strictText("<" + string(b) + ">")
	return nil
}

// strictNested decodes itself with DecodeStrict.
type strictNested struct{ X int }

func (n *strictNested) UnmarshalJSON(b []byte) error {
	type plain strictNested
	return Decode(b, (*plain)(n))
}

func TestDecodeStrictRefuses(t *testing.T) {
	tests := []struct {
		in           string
		offset       int
		path, reason string
	}{
		{`{"name":"x"} x`, 13, "", "data after the value"},
		{`{"name":"x","name":"y"}`, 12, "", `duplicate key "name"`},
		{`{"Name":"x"}`, 1, "", `unknown field "Name": did you mean "name"?`},
		{`{"other":true}`, 1, "", `unknown field "other": did you mean "Other"?`},
		{`{"nope":"x"}`, 1, "", `unknown field "nope"`},
		{`{"Hidden":"x"}`, 1, "", `unknown field "Hidden"`},
		{`{"private":"x"}`, 1, "", `unknown field "private"`},
		{`{"strictEmbedded":{}}`, 1, "", `unknown field "strictEmbedded"`},
		{`{"inner":{"\u004bind":"x"}}`, 10, "/inner", `unknown field "Kind": did you mean "kind"?`},
		{`{"inner":{"` + "\u212a" + `ind":"x"}}`, 10, "/inner", "unknown field \"\u212aind\": did you mean \"kind\"?"},
		{`{"list":[{},{"kinds":1}]}`, 13, "/list/1", `unknown field "kinds"`},
		{`{"map":{"k/":{"kinds":1}}}`, 14, "/map/k~1", `unknown field "kinds"`},
		{`{"inner":{"kind":5}}`, 17, "/inner/kind", "expected a string, got a number"},
		{`{"inner":{"count": "5"}}`, 19, "/inner/count", "expected a number, got a string"},
		{`{"inner":{"count":5.0}}`, 18, "/inner/count", "expected an integer without fraction or exponent"},
		{`{"inner":{"count":200}}`, 18, "/inner/count", "number out of range for int8"},
		{`{"inner":[]}`, 9, "/inner", "expected an object, got an array"},
		{`{"list":{}}`, 8, "/list", "expected an array, got an object"},
		{`{"list":[null,true]}`, 14, "/list/1", "expected an object, got a boolean"},
		{`{"map":"x"}`, 7, "/map", "expected an object, got a string"},
		{`{"by_id":{"1":1}}`, 14, "/by_id/1", "expected a boolean, got a number"},
		{`{"by_id":{"x":true}}`, 10, "/by_id", "key is not a valid int"},
		{`{"by_id":{"+1":true}}`, 10, "/by_id", "key is not a valid int"},
		{`{"when":"today"}`, 8, "/when", "not a valid time.Time"},
		{`{"text":"bad"}`, 8, "/text", "not a valid jsontext.strictText"},
		{`{"text":[]}`, 8, "/text", "expected a string, got an array"},
		{`{"blob":"*"}`, 8, "/blob", "expected base64 text"},
		{`{"pair":[1,2e39]}`, 11, "/pair/1", "number out of range for float32"},
		{`{"num":"x"}`, 7, "/num", "expected a number in the string"},
		{`{"num":"1 "}`, 7, "/num", "expected a number in the string"},
		{`{"num":true}`, 7, "/num", "expected a number, got a boolean"},
		{`{"quoted":1}`, 10, "/quoted", "expected a string, got a number"},
		{`{"quoted":"x"}`, 10, "/quoted", "expected a JSON scalar in the string"},
		{`{"quoted":" 1"}`, 10, "/quoted", "expected a JSON scalar in the string"},
		{`{"quoted":"-1"}`, 10, "/quoted", "number out of range for uint16 in the string"},
		{`{"shade":"x"}`, 9, "/shade", "expected a number, got a string"},
		{`{"chan":1}`, 8, "/chan", "cannot be read into chan int"},
		{`{"Other":true}`, 1, "", `field "Other" cannot be set`},
		{`{"any":[1e999]}`, 7, "/any", "a number in this value is out of range"},
		{`{"nested": {"x":1}}`, 12, "/nested", `unknown field "x": did you mean "X"?`},
		{`{"nested": {"X":""}}`, 16, "/nested/X", "expected a number, got a string"},
		{`[]`, 0, "", "expected an object, got an array"},
	}
	for _, test := range tests {
		var doc strictDoc
		var got *Error
		if err := Decode([]byte(test.in), &doc); !errors.As(err, &got) {
			t.Errorf("DecodeStrict(%s) = %v, want a *JSONError", test.in, err)
			continue
		}
		if got.Offset != test.offset || got.Path != test.path || got.Reason != test.reason {
			t.Errorf("DecodeStrict(%s)\n got %d %q %s\nwant %d %q %s", test.in,
				got.Offset, got.Path, got.Reason, test.offset, test.path, test.reason)
		}
	}
}

func TestDecodeStrictNoPointer(t *testing.T) {
	var wrong *json.InvalidUnmarshalError
	for _, v := range []any{nil, 1, strictDoc{}, (*strictDoc)(nil)} {
		if err := Decode([]byte(`{}`), v); !errors.As(err, &wrong) {
			t.Errorf("DecodeStrict into %T: %v", v, err)
		}
	}
}

var strictGoodDocs = []string{
	`{}`, `null`, ` { } `,
	`{"name":"a\u00e9\ud800\n","Deep":"d","shade":7,"-":"dash","Bad":"b"}`,
	`{"inner":{"kind":"k","count":-128,"raw": {"Kind":[1, 2],"x":1e999} }}`,
	`{"inner":null,"list":null,"map":null,"any":null,"when":null,"text":null,"blob":null,"name":null,"quoted":null,"num":null,"pair":null,"chan":null}`,
	`{"inner":{"raw":null}}`,
	`{"list":[],"map":{},"by_id":{},"pair":[],"blob":""}`,
	`{"list":[{"kind":"1"},null,{"raw":[]}],"map":{"a":{"count":1},"b":{}},"by_id":{"-5":true,"7":false}}`,
	`{"any":{"Kind":[1,"x",null,{"a":1.5}]},"when":"2026-01-02T03:04:05Z","text":"hi\u0021"}`,
	`{"blob":"AQID","pair":[1.5,2,"ignored"],"num":12345678901234567890,"quoted":"65535"}`,
	`{"blob":[1,2,3],"num":"-1.5e3","nested":{"X":3}}`,
}

func TestDecodeStrictAgrees(t *testing.T) {
	for _, in := range strictGoodDocs {
		got := strictDoc{Name: "kept", Pair: [2]float32{8, 9}, Num: "1", Quoted: 3}
		want := got
		if err := Decode([]byte(in), &got); err != nil {
			t.Errorf("DecodeStrict(%s): %v", in, err)
		}
		if err := json.Unmarshal([]byte(in), &want); err != nil {
			t.Errorf("json.Unmarshal(%s): %v", in, err)
		}
		if !reflect.DeepEqual(got, want) {
			t.Errorf("%s\n got %+v\nwant %+v", in, got, want)
		}
	}
}

func TestDecodeStrictInterface(t *testing.T) {
	inner := &strictInner{Count: 3}
	doc := struct{ Params any }{inner}
	if err := Decode([]byte(`{"Params":{"kind":"x"}}`), &doc); err != nil || inner.Kind != "x" || inner.Count != 3 {
		t.Errorf("%v, %+v", err, inner)
	}
	var got *Error
	if !errors.As(Decode([]byte(`{"Params":{"Kind":"x"}}`), &doc), &got) || got.Path != "/Params" {
		t.Errorf("got %v", got)
	}
	var loop any
	loop = &loop
	_ = Decode([]byte(`{}`), loop)
}

// TestFieldsOf compares the fields found with those that encoding/json writes.
func TestFieldsOf(t *testing.T) {
	type leaf struct{ A, B int }
	type Left struct {
		leaf
		C int
	}
	type Right struct {
		leaf
		C int `json:"C"`
		D int `json:"d"`
	}
	type tagged struct {
		X int `json:"B"`
		Y int
	}
	type Named int
	types := []any{
		strictEmbedded{}, strictInner{}, Left{}, Right{},
		struct {
			Left
			Right
		}{},
		struct {
			Left
			Right
			A string
		}{},
		struct {
			leaf
			tagged
		}{},
		struct {
			leaf `json:"leaf"`
			Named
			E int `json:"é ü-x,omitempty,string"`
			F int `json:",string"`
			G int `json:"bad\"name"`
			H int `json:"bad,"`
			h int
		}{E: 1},
		struct {
			*Left
			P *int
		}{Left: &Left{}},
	}
	for _, v := range types {
		text, err := json.Marshal(v)
		if err != nil {
			t.Fatal(err)
		}
		var want map[string]any
		if err := json.Unmarshal(text, &want); err != nil {
			t.Fatal(err)
		}
		fields := fieldsOf(reflect.TypeOf(v))
		if got := slices.Sorted(maps.Keys(fields)); !slices.Equal(got, slices.Sorted(maps.Keys(want))) {
			t.Errorf("%T: got %v, want %s", v, got, text)
		}
		for name, field := range fields {
			isText := reflect.TypeOf(v).FieldByIndex(field.index).Type.Kind() == reflect.String
			if _, inString := want[name].(string); !isText && inString != field.quoted {
				t.Errorf("%T, %s: quoted %v", v, name, field.quoted)
			}
		}
	}
}

func TestCanonicalJSON(t *testing.T) {
	tests := []struct{ name, in, want string }{
		// RFC 8785, sections 3.2.2 and 3.2.3.
		{
			"section 3.2.3",
			`{
       "numbers": [333333333.33333329, 1E30, 4.50,
                   2e-3, 0.000000000000000000000000001],
       "string": "\u20ac$\u000F\u000aA'\u0042\u0022\u005c\\\"\/",
       "literals": [null, true, false]
     }`,
			`{"literals":[null,true,false],"numbers":[333333333.3333333,1e+30,4.5,0.002,1e-27],"string":"€$\u000f\nA'B\"\\\\\"/"}`,
		},
		{
			"sorting",
			`{
       "\u20ac": "Euro Sign",
       "\r": "Carriage Return",
       "\ufb33": "Hebrew Letter Dalet With Dagesh",
       "1": "One",
       "\ud83d\ude00": "Emoji: Grinning Face",
       "\u0080": "Control",
       "\u00f6": "Latin Small Letter O With Diaeresis"
     }`,
			`{"\r":"Carriage Return","1":"One","` + "\u0080" + `":"Control","ö":"Latin Small Letter O With Diaeresis","€":"Euro Sign","😀":"Emoji: Grinning Face","` + "\ufb33" + `":"Hebrew Letter Dalet With Dagesh"}`,
		},
		{"nested", `{"b":{"z":[{"y":1,"x":[]},{}],"a":{}}, "a" : [ ] }`, `{"a":[],"b":{"a":{},"z":[{"x":[],"y":1},{}]}}`},
		{"prefixes", `{"aa":1,"a":2,"":3,"a\u0000":4}`, `{"":3,"a":2,"a\u0000":4,"aa":1}`},
		{"escapes", `"\u0008\u0009\u000a\u000c\u000d\u0000\u001f\u007f\u2028\/"`, `"\b\t\n\f\r\u0000\u001f` + "\u007f\u2028" + `/"`},
		{"lone surrogates", `{"\uDC00":1,"\uFFFF":2,"\ud83d\ude00":3,"\uD83D":4,"\ud83dx":5}`, "{\"\\ud83d\":4,\"\\ud83dx\":5,\"😀\":3,\"\\udc00\":1,\"\uffff\":2}"},
		{"scalar", ` "x" `, `"x"`},
		{"minus zero", `[-0,-0.0,0e5,-0e-9]`, `[0,0,0,0]`},
		{"big integers", `[9007199254740992,9007199254740993,-9007199254740993,9223372036854775808,123456789012345678901234567890]`,
			`[9007199254740992,9007199254740993,-9007199254740993,9223372036854775808,123456789012345678901234567890]`},
		{"big, but not integers", `[9007199254740993.0,1e20,1e21,12345678901234567890e0]`, `[9007199254740992,100000000000000000000,1e+21,12345678901234567000]`},
		{"integer beyond float64", "1" + strings.Repeat("0", 400), "1" + strings.Repeat("0", 400)},
		{"underflow", `1e-400`, `0`},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			got, err := Canonical([]byte(test.in))
			if err != nil || string(got) != test.want {
				t.Errorf("%v\n got %s\nwant %s", err, got, test.want)
			}
			again, err := Canonical(got)
			if err != nil || !bytes.Equal(again, got) {
				t.Errorf("not stable: %v, %s", err, again)
			}
		})
	}
	for in, offset := range map[string]int{`{"a":1e400}`: 5, `[1,-1.5E999,1e999]`: 3, `{"a":1,"a":1}`: 7, `[`: 1} {
		var got *Error
		if _, err := Canonical([]byte(in)); !errors.As(err, &got) || got.Offset != offset {
			t.Errorf("CanonicalJSON(%s): %v", in, err)
		}
	}
}

// TestCanonicalNumbers checks the samples of RFC 8785, appendix B.
func TestCanonicalNumbers(t *testing.T) {
	samples := map[uint64]string{
		0x0000000000000000: "0",
		0x8000000000000000: "0",
		0x0000000000000001: "5e-324",
		0x8000000000000001: "-5e-324",
		0x7fefffffffffffff: "1.7976931348623157e+308",
		0xffefffffffffffff: "-1.7976931348623157e+308",
		0x4340000000000000: "9007199254740992",
		0xc340000000000000: "-9007199254740992",
		0x4430000000000000: "295147905179352830000",
		0x44b52d02c7e14af5: "9.999999999999997e+22",
		0x44b52d02c7e14af6: "1e+23",
		0x44b52d02c7e14af7: "1.0000000000000001e+23",
		0x444b1ae4d6e2ef4e: "999999999999999700000",
		0x444b1ae4d6e2ef4f: "999999999999999900000",
		0x444b1ae4d6e2ef50: "1e+21",
		0x3eb0c6f7a0b5ed8c: "9.999999999999997e-7",
		0x3eb0c6f7a0b5ed8d: "0.000001",
		0x41b3de4355555553: "333333333.3333332",
		0x41b3de4355555554: "333333333.33333325",
		0x41b3de4355555555: "333333333.3333333",
		0x41b3de4355555556: "333333333.3333334",
		0x41b3de4355555557: "333333333.33333343",
		0xbecbf647612f3696: "-0.0000033333333333333333",
		0x43143ff3c1cb0959: "1424953923781206.2",
	}
	for ieee, want := range samples {
		f := math.Float64frombits(ieee)
		if got := string(appendECMANumber(nil, f)); got != want {
			t.Errorf("%016x: got %s, want %s", ieee, got, want)
		}
		in := strconv.FormatFloat(f, 'e', 20, 64)
		if got, err := Canonical([]byte(in)); err != nil || string(got) != want {
			t.Errorf("%s: got %s, %v, want %s", in, got, err, want)
		}
	}
}

// TestCanonicalKeepsMeaning compares a text with its canonical form, as
// encoding/json reads them, and the canonical forms of texts that are equal but
// written differently.
func TestCanonicalKeepsMeaning(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4))
	for range 5000 {
		in := mutateJSON(r, []byte(seedTexts[r.IntN(len(seedTexts))]))
		out, err := Canonical(in)
		if err != nil {
			continue
		}
		var a, b any
		if json.Unmarshal(in, &a) != nil {
			continue // a number that is too large for float64, which we keep
		}
		if err := json.Unmarshal(out, &b); err != nil || !reflect.DeepEqual(a, b) {
			t.Fatalf("%s\nbecame %s (%v)", in, out, err)
		}
		var spaced bytes.Buffer
		if err := json.Indent(&spaced, in, "", "  "); err != nil {
			t.Fatal(err)
		}
		if again, err := Canonical(spaced.Bytes()); err != nil || !bytes.Equal(again, out) {
			t.Fatalf("%s\nindented becomes %s, else %s", in, again, out)
		}
	}
}

func FuzzCheckJSON(f *testing.F) {
	for _, s := range seedTexts {
		f.Add([]byte(s))
	}
	f.Add([]byte(`{"\ud800":1,"\udfff":2}`))
	f.Add([]byte("\xef\xbb\xbf1"))
	f.Fuzz(func(t *testing.T, in []byte) {
		checkAgainstReference(t, in)
		out, err := Canonical(in)
		if err != nil {
			return
		}
		if !strictlyValid(out) {
			t.Fatalf("CanonicalJSON(%q) = %q, which is not strict", in, out)
		}
		if again, err := Canonical(out); err != nil || !bytes.Equal(again, out) {
			t.Fatalf("CanonicalJSON(%q) = %q, and of that %q (%v)", in, out, again, err)
		}
	})
}

func FuzzDecodeStrict(f *testing.F) {
	for _, s := range strictGoodDocs {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, in []byte) {
		var got, want strictDoc
		err := Decode(in, &got)
		if err == nil {
			// Everything that we accept, encoding/json accepts and reads the
			// same.
			if err := json.Unmarshal(in, &want); err != nil {
				t.Fatalf("json.Unmarshal(%q): %v", in, err)
			}
			if !reflect.DeepEqual(got, want) {
				t.Fatalf("%q\n got %+v\nwant %+v", in, got, want)
			}
			return
		}
		var e *Error
		if !errors.As(err, &e) || e.Offset < 0 || e.Offset > len(in) || !utf8.ValidString(err.Error()) {
			t.Fatalf("DecodeStrict(%q): %v", in, err)
		}
		// Everything that we refuse, encoding/json refuses too, or the reason
		// is one of ours.
		strict := json.NewDecoder(bytes.NewReader(in))
		strict.DisallowUnknownFields()
		ours := []string{"did you mean", "key is not a valid int", "UTF-8", "duplicate", "data after", "nested more",
			"in the string"}
		if strict.Decode(&want) == nil && !slices.ContainsFunc(ours, func(s string) bool { return strings.Contains(e.Reason, s) }) {
			t.Fatalf("DecodeStrict(%q): %v, but encoding/json accepts it", in, err)
		}
	})
}

// chatState makes a state like a chat agent's, of about n bytes.
func chatState(n int) []byte {
	words := strings.Fields("the agent called tool search and found \"three\" results for naïve query — see https://example.org/a?b=c then\nsummarised them 日本 in plain words with code `x := 1` and tabs\t etc")
	r := rand.New(rand.NewPCG(5, 6))
	type message struct {
		ID      string         `json:"id"`
		Role    string         `json:"role"`
		Content string         `json:"content"`
		Usage   map[string]int `json:"usage,omitempty"`
	}
	var messages []message
	for size := 0; size < n; {
		var b strings.Builder
		for range 20 + r.IntN(120) {
			b.WriteString(words[r.IntN(len(words))])
			b.WriteByte(" \n"[r.IntN(12)/11])
		}
		m := message{ID: fmt.Sprintf("msg_%016x", r.Uint64()), Role: []string{"user", "assistant", "tool"}[r.IntN(3)], Content: b.String()}
		if r.IntN(2) == 0 {
			m.Usage = map[string]int{"input_tokens": r.IntN(9000), "output_tokens": r.IntN(900)}
		}
		messages = append(messages, m)
		size += b.Len() + 120
	}
	text, err := json.Marshal(map[string]any{"v": 4, "thread_id": "t-1", "channel_values": map[string]any{"messages": messages}})
	if err != nil {
		panic(err)
	}
	return text
}

// tableState makes a text of numbers and short keys, the hard case for the
// scanner.
func tableState(n int) []byte {
	var rows []map[string]any
	r := rand.New(rand.NewPCG(7, 8))
	for size := 0; size < n; size += 70 {
		rows = append(rows, map[string]any{"x": r.Float64(), "y": r.IntN(1000), "ok": true, "name": strconv.Itoa(r.IntN(1e6)), "none": nil})
	}
	text, err := json.Marshal(rows)
	if err != nil {
		panic(err)
	}
	return text
}

func wideKeys(n int) []byte {
	m := map[string]int{}
	for i := 0; i < n/16; i++ {
		m[fmt.Sprintf("key-%08d", i)] = i % 10
	}
	text, err := json.Marshal(m)
	if err != nil {
		panic(err)
	}
	return text
}

func BenchmarkCheckJSON(b *testing.B) {
	texts := []struct {
		name string
		in   []byte
	}{
		{"chat2KiB", chatState(2 << 10)},
		{"chat64KiB", chatState(64 << 10)},
		{"chat1MiB", chatState(1 << 20)},
		{"blob1MiB", []byte(`{"b":"` + base64.StdEncoding.EncodeToString(make([]byte, 3<<18)) + `"}`)},
		{"japanese1MiB", []byte(`{"b":"` + strings.Repeat("日本語のテキスト、", 1<<20/27) + `"}`)},
		{"table1MiB", tableState(1 << 20)},
		{"keys1MiB", wideKeys(1 << 20)},
	}
	for _, text := range texts {
		b.Run(text.name+"/ours", func(b *testing.B) {
			b.SetBytes(int64(len(text.in)))
			b.ReportAllocs()
			for b.Loop() {
				if err := Check(text.in); err != nil {
					b.Fatal(err)
				}
			}
		})
		b.Run(text.name+"/json.Valid", func(b *testing.B) {
			b.SetBytes(int64(len(text.in)))
			for b.Loop() {
				if !json.Valid(text.in) {
					b.Fatal("invalid")
				}
			}
		})
	}
}

func BenchmarkDecodeStrict(b *testing.B) {
	type envelope struct {
		Kind  string          `json:"kind"`
		Seq   int64           `json:"seq"`
		State json.RawMessage `json:"state"`
	}
	in := []byte(`{"kind":"checkpoint","seq":12,"state":` + string(chatState(1<<20)) + `}`)
	b.Run("ours", func(b *testing.B) {
		b.SetBytes(int64(len(in)))
		for b.Loop() {
			var e envelope
			if err := Decode(in, &e); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("json.Unmarshal", func(b *testing.B) {
		b.SetBytes(int64(len(in)))
		for b.Loop() {
			var e envelope
			if err := json.Unmarshal(in, &e); err != nil {
				b.Fatal(err)
			}
		}
	})
}

func BenchmarkCanonicalJSON(b *testing.B) {
	in := chatState(64 << 10)
	b.SetBytes(int64(len(in)))
	for b.Loop() {
		if _, err := Canonical(in); err != nil {
			b.Fatal(err)
		}
	}
}
