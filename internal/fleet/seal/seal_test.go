package seal

import (
	"bytes"
	"errors"
	"strings"
	"testing"

	"github.com/ckptsidecar/ckptsidecar/internal/fleet"
)

// ringOf makes a ring from a key file with these keys.
func ringOf(t testing.TB, keys ...*Key) *Ring {
	t.Helper()
	var lines []string
	for _, k := range keys {
		lines = append(lines, k.Line())
	}
	r, err := Read("# keys\n\n" + strings.Join(lines, "\n") + "\n")
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// TestRing: the last key seals, and older keys are found. Keys are added as the command does.
func TestRing(t *testing.T) {
	first := New("1")
	r := ringOf(t, first)
	line, err := r.Add("2")
	if err != nil || r.Sealing().ID != "2" {
		t.Fatalf("after adding, %s seals, %v", r.Sealing().ID, err)
	}
	for _, bad := range []string{"1", "2", "", "a b", "#a", strings.Repeat("a", 256)} {
		if _, err := r.Add(bad); err == nil {
			t.Errorf("the key %q is added", bad)
		}
	}
	again, err := Read(first.Line() + "\n" + line)
	if err != nil || again.Sealing().ID != "2" || again.Find("1") == nil || again.Find("3") != nil || len(again.Keys()) != 2 {
		t.Errorf("the lines read as %+v, %v", again, err)
	}
}

// TestReadRefuses: an error names the line, and shows no key.
func TestReadRefuses(t *testing.T) {
	all := New("k").Line()
	secret := strings.Fields(all)[1]
	for text, want := range map[string]string{
		"":                                      "there is no key",
		"# none":                                "there is no key",
		all + "\n" + all:                        "line 2: there are two keys k",
		all + "\n1":                             "line 2: a key is ID BASE64",
		all + "\n1 " + secret + " old":          "line 2: a key is ID BASE64",
		all + "\n1 " + secret[:20]:              "line 2: the second word is not 32 bytes",
		all + "\n1 " + secret + secret:          "line 2: the second word is not 32 bytes",
		all + "\n" + secret + " 1":              "line 2: the second word is not 32 bytes",
		strings.Repeat("a", 300) + " " + secret: "255 bytes",
	} {
		_, err := Read(text)
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%.60q answers %v, want %q", text, err, want)
			continue
		}
		if strings.Contains(err.Error(), secret) {
			t.Errorf("an error shows a key: %v", err)
		}
	}
}

// TestMovedBlob: a blob opens only at its own place, and only as it was sealed.
func TestMovedBlob(t *testing.T) {
	k, other := New("1"), New("2")
	ring := ringOf(t, k, other)
	b, err := k.Box("run-1")
	if err != nil {
		t.Fatal(err)
	}
	place := segmentPlace("run-1", "db-1", 7)
	blob := b.Seal([]byte("plain words"), place)
	if bytes.Contains(blob, []byte("plain")) {
		t.Fatal("the blob is in the clear")
	}
	o := &Opener{Ring: ring}
	if got, err := o.Open(blob, "run-1", place); err != nil || string(got) != "plain words" {
		t.Fatalf("it opens as %q, %v", got, err)
	}
	for name, at := range map[string]struct{ uid, place string }{
		"another run":      {"run-2", segmentPlace("run-2", "db-1", 7)},
		"another database": {"run-1", segmentPlace("run-1", "db-2", 7)},
		"another row":      {"run-1", segmentPlace("run-1", "db-1", 8)},
		"another table":    {"run-1", checkpointPlace("run-1", "db-1", 7, "body")},
	} {
		if _, err := o.Open(blob, at.uid, at.place); !errors.Is(err, ErrBroken) {
			t.Errorf("%s answers %v", name, err)
		}
	}
	for i := range blob {
		bent := bytes.Clone(blob)
		bent[i] ^= 1
		if _, err := o.Open(bent, "run-1", place); err == nil {
			t.Fatalf("a blob whose byte %d is changed opens", i)
		}
		if _, err := o.Open(blob[:i], "run-1", place); err == nil {
			t.Fatalf("a blob of %d bytes opens", i)
		}
	}
	foreign, err := other.Box("run-1")
	if err != nil {
		t.Fatal(err)
	}
	renamed := append(bytes.Clone(foreign.head), blob[len(b.head):]...)
	if _, err := o.Open(renamed, "run-1", place); !errors.Is(err, ErrBroken) {
		t.Errorf("a blob under the name of another key answers %v", err)
	}
	for _, o := range []*Opener{{}, {Ring: ringOf(t, New("k"))}} {
		if _, err := o.Open(blob, "run-1", place); !errors.Is(err, ErrNoKey) || MissingKey("segment 7: "+err.Error()) != "1" {
			t.Errorf("without the key it answers %v", err)
		}
	}
	if twice := b.Seal([]byte("plain words"), place); bytes.Equal(blob, twice) {
		t.Error("two seals of one text are equal")
	}
	if b.Sum("x") == b.Sum("y") || b.Sum("x") == foreign.Sum("x") {
		t.Error("hashes of different things are equal")
	}
}

// someChanges returns a batch with something of each kind.
func someChanges(canary string) *fleet.Changes {
	texts, pieces := canary, "[[5,0,3]]"
	return &fleet.Changes{
		Journal: []fleet.JournalRow{{N: 3, Owner: "uid:1", Texts: &texts}, {N: 4, Owner: "uid:1"}},
		Agents:  []fleet.Agent{{UID: "agent-1", Owner: "uid:1", Name: "a", Doc: canary}},
		Runs: []fleet.Run{{UID: "run-1", AgentUID: "agent-1", Owner: "uid:1", Name: "main", Doc: canary,
			Checkpoints: []fleet.Checkpoint{{N: 3, Doc: canary, SHA256: canary, Body: []byte(canary)}, {N: 4, Doc: canary, SHA256: canary, Pieces: &pieces}},
			Marked:      []fleet.Checkpoint{{N: 2, Doc: canary, SHA256: canary}},
			Pieces:      []fleet.Segment{{ID: 5, Size: 3, Data: []byte(canary)}},
			Rows:        []fleet.Row{{Kind: "step", Key: "k", Doc: canary}}}},
	}
}

// TestChanges seals a batch, and opens it as a host does that restores it.
func TestChanges(t *testing.T) {
	const canary = "canary-0123456789"
	ring := ringOf(t, New("k"), New("1"))
	s := NewSealer(ring, "db-1")
	c := someChanges(canary)
	if err := s.Changes(c); err != nil {
		t.Fatal(err)
	}
	r := &c.Runs[0]
	for what, sealed := range map[string]string{"agent": c.Agents[0].Doc, "run": r.Doc, "row": r.Rows[0].Doc, "doc": r.Checkpoints[0].Doc, "sha": r.Checkpoints[0].SHA256,
		"body": string(r.Checkpoints[0].Body), "marked": r.Marked[0].Doc, "segment": string(r.Pieces[0].Data), "texts": *c.Journal[0].Texts} {
		if strings.Contains(sealed, canary) {
			t.Errorf("%s is in the clear: %q", what, sealed)
		}
	}
	if r.Checkpoints[1].Body != nil || c.Journal[1].Texts != nil {
		t.Error("what is not there is sealed")
	}
	again := someChanges(canary)
	if err := s.Changes(again); err != nil || again.Agents[0].Doc != c.Agents[0].Doc {
		t.Errorf("an agent that has not changed is another text, %v", err)
	}
	lost := func() (*fleet.LostAgent, *fleet.LostRun) {
		run := fleet.LostRun{UID: "run-1", DB: "db-1", Doc: r.Doc, KeyID: r.KeyID, Checkpoints: append([]fleet.Checkpoint{}, r.Checkpoints...),
			Segments: append([]fleet.Segment{}, r.Pieces...), Rows: append([]fleet.Row{}, r.Rows...)}
		return &fleet.LostAgent{UID: "agent-1", Name: "a", Doc: c.Agents[0].Doc, Runs: []fleet.LostRun{run}}, &run
	}
	o := &Opener{Ring: ring}
	a, run := lost()
	if err := o.Agent(a); err != nil || a.Doc != canary || a.Runs[0].Doc != canary || a.Runs[0].Damage != "" {
		t.Errorf("the agent opens as %+v, %v", a, err)
	}
	o.Run(run)
	one, two := &run.Checkpoints[0], &run.Checkpoints[1]
	if one.Doc != canary || one.SHA256 != canary || string(one.Body) != canary || one.Damage != "" || two.Damage != "" || len(run.Unread) != 0 ||
		string(run.Segments[0].Data) != canary || run.Rows[0].Doc != canary {
		t.Errorf("the run opens as %+v", run)
	}
	if texts, err := o.Audit(*c.Journal[0].Texts, "db-1", 3); err != nil || texts != canary {
		t.Errorf("the texts open as %q, %v", texts, err)
	}
	if !o.Has(r.KeyID) || o.Has("9") || !o.Has("") {
		t.Error("which keys are there is not known")
	}

	none := &Opener{}
	a, run = lost()
	if err := none.Agent(a); !errors.Is(err, ErrNoKey) {
		t.Errorf("without a key the agent answers %v", err)
	}
	none.Run(run)
	if run.Checkpoints[0].Damage == "" || run.Checkpoints[1].Damage == "" || len(run.Segments) != 0 || len(run.Rows) != 0 || len(run.Unread) != 1 || run.Unread[0].Key != "k" {
		t.Errorf("without a key the run opens as %+v", run)
	}
	if why := Lacks(run); MissingKey(why) != r.KeyID {
		t.Errorf("the key that is missing is told as %q", why)
	}
	_, run = lost() // clear text in a sealed row
	run.Checkpoints[0].Doc = canary
	run.Segments[0].Data = []byte(canary)
	o.Run(run)
	if run.Checkpoints[0].Damage == "" || !strings.Contains(run.Checkpoints[1].Damage, "segment 5") || Lacks(run) != "" {
		t.Errorf("what was replaced opens: %+v", run.Checkpoints)
	}
}

// FuzzOpen opens arbitrary answers of an engine. Open must never panic.
func FuzzOpen(f *testing.F) {
	k := New("k")
	ring := ringOf(f, k)
	b, err := k.Box("u")
	if err != nil {
		f.Fatal(err)
	}
	f.Add(b.Seal([]byte("x"), "p"), b.SealText("x", "p"))
	f.Add([]byte("ckS1"), "sealed:")
	f.Add([]byte("ckS1\xff"), "sealed:Y2tTMQ")
	f.Fuzz(func(t *testing.T, blob []byte, text string) {
		o := &Opener{Ring: ring}
		if plain, err := o.Open(blob, "u", "p"); err == nil && string(plain) != "x" {
			t.Errorf("%q opens as %q", blob, plain)
		}
		if plain, err := o.Text(text, "u", "p"); err == nil && strings.HasPrefix(text, textMark) && plain != "x" {
			t.Errorf("%q opens as %q", text, plain)
		}
		_, _ = Read(text)
	})
}

// BenchmarkSeal seals and opens 2 KiB.
func BenchmarkSeal(b *testing.B) {
	k := New("k")
	box, err := k.Box("run-1")
	if err != nil {
		b.Fatal(err)
	}
	plain := make([]byte, 2<<10)
	b.SetBytes(int64(len(plain)))
	b.Run("seal", func(b *testing.B) {
		for b.Loop() {
			box.Seal(plain, "place")
		}
	})
	blob := box.Seal(plain, "place")
	b.Run("open", func(b *testing.B) {
		for b.Loop() {
			if _, err := box.open(blob, "place"); err != nil {
				b.Fatal(err)
			}
		}
	})
}
