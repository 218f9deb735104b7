package resume

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	jsonpatch "github.com/evanphx/json-patch/v5"

	"github.com/ckptsidecar/ckptsidecar/internal/jsontext"
)

// applied applies a difference to a state. The result must be the other state.
func applied(t *testing.T, state, diff []byte) []byte {
	t.Helper()
	p, err := jsonpatch.DecodePatch(diff)
	if err != nil {
		t.Fatalf("%v: %s", err, diff)
	}
	got, err := p.Apply(state)
	if err != nil {
		t.Fatalf("%v: %s", err, diff)
	}
	return got
}

func TestMemoryDiffLeadsToTheBeginning(t *testing.T) {
	for _, c := range [][2]string{
		{`{"n":5,"log":["a","b"],"x/y~":{"deep":[1,{"k":null}]}}`, `{"n":0,"log":[]}`},
		{`{"n":1.0}`, `{"n":1}`},
		{`{"n":12345678901234567890}`, `{"n":12345678901234567891}`},
		{`[1,2,3]`, `[3]`},
		{`{"a":1}`, `{"a":1}`},
		{strings.Repeat(`{"a":`, 90) + `1` + strings.Repeat(`}`, 90), `{"a":2}`},
		{`{"` + strings.Repeat("k", 30000) + `":[` + strings.Repeat(`1,`, 1000) + `1]}`, `{"` + strings.Repeat("k", 30000) + `":[]}`},
	} {
		diff := patch([]byte(c[0]), []byte(c[1]))
		if got := applied(t, []byte(c[0]), diff); !jsonpatch.Equal(got, []byte(c[1])) {
			t.Errorf("%.80s and %.200s make %.80s", c[0], diff, got)
		}
		if len(diff) > len(c[0])+len(c[1])+200 {
			t.Errorf("the difference of %d and %d bytes has %d", len(c[0]), len(c[1]), len(diff))
		}
	}
	if diff := patch([]byte(`{"a":1}`), []byte(`{"a":1}`)); string(diff) != "[]" {
		t.Errorf("no difference is %s", diff)
	}
}

// TestMemoryDiffBySize: the difference is always made for small states, for
// larger ones if a person must decide or only looks, and never for the largest.
func TestMemoryDiffBySize(t *testing.T) {
	for _, c := range []struct {
		size             int
		going, look, ask bool
	}{
		{maxQuickMemory, true, true, true},
		{maxQuickMemory + 1, false, true, true},
		{maxMemory, false, true, true},
		{maxMemory + 1, false, false, false},
	} {
		state := `{"a":"` + strings.Repeat("x", c.size-8) + `"}`
		make1 := func(more string) bool {
			s := scene1(t, "run interrupted\ninterrupted 5m\ncheckpoint 3 routine 6m\n"+more)
			s.states["c3"].State = []byte(state)
			p, err := Make(&s.Facts)
			if err != nil {
				t.Fatal(err)
			}
			return p.MemoryDiff != nil
		}
		if g, l, a := make1(""), make1("dry run"), make1("autoresume off"); g != c.going || l != c.look || a != c.ask {
			t.Errorf("%d bytes: resume %v, dry run %v, ask %v", c.size, g, l, a)
		}
	}
}

// TestMemoryDiffOfHostileStates: a state must not cost the daemon its memory or
// its time.
func TestMemoryDiffOfHostileStates(t *testing.T) {
	const mib = 1 << 20
	for name, c := range map[string][2]string{
		"many numbers":   {`[` + strings.Repeat(`1,`, mib/2-2) + `1]`, `[]`},
		"long key":       {`{"` + strings.Repeat("k", mib/2) + `":[` + strings.Repeat(`1,`, mib/4-8) + `1]}`, `{"` + strings.Repeat("k", mib/2) + `":[]}`},
		"deep":           {strings.Repeat(`[`, 9000) + strings.Repeat(`]`, 9000), strings.Repeat(`[`, 8999) + strings.Repeat(`]`, 8999)},
		"deep and broad": {strings.Repeat(`{"a":`, 5000) + `[` + strings.Repeat(`1,`, mib/4) + `1]` + strings.Repeat(`}`, 5000), strings.Repeat(`{"a":`, 5000) + `[]` + strings.Repeat(`}`, 5000)},
		"many keys":      {manyKeys("a"), manyKeys("b")},
	} {
		began := time.Now()
		diff := patch([]byte(c[0]), []byte(c[1]))
		if took := time.Since(began); took > time.Minute { // hours, if the work is quadratic
			t.Errorf("%s: took %s", name, took)
		}
		if len(diff) > 8*mib || !json.Valid(diff) {
			t.Errorf("%s: the difference has %d bytes", name, len(diff))
		}
	}
}

func manyKeys(prefix string) string {
	var b bytes.Buffer
	for i := range 40000 {
		fmt.Fprintf(&b, `,"%s%d":1`, prefix, i)
	}
	return `{` + b.String()[1:] + `}`
}

func FuzzMemoryDiff(f *testing.F) {
	f.Add([]byte(`{"a":[1,2,{"b":null}]}`), []byte(`{"a":[2]}`))
	f.Add([]byte(`[[],{}]`), []byte(`[{},[]]`))
	f.Add([]byte(`{"":{"":1}}`), []byte(`{"":{"":"1"}}`))
	f.Fuzz(func(t *testing.T, from, to []byte) {
		if jsontext.Check(from) != nil || jsontext.Check(to) != nil {
			return
		}
		diff := patch(from, to)
		var operations []struct {
			Op   string  `json:"op"`
			Path *string `json:"path"`
		}
		if err := json.Unmarshal(diff, &operations); err != nil {
			t.Fatalf("%v: %s", err, diff)
		}
		for _, o := range operations {
			if o.Op == "" || o.Path == nil {
				t.Errorf("not RFC 6902: %s", diff)
			}
		}
	})
}

func BenchmarkMemoryDiff(b *testing.B) {
	for _, size := range []int{maxQuickMemory, maxMemory} {
		var text bytes.Buffer
		for i := 0; text.Len() < size-200; i++ {
			fmt.Fprintf(&text, `,{"role":"assistant","content":"message number %d of this run","tokens":%d}`, i, i)
		}
		state := []byte(`{"messages":[` + text.String()[1:] + `]}`)
		b.Run(fmt.Sprint(size), func(b *testing.B) {
			b.SetBytes(int64(len(state)))
			for b.Loop() {
				patch(state, []byte(`{"messages":[]}`))
			}
		})
	}
}

func TestDeepStatesAreReplacedWhole(t *testing.T) {
	nested := func(depth int, value string) []byte {
		return []byte(strings.Repeat(`{"a":`, depth) + value + strings.Repeat(`}`, depth))
	}
	for depth, path := range map[int]string{maxDepth: strings.Repeat("/a", maxDepth), maxDepth + 1: ""} {
		var operations []struct{ Path string }
		if err := json.Unmarshal(patch(nested(depth, "1"), nested(depth, "2")), &operations); err != nil {
			t.Fatal(err)
		}
		if len(operations) != 1 || operations[0].Path != path {
			t.Errorf("%d levels: %+v", depth, operations)
		}
	}
}
