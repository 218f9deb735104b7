package jsontext

import (
	"bytes"
	"flag"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// places is a second check of where the values of a valid text are.
type places struct {
	in     []byte
	p      int
	values map[int]place // by their first byte
	arrays int
}

type place struct{ end, depth, array, index int } // array is 0 outside of any array

func placesOf(in []byte) map[int]place {
	r := places{in: in, values: map[int]place{}}
	r.value(0, 0, 0)
	return r.values
}

func (r *places) space() {
	for r.p < len(r.in) && strings.IndexByte(" \t\r\n", r.in[r.p]) >= 0 {
		r.p++
	}
}

func (r *places) text() {
	for r.p++; r.in[r.p] != '"'; r.p++ {
		if r.in[r.p] == '\\' {
			r.p++
		}
	}
	r.p++
}

func (r *places) value(depth, array, index int) {
	r.space()
	start := r.p
	switch r.in[r.p] {
	case '"':
		r.text()
	case '[', '{':
		r.container(depth + 1)
	default:
		for r.p < len(r.in) && strings.IndexByte(",]} \t\r\n", r.in[r.p]) < 0 {
			r.p++
		}
	}
	r.values[start] = place{r.p, depth, array, index}
}

func (r *places) container(depth int) {
	object, id := r.in[r.p] == '{', 0
	if !object {
		r.arrays++
		id = r.arrays
	}
	for i := 0; ; i++ {
		r.p++
		if r.space(); r.in[r.p] == '}' || r.in[r.p] == ']' {
			break
		}
		if object {
			r.text()
			r.space()
			r.p++
		}
		r.value(depth, id, i)
		if r.space(); r.in[r.p] != ',' {
			break
		}
	}
	r.p++
}

// checkMap compares a map with the second check.
func checkMap(t *testing.T, in []byte, m *Map) {
	t.Helper()
	places := placesOf(in)
	for i, mark := range m.marks {
		at, known := places[int(mark.start)]
		if !known || at.depth != mark.depth() || mark.void() {
			t.Fatalf("%q\nmark %d: %+v is no value of the depth %d", in, i, at, mark.depth())
		}
		if !mark.run() && (at.end != int(mark.end) || strings.IndexByte(`"[{`, in[mark.start]) < 0) {
			t.Fatalf("%q\nmark %d: the value at %d ends at %d, not %d", in, i, mark.start, at.end, mark.end)
		}
		if mark.run() {
			next, known := places[int(mark.end)]
			if !known || at.array == 0 || next.array != at.array || next.index-at.index != mark.elements() {
				t.Fatalf("%q\nmark %d: %+v to %+v is no run of %d elements", in, i, at, next, mark.elements())
			}
		}
		if i == 0 {
			continue
		}
		if last := m.marks[i-1]; last.start > mark.start || last.start == mark.start && (!last.run() || mark.run()) {
			t.Fatalf("%q\nmark %d is out of order", in, i)
		}
	}
}

// editJSON makes a text from parts of another text and from new parts, and returns which parts are copied.
func editJSON(r *rand.Rand, base []byte) (out []byte, same []Copy) {
	pieces := []string{`"a"`, `\u0061`, "é", "\xff", "{", "}", "[", "]", ",", ":", " ", "0", "-", "e", `"`, `\`, "null", `"a":1,`, `{"a":0},`, `[0,0,0,0],`, `"bbbbbbbb",`, "\t"}
	cut := func() int { // mostly at the beginning or the end of a token
		p := r.IntN(len(base) + 1)
		if r.IntN(4) == 0 {
			return p
		}
		if i := bytes.IndexAny(base[p:], ",[]{}\""); i >= 0 {
			return p + i + r.IntN(2)
		}
		return len(base)
	}
	at := 0
	for range 1 + r.IntN(3) {
		p, q := cut(), cut()
		switch r.IntN(5) {
		case 0: // removes a part
			p, q = max(at, min(p, q)), max(at, p, q)
			out, same = appendCopy(out, same, base, at, p)
			at = q
		case 1: // inserts a part from elsewhere
			p = max(at, p)
			out, same = appendCopy(out, same, base, at, p)
			from := cut()
			out, same = appendCopy(out, same, base, min(from, q), max(from, q))
			at = p
		case 2, 3:
			p = max(at, p)
			out, same = appendCopy(out, same, base, at, p)
			out = append(out, pieces[r.IntN(len(pieces))]...)
			at = p
		case 4: // changes a counter
			p = max(at, p)
			if i := bytes.IndexAny(base[p:], "0123456789"); i >= 0 {
				out, same = appendCopy(out, same, base, at, p+i)
				out = strconv.AppendInt(out, r.Int64N(2000), 10)
				at = p + i + 1
			}
		}
	}
	return appendCopy(out, same, base, at, len(base))
}

func appendCopy(out []byte, same []Copy, base []byte, from, to int) ([]byte, []Copy) {
	if from < to {
		same = append(same, Copy{At: len(out), From: from, Length: to - from})
	}
	return append(out, base[from:to]...), same
}

// randomJSON writes a value with keys that are easily duplicated.
func randomJSON(r *rand.Rand, out []byte, depth int) []byte {
	switch n := r.IntN(8); {
	case n < 3 && depth < 6:
		out = append(out, '[')
		for i := range r.IntN(9) {
			if i > 0 {
				out = append(out, []string{",", ", ", "\n,"}[r.IntN(3)]...)
			}
			out = randomJSON(r, out, depth+1)
		}
		return append(out, ']')
	case n < 5 && depth < 6:
		out = append(out, '{')
		for i, key := range r.Perm(5)[:r.IntN(5)] {
			if i > 0 {
				out = append(out, ',')
			}
			out = fmt.Appendf(out, `"%c":`, 'a'+key)
			out = randomJSON(r, out, depth+1)
		}
		return append(out, '}')
	case n < 6:
		return strconv.AppendInt(out, r.Int64N(1000), 10)
	}
	return append(out, []string{`""`, `"a long string, as they come"`, `"é \" \\ [{"`, "null", `"\u00e9"`, "-1.5e3"}[r.IntN(6)]...)
}

// agreesAfter checks a text after another one, and returns its map.
func agreesAfter(t *testing.T, base, text []byte, before *Map, same []Copy, spans spanLimits) *Map {
	t.Helper()
	for _, c := range same {
		if !bytes.Equal(text[c.At:c.At+c.Length], base[c.From:c.From+c.Length]) {
			t.Fatal("the test is wrong")
		}
	}
	got, err := checkAfter(text, before, same, spans)
	if want := Check(text); fmt.Sprint(err) != fmt.Sprint(want) {
		t.Fatalf("%q after %q\nsame %v\n got %v\nwant %v", text, base, same, err, want)
	}
	if err != nil {
		return nil
	}
	checkMap(t, text, got.Map)
	checkHops(t, text, got.Map)
	places, end := placesOf(text), 0
	for _, c := range got.Passed {
		if _, known := places[c.At]; !known || c.At < end || !bytes.Equal(text[c.At:c.At+c.Length], base[c.From:c.From+c.Length]) {
			t.Fatalf("%q after %q\npassed over %v", text, base, c)
		}
		end = c.At + c.Length
	}
	return got.Map
}

// checkHops walks through a text with its map. It checks that each value ends where the map says, and that each
// element is where the hops say.
func checkHops(t *testing.T, in []byte, m *Map) {
	t.Helper()
	places, hops := placesOf(in), m.Hops()
	for p := 0; p < len(in); p++ {
		at, known := places[p]
		if !known {
			continue
		}
		next, elements := hops.From(p, len(in)*2/3)
		switch there := places[next]; {
		case next == p || elements == 0 && next == at.end:
		case elements == 0 || next > len(in)*2/3 || there.array != at.array || there.index != at.index+elements:
			t.Fatalf("%q\nfrom %d to %d by %d elements", in, p, next, elements)
		}
	}
}

var texts = flag.Int("texts", 1500, "how many texts TestCheckJSONAfterAgrees changes; make fuzz does 40000")

// TestCheckJSONAfterAgrees changes texts repeatedly, and compares each check with a check of the whole text. The
// same seed gives the same texts.
func TestCheckJSONAfterAgrees(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 1))
	var good, bad, passed int
	for n := range *texts {
		spans := spanLimits{1 + r.IntN(12), 1 + r.IntN(24)}
		base := randomJSON(r, nil, 0)
		if n%10 == 0 {
			base = []byte(seedTexts[r.IntN(len(seedTexts))])
		}
		m := agreesAfter(t, nil, base, nil, nil, spans)
		for range 6 {
			text, same := editJSON(r, base)
			next := agreesAfter(t, base, text, m, same, spans)
			if next == nil {
				bad++
				continue
			}
			good++
			if again, _ := checkAfter(text, m, same, spans); len(again.Passed) > 0 {
				passed++
			}
			base, m = text, next
			if len(base) > 3000 || len(base) == 0 {
				break
			}
		}
	}
	t.Logf("%d good, %d of them passed over something, %d bad", good, passed, bad)
	if passed < *texts/4 || bad < *texts/4 {
		t.Error("too few interesting texts")
	}
}

func FuzzCheckJSONAfter(f *testing.F) {
	f.Add(uint64(1), 4, 8)
	f.Add(uint64(2), 1, 1)
	f.Add(uint64(3), 30, 2)
	f.Fuzz(func(t *testing.T, seed uint64, value, run int) {
		if value < 1 || run < 1 {
			return
		}
		r := rand.New(rand.NewPCG(seed, 1))
		base := randomJSON(r, nil, 0)
		m := agreesAfter(t, nil, base, nil, nil, spanLimits{value, run})
		for range 20 {
			text, same := editJSON(r, base)
			if next := agreesAfter(t, base, text, m, same, spanLimits{value, run}); next != nil {
				base, m = text, next
			}
			if len(base) > 3000 {
				return
			}
		}
	})
}

// TestCheckJSONAfterIsShort: of a growing state, little is read again.
func TestCheckJSONAfterIsShort(t *testing.T) {
	base := chatState(300_000)
	checked, err := CheckAfter(base, nil, nil)
	if err != nil || len(checked.Passed) > 0 {
		t.Fatal(checked.Passed, err)
	}
	for n := range 50 {
		end := bytes.LastIndexByte(base, ']')
		text := fmt.Appendf(nil, `{"step":%d,`, n*n*n)
		same := []Copy{{At: len(text), From: bytes.Index(base, []byte(`"channel_values"`))}}
		same[0].Length = end - same[0].From
		text = append(text, base[same[0].From:end]...)
		text = fmt.Appendf(text, `,{"role":"user","content":"%s"}`, strings.Repeat("new words ", 50))
		same = append(same, Copy{At: len(text), From: end, Length: len(base) - end})
		text = append(text, base[end:]...)
		base = text
		checked, err = CheckAfter(text, checked.Map, same)
		if err != nil {
			t.Fatal(err)
		}
		checkMap(t, text, checked.Map)
		over := 0
		for _, c := range checked.Passed {
			over += c.Length
		}
		if left := len(text) - over; left > 6000 || len(checked.Passed) > 2 {
			t.Fatalf("%d bytes were read again in %d parts", left, len(checked.Passed)+1)
		}
		if most := len(text) / 50; checked.Map.Size() > most {
			t.Fatalf("the map takes %d bytes, more than %d", checked.Map.Size(), most)
		}
	}
}

// TestCheckJSONAfterDeep: a copied part that was allowed can be too deep in another place.
func TestCheckJSONAfterDeep(t *testing.T) {
	inner := strings.Repeat("[", MaxDepth-10) + strings.Repeat(`"0123456789",`, 20) + "1" + strings.Repeat("]", MaxDepth-10)
	base := []byte(`{"a":[` + inner + `,2,3,4,5,6,7,8]}`)
	spans := spanLimits{4, 4}
	m := agreesAfter(t, nil, base, nil, nil, spans)
	from, to := 6, len(base)-2
	for deeper := range 20 {
		for _, less := range []bool{false, true} {
			head := []byte(`{"b":[` + strings.Repeat("[", deeper))
			if less {
				head = []byte(`[` + strings.Repeat("[", deeper))
			}
			text := append(slices.Clone(head), base[from:to]...)
			text = append(text, strings.Repeat("]", deeper+1)...)
			if !less {
				text = append(text, '}')
			}
			agreesAfter(t, base, text, m, []Copy{{At: len(head), From: from, Length: to - from}}, spans)
		}
	}
}

// TestJSONMapIsBounded: a text of only brackets has no larger map than any other text.
func TestJSONMapIsBounded(t *testing.T) {
	nested := strings.Repeat("[", 900) + `"` + strings.Repeat("x", 1100) + `"` + strings.Repeat("]", 900)
	text := []byte("[" + strings.Repeat(nested+",", 300) + "0]")
	checked, err := CheckAfter(text, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	m := checked.Map
	if m.Size() > len(text)/20 {
		t.Errorf("the map of %d bytes takes %d", len(text), m.Size())
	}
	checkMap(t, text, m)
}

func BenchmarkCheckJSONAfter(b *testing.B) {
	base := chatState(512 << 10)
	checked, err := CheckAfter(base, nil, nil)
	if err != nil {
		b.Fatal(err)
	}
	end := bytes.LastIndexByte(base, ']')
	text := append(slices.Clone(base[:end]), `,{"role":"user","content":"new"}`...)
	same := []Copy{{Length: end}, {At: len(text), From: end, Length: len(base) - end}}
	text = append(text, base[end:]...)
	b.Run("first", func(b *testing.B) {
		b.SetBytes(int64(len(base)))
		b.ReportAllocs()
		for b.Loop() {
			_, _ = CheckAfter(base, nil, nil)
		}
	})
	b.Run("grown", func(b *testing.B) {
		b.SetBytes(int64(len(text)))
		b.ReportAllocs()
		for b.Loop() {
			if again, err := CheckAfter(text, checked.Map, same); err != nil || len(again.Passed) == 0 {
				b.Fatal(err)
			}
		}
	})
}
