package delta

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
)

// store plays the database: segments by number.
type store map[int64][]byte

// save encodes a state as the database does and returns it as the next base.
func (s store) save(t testing.TB, b *Base, state []byte) *Base {
	t.Helper()
	pieces, literal := b.Encode(state)
	id := int64(len(s) + 1)
	if len(literal) > 0 {
		s[id] = bytes.Clone(literal)
	}
	next := &Base{State: bytes.Clone(state), Sizes: map[int64]int64{}}
	for _, p := range pieces {
		if p.Segment == New {
			p.Segment = id
		}
		next.Pieces = append(next.Pieces, p)
		next.Sizes[p.Segment] = int64(len(s[p.Segment]))
	}
	s.check(t, next)
	return next
}

func (s store) check(t testing.TB, b *Base) {
	t.Helper()
	var got []byte
	for _, p := range b.Pieces {
		if p.Offset < 0 || p.Length <= 0 && len(b.State) > 0 || p.Offset+p.Length > int64(len(s[p.Segment])) {
			t.Fatalf("piece %v is outside its segment of %d bytes", p, len(s[p.Segment]))
		}
		got = append(got, s[p.Segment][p.Offset:p.Offset+p.Length]...)
	}
	if !bytes.Equal(got, b.State) {
		t.Fatalf("%d pieces give other bytes", len(b.Pieces))
	}
	if most := limit(len(b.State)); len(b.Pieces) > most {
		t.Fatalf("%d pieces for %d bytes, at most %d", len(b.Pieces), len(b.State), most)
	}
	held := int64(0)
	for _, size := range b.Sizes {
		held += size
	}
	if held > 3*int64(len(b.State))+spare+int64(len(b.State)) {
		t.Fatalf("a state of %d bytes holds segments of %d", len(b.State), held)
	}
}

func words(r *rand.Rand, n int) []byte {
	var b bytes.Buffer
	for b.Len() < n {
		fmt.Fprintf(&b, "%s ", vocabulary[r.IntN(len(vocabulary))])
		if r.IntN(9) == 0 {
			fmt.Fprintf(&b, "%d, ", r.IntN(100000))
		}
	}
	return b.Bytes()[:n]
}

var vocabulary = strings.Fields(`the agent reads a file and calls tool with arguments of some kind then it waits for an answer
	that may take long error nil return func if else state checkpoint byte message role user assistant content type text
	result true false null id name value list map key string number index line column path open close write flush sync`)

func random(r *rand.Rand, n int) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(r.Uint32())
	}
	return b
}

// histories are series of states, realistic and artificial ones.
func histories() map[string]func(r *rand.Rand, i int, last []byte) []byte {
	return map[string]func(*rand.Rand, int, []byte) []byte{
		"chat": func(r *rand.Rand, i int, last []byte) []byte {
			return appendMessage(r, i, last, 100+r.IntN(3000))
		},
		"compacting": func(r *rand.Rand, i int, last []byte) []byte {
			if len(last) > 100_000 {
				last = fmt.Appendf(nil, `{"step":1,"messages":[{"summary":%q},%s`, words(r, 500), last[len(last)-20_000:])
			}
			return appendMessage(r, i, last, 100+r.IntN(3000))
		},
		"edits": func(r *rand.Rand, i int, last []byte) []byte {
			if len(last) == 0 {
				return words(r, 100_000)
			}
			for range 1 + r.IntN(5) {
				at, n := r.IntN(len(last)), r.IntN(500)
				last = bytes.Join([][]byte{last[:at], words(r, r.IntN(600)), last[min(at+n, len(last)):]}, nil)
			}
			return last
		},
		"scattered": func(r *rand.Rand, i int, last []byte) []byte {
			if len(last) == 0 {
				return random(r, 200_000)
			}
			last = bytes.Clone(last)
			for range 1000 {
				last[r.IntN(len(last))]++
			}
			return last
		},
		"random":  func(r *rand.Rand, _ int, _ []byte) []byte { return random(r, r.IntN(100_000)) },
		"zeros":   func(r *rand.Rand, _ int, _ []byte) []byte { return make([]byte, r.IntN(100_000)) },
		"period":  func(r *rand.Rand, _ int, _ []byte) []byte { return bytes.Repeat(random(r, 1+r.IntN(90)), r.IntN(900)) },
		"shuffle": func(r *rand.Rand, _ int, last []byte) []byte { return shuffled(r, last) },
		"same": func(r *rand.Rand, _ int, last []byte) []byte {
			if len(last) == 0 {
				return words(r, 50_000)
			}
			return last
		},
	}
}

func appendMessage(r *rand.Rand, i int, last []byte, n int) []byte {
	body := []byte(`"messages":[]}`)
	if _, rest, found := bytes.Cut(last, []byte(",")); found {
		body = rest
	}
	body = body[:len(body)-2]
	return fmt.Appendf(nil, `{"step":%d,%s,{"role":"assistant","content":"%s"}]}`, i, body, words(r, n))
}

func shuffled(r *rand.Rand, last []byte) []byte {
	if len(last) == 0 {
		return words(r, 64*1024)
	}
	var out []byte
	for _, i := range r.Perm(len(last) / 512) {
		out = append(out, last[i*512:(i+1)*512]...)
	}
	return out
}

func TestHistoriesComeBack(t *testing.T) {
	for name, next := range histories() {
		t.Run(name, func(t *testing.T) {
			r, s := rand.New(rand.NewPCG(1, 2)), store{}
			var base *Base
			var state, before []byte
			for i := range 150 {
				before, state = state, next(r, i, state)
				base = s.save(t, base, state)
				wire := Wire(state, Compare(before, state, MaxOnWire))
				got, _, err := Apply(nil, before, wire)
				if err != nil || !bytes.Equal(got, state) {
					t.Fatalf("a change does not come back: %v", err)
				}
			}
		})
	}
}

func TestWhatIsStored(t *testing.T) {
	// The bytes of all segments and pieces, compared with the bytes of all
	// states.
	for name, least := range map[string]int{"chat": 30, "compacting": 12, "edits": 10, "same": 100} {
		r, s := rand.New(rand.NewPCG(1, 2)), store{}
		var base *Base
		var state []byte
		all, stored := 0, 0
		for i := range 300 {
			state = histories()[name](r, i, state)
			base = s.save(t, base, state)
			all += len(state)
			stored += 16 * len(base.Pieces)
		}
		for _, segment := range s {
			stored += len(segment)
		}
		t.Logf("%-10s %8d of %9d, 1/%d", name, stored, all, all/stored)
		if all < stored*least {
			t.Errorf("%s: %d bytes are stored of %d: not %d times smaller", name, stored, all, least)
		}
	}
}

// TestFoundAgain: content that was moved far, or comes after much new content,
// is found as well.
func TestFoundAgain(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4))
	a, b, c := random(r, 200_000), random(r, 200_000), random(r, 100_000)
	for name, state := range map[string][]byte{
		"moved": bytes.Join([][]byte{b, a}, nil), "after new": bytes.Join([][]byte{c, a, b}, nil), "between new": bytes.Join([][]byte{a, c, b[1000:], c}, nil),
		"cut": a[777:], "twice": bytes.Join([][]byte{a, a, b}, nil),
	} {
		base := bytes.Join([][]byte{a, b}, nil)
		fresh := 0
		for _, op := range Compare(base, state, 100) {
			if op.Offset == Literal {
				fresh += op.Length
			}
		}
		if most := bytes.Count(state, c)*len(c) + 100; fresh > most {
			t.Errorf("%s: %d bytes are new, at most %d should be", name, fresh, most)
		}
	}
}

func TestHostileWire(t *testing.T) {
	base := []byte("0123456789")
	for _, wire := range []string{
		"", "[]", "\n", "{}\n", "[\n", "[1\nx", "[1]\n", "[1]\nxy", "[0]\n", "[-1]\nx", "[01]\nx", "[1.0]\nx", "[1e0]\nx", "[[0]]\n", "[[0,1,2]]\n",
		"[[0,11]]\n", "[[11,1]]\n", "[[10,1]]\n", "[[-1,2]]\n", "[[0,0]]\n", "[[0,1],]\n", "[,1]\nx", "[[0,1]] x\n", "[[0,1]]]\n", `["1"]` + "\nx", "[null]\n",
		"[[0,9223372036854775807]]\n", "[[9223372036854775807,1]]\n", "[99999999999999999999]\n", "[1073741823,1073741823,5]\n", "[[0 1]]\n", "[[0,1][0,1]]\n",
		"[" + strings.Repeat("[0,10],", 1<<20) + "2000000000]\n",
	} {
		if got, _, err := Apply(nil, base, []byte(wire)); err == nil {
			t.Errorf("%.40q gives %q", wire, got)
		}
	}
	for wire, want := range map[string]string{
		"[]\n": "", "[ [ 8 , 2 ] ,\t2, [0,1] ]\r\nab": "89ab0", "[10]\n\n\n\n\n\n\n\n\n\n\n": "\n\n\n\n\n\n\n\n\n\n",
	} {
		if got, _, err := Apply(nil, base, []byte(wire)); err != nil || string(got) != want {
			t.Errorf("%q gives %q, %v, want %q", wire, got, err, want)
		}
	}
}

func FuzzRoundTrip(f *testing.F) {
	r := rand.New(rand.NewPCG(5, 6))
	for _, next := range histories() {
		a := next(r, 1, nil)
		b := next(r, 2, a)
		f.Add(a[:min(len(a), 3000)], b[:min(len(b), 3000)], b[min(len(b), 100):min(len(b), 2000)])
	}
	f.Add([]byte{}, []byte{}, []byte("x"))
	f.Fuzz(func(t *testing.T, a, b, c []byte) {
		s := store{}
		var base *Base
		for _, state := range [][]byte{a, b, c, append(bytes.Clone(a), c...), a} {
			base = s.save(t, base, state)
		}
		got, _, err := Apply(nil, a, Wire(b, Compare(a, b, MaxOnWire)))
		if err != nil || !bytes.Equal(got, b) {
			t.Fatalf("%v", err)
		}
	})
}

func FuzzApply(f *testing.F) {
	f.Add([]byte("0123456789"), []byte("[[0,5],3,[5,5]]\nabc"))
	f.Add([]byte(""), []byte("[]\n"))
	f.Add([]byte("0123456789"), []byte("[[0,11]]\n"))
	f.Fuzz(func(t *testing.T, base, wire []byte) {
		size, err := Size(len(base), wire)
		if err != nil || size > 1<<24 {
			return
		}
		state, _, err := Apply(nil, base, wire)
		if err != nil || len(state) != size {
			t.Fatalf("Size says %d, Apply made %d: %v", size, len(state), err)
		}
	})
}

func BenchmarkEncode(b *testing.B) {
	r := rand.New(rand.NewPCG(7, 8))
	chat := appendMessage(r, 1, nil, 1000)
	for i := 0; len(chat) < 1_800_000; i++ {
		chat = append(chat[:len(chat)-2], fmt.Appendf(nil, `,{"role":"assistant","content":"%s"}]}`, words(r, 10_000))...)
	}
	noise, period := random(r, 1<<20), bytes.Repeat([]byte("0123456789abcdef!"), 1<<16)
	scattered := bytes.Clone(noise)
	for i := 0; i < len(scattered); i += 80 {
		scattered[i]++
	}
	traps := bytes.Clone(noise) // matches of 40 bytes everywhere
	for i := 0; i+80 < len(traps); i += 80 {
		copy(traps[i+40:], random(r, 40))
	}
	one := bytes.Clone(noise)
	one[500_000]++
	for _, c := range []struct {
		name        string
		base, state []byte
	}{
		{"chat", chat, appendMessage(r, 2, chat, 1600)},
		{"compacted", chat, append([]byte(`{"summary":"short",`), chat[len(chat)/2:]...)},
		{"edited", chat, bytes.Join([][]byte{chat[:900_000], words(r, 300), chat[900_500:1_200_000], words(r, 4000), chat[1_200_000:]}, nil)},
		{"unlike", noise, random(r, 1<<20)},
		{"unlike, of 64 KiB", noise[:64<<10], random(r, 64<<10)},
		{"same", chat, bytes.Clone(chat)},
		{"one byte", noise, one},
		{"every 80th byte", noise, scattered},
		{"short matches", noise, traps},
		{"shuffled", noise, shuffled(r, noise)},
		{"period", period, append(bytes.Clone(period[5:]), period...)},
		{"nothing of nothing", nil, noise},
	} {
		base := store{}.save(b, nil, c.base)
		b.Run(strings.ReplaceAll(c.name, " ", "_"), func(b *testing.B) {
			b.SetBytes(int64(len(c.state)))
			b.ReportAllocs()
			var literal []byte
			for range b.N {
				_, literal = base.Encode(c.state)
			}
			b.ReportMetric(float64(len(literal)), "new_bytes")
		})
	}
}

// TestShortMatchesAreFoundWhereverTheyStand has common bytes at every pair of
// places. The search checks only some places, and must still find them. Two
// blocks can need the same slot of the index, so a few of the shortest are
// missed.
func TestShortMatchesAreFoundWhereverTheyStand(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4))
	for length, most := range map[int]int{minMatch: 50, 2 * minMatch: 0} {
		missed := 0
		for at := range 100 {
			for from := range 100 {
				shared := random(r, length)
				base := slices.Concat(random(r, at+1), shared, random(r, 200))
				state := slices.Concat(random(r, from+1), shared, random(r, 200))
				ops := Compare(base, state, MaxOperations)
				if !slices.ContainsFunc(ops, func(o Op) bool { return o.Offset != Literal && o.Length >= length }) {
					missed++
				}
			}
		}
		if missed > most {
			t.Errorf("of 10000 matches of %d bytes %d were missed, at most %d should be", length, missed, most)
		}
		t.Logf("%d bytes: %d of 10000 missed", length, missed)
	}
}
