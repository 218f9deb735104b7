package secrets

import (
	"bytes"
	"flag"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/ckptsidecar/ckptsidecar/internal/jsontext"
)

// part writes a value that may contain secrets, short or long.
func part(r *rand.Rand) string {
	long := strings.Repeat("plain words and so on, ", r.IntN(80))
	switch r.IntN(20) {
	case 0:
		return `{"role":"tool","content":"` + long + key + `"}`
	case 1:
		return `{"role":"tool","env":{"api_key":"value ` + long + `"},"n":[1,{"token":"x"}]}`
	case 2:
		return `"` + long + `\n` + github + `"`
	case 3:
		return `["` + long + `",["` + pem + `"],"AKIA"]`
	case 4:
		return `{"password":"` + github + long + key + `","` + github + `":1}`
	case 5:
		return `{"begin":"-----BEGIN RSA PRIV` + `ATE KEY-----` + long + `"}`
	case 6:
		return `{"end":"` + long + `-----END RSA PRIV` + `ATE KEY-----"}`
	case 7:
		return fmt.Sprint(r.IntN(1e6))
	case 8:
		return `"export PGPASSWORD=hunter22\n` + long + `curl https://bob:s3cr3t@db.example.org/x"`
	case 9:
		return `"` + long + `{\"password\": \"hunter22\", \"n\": 1}"`
	case 10:
		return `"` + long + `gh\u0070_` + strings.Repeat("x9Y8", 9) + ` ` + github + `"`
	case 11:
		return `{"pass\u0077ord":"hunter22","\u0074oken":["` + long + `"],"url":"https:\/\/a:b1c2d3@h\/"}`
	}
	return `{"role":"user","content":"` + long + `"}`
}

func document(r *rand.Rand) []byte {
	b := []byte(`{"step":1,"messages":[0`)
	for range r.IntN(30) {
		b = fmt.Appendf(b, ",%s", part(r))
	}
	b = append(b, `],"notes":{"a":0`...)
	for i := range r.IntN(6) {
		b = fmt.Appendf(b, `,"note%d":%s`, i, part(r))
	}
	return append(b, `}}`...)
}

// edit changes a document in ways that often leave it valid JSON, and returns
// the parts that stay.
func edit(r *rand.Rand, base []byte) (out []byte, same []jsontext.Copy) {
	keep := func(from, to int) {
		if from < to {
			same = append(same, jsontext.Copy{At: len(out), From: from, Length: to - from})
			out = append(out, base[from:to]...)
		}
	}
	comma := func(from int) int { // where an element or member can end
		at := from + r.IntN(len(base)-from+1)
		if i := bytes.Index(base[at:], []byte(`,{"`)); i >= 0 && r.IntN(8) > 0 {
			return at + i
		}
		return at
	}
	at := 0
	for range 1 + r.IntN(3) {
		p := comma(at)
		keep(at, p)
		at = p
		switch r.IntN(6) {
		case 0:
			out = append(out, ","+part(r)...)
		case 1:
			at = comma(p)
		case 2: // repeats a part
			keep(p, comma(p))
		case 3:
			for _, names := range [][2]string{{`"note`, `"password":0,"pass`}, {`"content"`, `"apikey"`}, {`"password"`, `"words"`}, {`"api_key"`, `"key"`}} {
				if i := bytes.Index(base[p:], []byte(names[0])); i >= 0 && r.IntN(2) == 0 {
					keep(p, p+i)
					out = append(out, names[1]...)
					at = p + i + len(names[0])
					break
				}
			}
		case 4:
			out = append(out, []string{"x", `"`, "sk-", ".", "\\n", " "}[r.IntN(6)]...)
		case 5:
			at = min(p+r.IntN(9), len(base))
		}
	}
	keep(at, len(base))
	return out, same
}

var texts = flag.Int("texts", 300, "from how many texts the tests that draw lots begin; make fuzz takes 6,000")

// TestFindAfterAgrees changes documents repeatedly: the result is the same as
// that of a search of the whole document.
func TestFindAfterAgrees(t *testing.T) {
	t.Parallel()
	r := rand.New(rand.NewPCG(8, 8))
	var good, carried, found int
	for n := range *texts {
		base := document(r)
		var checked jsontext.Checked
		var seenBefore Seen
		agree := func(state []byte, c jsontext.Checked) Seen {
			got, now := Scan{}.FindAfter(state, c, seenBefore)
			if diff := cmp.Diff(Scan{}.Find(state, true), got); diff != "" {
				t.Fatalf("%s\npassed over %v\n%s", state, c.Passed, diff)
			}
			found += len(got)
			return now
		}
		checked, err := jsontext.CheckAfter(base, nil, nil)
		if err != nil {
			t.Fatal(err)
		}
		seenBefore = agree(base, checked)
		for range 20 {
			state, same := edit(r, base)
			next, err := jsontext.CheckAfter(state, checked.Map, same)
			if err != nil {
				continue
			}
			if n%7 == 0 && r.IntN(3) == 0 { // as if no search was made for a while
				seenBefore = nil
			}
			seenBefore = agree(state, next)
			good++
			if old, _ := seenBefore.(seen); len(next.Passed) > 0 && len(old) > 0 {
				carried++
			}
			if base, checked = state, next; len(base) > 60_000 {
				break
			}
		}
	}
	t.Logf("%d states, %d with something carried, %d secrets", good, carried, found)
	if good < 5**texts || carried < 4**texts {
		t.Error("too few interesting states")
	}
}

// TestFindBytesAfterAgrees is the same for states that are not JSON, whose
// tokens can begin and end anywhere.
func TestFindBytesAfterAgrees(t *testing.T) {
	t.Parallel()
	r := rand.New(rand.NewPCG(9, 9))
	parts := []string{"plain words ", "and so on, ", "\n", "key=", key, github, "AKIA", "ABCDEFGH12345678", "Bearer ", "abc.def-123/456+789=", "eyJhbGciOi", "JIUzI1NiJ9.x1",
		"sk-", "a1b2c3d4", "password=", "DB_PASS=", "token: ", "'", "https://bob:", "@host ", "hunter22", "Basic dXNlcjpwYXNzd29yZA==", `"token":"`, "Cookie: a=", ";", ".", "-", "x", `"`, "-----BEGIN RSA PRIV" + "ATE KEY-----", "-----END RSA PRIV" + "ATE KEY-----"}
	text := func(n int) (b []byte) {
		limit := len(parts)
		if r.IntN(3) > 0 {
			limit -= 2 // without keys, which would make it search everything
		}
		for range n {
			if r.IntN(2) == 0 {
				b = append(b, parts[r.IntN(3)]...)
			} else {
				b = append(b, parts[r.IntN(limit)]...)
			}
		}
		return b
	}
	over := 0
	for range *texts {
		base := text(r.IntN(1500))
		_, before := Scan{}.FindBytesAfter(base, nil, nil)
		for range 12 {
			var state []byte
			var same []jsontext.Copy
			at := 0
			keep := func(from, to int) {
				if from < to {
					same = append(same, jsontext.Copy{At: len(state), From: from, Length: to - from})
					state = append(state, base[from:to]...)
				}
			}
			for range 1 + r.IntN(3) {
				p := at + r.IntN(len(base)-at+1)
				keep(at, p)
				state = append(state, text(r.IntN(3))...)
				if at = p; r.IntN(3) == 0 {
					at = p + r.IntN(len(base)-p+1)
				}
				if from := r.IntN(len(base) + 1); r.IntN(6) == 0 {
					keep(from, from+r.IntN(len(base)-from+1))
				}
			}
			keep(at, len(base))
			got, now := Scan{}.FindBytesAfter(state, same, before)
			if diff := cmp.Diff(Scan{}.Find(state, false), got); diff != "" {
				t.Fatalf("%q\nafter %q\nby %v\n%s", state, base, same, diff)
			}
			_, all := Scan{}.FindBytesAfter(state, nil, nil)
			// A search of everything remembers nothing of a state with very many hits. It counts those inside another too.
			a, few := all.(seenBytes)
			b, seen := now.(seenBytes)
			if few && (!seen || !slices.Equal(a, b)) {
				t.Fatalf("%q\nafter %q\nby %v\nsees %v\nnot %v", state, base, same, now, all)
			}
			if len(inside(state, same)) > 0 && seen && !hasKey(b) {
				over++
			}
			if base, before = state, now; len(base) > 30_000 {
				break
			}
		}
	}
	t.Logf("%d passed over something", over)
	if over < 4**texts {
		t.Error("too few interesting texts")
	}
}

// TestTooManySecrets: a state with very many secrets is searched completely
// each time.
func TestTooManySecrets(t *testing.T) {
	state := []byte(`{"a":["` + strings.Repeat(github+`","`, mostSeen+5) + `"],"b":0}`)
	checked, err := jsontext.CheckAfter(state, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	found, now := Scan{}.FindAfter(state, checked, nil)
	if now != nil || len(found) != most {
		t.Errorf("%v, %d found", now, len(found))
	}
	again := bytes.Replace(state, []byte(`"b":0`), []byte(`"b":1`), 1)
	checked, err = jsontext.CheckAfter(again, checked.Map, []jsontext.Copy{{Length: len(state) - 2}})
	if err != nil || len(checked.Passed) == 0 {
		t.Fatal(err)
	}
	if more, _ := (Scan{}).FindAfter(again, checked, now); !slices.Equal(more, found) {
		t.Errorf("%v", more)
	}
}

// TestHostileTexts ends soon: no text makes the search read it repeatedly,
// which would take minutes.
func TestHostileTexts(t *testing.T) {
	t.Parallel()
	for name, part := range map[string]string{
		"web tokens without digits": "eyJhbGciOi.", "beginnings of keys": "-----BEGIN PRIV" + "ATE KEY-----/", "short": "sk-a ",
		"tokens": github + " ", "names": `","password":"`,
		"escapes": `\u0041`, "escaped slashes": `\/`, "assignments": "password=", "quoted": `\"password\":\"`, "colons": "password: ", "urls": "https://a:b", "long keys": "x_", "signs": "d=",
		"basic": "Basic ", "schemes": "Authorization: Bearer ", "quotes": `'`, "quoted keys": `'password':`,
	} {
		text := []byte(`{"a":"` + strings.Repeat(part, 2<<20/len(part)) + `"}`)
		begin := time.Now()
		found := Scan{}.Find(text, true)
		redacted, again := Scan{}.Redact(text, true)
		t.Logf("%s: %d secrets in %v", name, len(found), time.Since(begin))
		if len(found) != len(again) || (len(found) > 0) == bytes.Equal(text, redacted) {
			t.Errorf("%s: %d secrets were found, %d redacted", name, len(found), len(again))
		}
	}
}

func BenchmarkFindAfter(b *testing.B) {
	state := []byte(`{"messages":[` + strings.TrimSuffix(strings.Repeat(`{"role":"user","content":"all work and no play makes Jack a dull boy, said the agent"},`, 6000), ",") + `,"` + github + `"]}`)
	first, err := jsontext.CheckAfter(state, nil, nil)
	if err != nil {
		b.Fatal(err)
	}
	_, seen := Scan{}.FindAfter(state, first, nil)
	again, err := jsontext.CheckAfter(state, first.Map, []jsontext.Copy{{At: 0, From: 0, Length: 300_000}, {At: 300_001, From: 300_001, Length: len(state) - 300_001}})
	if err != nil {
		b.Fatal(err)
	}
	b.SetBytes(int64(len(state)))
	b.ReportAllocs()
	for b.Loop() {
		if found, _ := (Scan{}).FindAfter(state, again, seen); len(found) != 1 {
			b.Fatal(found)
		}
	}
}
