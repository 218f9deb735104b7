package db_test

import (
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	ckpt "github.com/ckptsidecar/ckptsidecar"
	"github.com/ckptsidecar/ckptsidecar/internal/db"
	"github.com/ckptsidecar/ckptsidecar/internal/delta"
	"github.com/ckptsidecar/ckptsidecar/internal/expect"
	"github.com/ckptsidecar/ckptsidecar/internal/jsontext"
	"github.com/ckptsidecar/ckptsidecar/internal/secrets"
)

// twoStores are a store that remembers states and one that does not, and so
// scans each state completely.
func twoStores(t *testing.T) (paths []string, stores []*db.Store) {
	for _, most := range []int64{0, -1} {
		o := options(filepath.Join(t.TempDir(), "ckpt.db"), newClock())
		o.LiveBytes, o.Secrets = most, secrets.Scan{}
		paths, stores = append(paths, o.Path), append(stores, openWith(t, o))
	}
	return paths, stores
}

// altered returns a state that has much in common with another.
func altered(r *rand.Rand, state []byte) []byte {
	token := "ghp_" + strings.Repeat("x9Y8", 9)
	element := func() string {
		words := strings.Repeat("the agent reads a file and calls tools ", r.IntN(60))
		switch r.IntN(9) {
		case 0:
			return fmt.Sprintf(`{"role":"tool","content":"%s %s"}`, words, token)
		case 1:
			return fmt.Sprintf(`{"role":"tool","password":"hunter2 %s"}`, words)
		case 2:
			return fmt.Sprintf(`{"a":1,"b":"%s","a":2}`, words) // the same key twice
		case 3:
			return fmt.Sprintf(`{"n":%d,"list":[[],{"x":"%s"}]}`, r.IntN(1e6), words)
		}
		return fmt.Sprintf(`{"role":"user","content":"%s"}`, words)
	}
	out := slices.Clone(state)
	for range 1 + r.IntN(2) {
		at := r.IntN(len(out))
		if i := bytes.Index(out[at:], []byte(`,{"`)); i >= 0 && r.IntN(10) > 0 {
			at += i
		}
		switch r.IntN(7) {
		case 0, 1, 2:
			out = slices.Insert(out, at, []byte(","+element())...)
		case 3, 4:
			if i := bytes.Index(out[at+1:], []byte(`,{"`)); i >= 0 {
				out = slices.Delete(out, at, at+1+i)
			}
		case 5:
			out = slices.Insert(out, at, []byte(" \n")...)
		case 6:
			out[at] = "\"{[,x\xff"[r.IntN(6)]
		}
	}
	return out
}

// TestWhatIsNewIsLookedAt saves a changing state into a store that scans only
// the new parts, and into a store that scans everything. Both give the same
// answers, find the same secrets, and store the same bytes.
func TestWhatIsNewIsLookedAt(t *testing.T) {
	t.Parallel()
	expect.OneThread(t)
	paths, stores := twoStores(t)
	r := rand.New(rand.NewPCG(11, 3))
	state := []byte(`{"step":1,"messages":[0` + strings.Repeat(`,{"role":"user","content":"`+strings.Repeat("hello ", 150)+`"}`, 40) + `]}`)
	modes := []ckpt.SecretsMode{ckpt.SecretsWarn, ckpt.SecretsWarn, ckpt.SecretsOff, ckpt.SecretsRedact, ckpt.SecretsReject}
	refused, saved, known := 0, 0, state
	for i := range 600 {
		agent := fmt.Sprint("a", i/100)
		if i%20 == 0 {
			p := ckpt.DefaultPolicy()
			p.Secrets = modes[r.IntN(len(modes))]
			for _, s := range stores {
				_, err := s.SetPolicy(t.Context(), ann, agent, p)
				must(t, err)
			}
		}
		next := altered(r, state)
		copies, sum := hints(known, next)
		var answers []string
		var read [][]byte
		for _, s := range stores {
			q := &ckpt.SaveRequest{Agent: agent, Kind: ckpt.KindRoutine, ContentType: ckpt.ContentTypeJSON, State: bytes.Clone(next)}
			if i >= 500 {
				q.ContentType = "text/plain"
			}
			if i%3 > 0 {
				q.Same, q.SameAs = copies, sum
			}
			answer, err := s.Save(t.Context(), ann, q)
			if err != nil {
				answers = append(answers, err.Error())
				continue
			}
			ck, err := s.Checkpoint(t.Context(), ann, answer.ID, true)
			must(t, err)
			answers = append(answers, answer.SHA256, fmt.Sprint(answer.AsSent))
			read = append(read, ck.State)
		}
		if half := len(answers) / 2; !slices.Equal(answers[:half], answers[half:]) {
			t.Fatalf("save %d of\n%s\nis answered %q", i, next, answers)
		}
		if len(read) == 0 {
			refused++
			continue
		}
		saved++
		if !bytes.Equal(read[0], read[1]) || i < 500 && jsontext.Check(read[0]) != nil {
			t.Fatalf("save %d is read back differently", i)
		}
		if state, known = next, read[0]; len(state) > 150_000 {
			state = []byte(`{"messages":[0` + strings.Repeat(`,{"a":0}`, 900) + `]}`)
		}
	}
	t.Logf("%d saved, %d refused", saved, refused)
	if saved < 150 || refused < 50 {
		t.Error("too little of either")
	}
	const findings = `SELECT f.rule, f.evidence, c.seq, r.id FROM findings f JOIN checkpoints c ON c.id = f.checkpoint JOIN runs r ON r.id = f.run_id ORDER BY 4, 3, 2`
	const all = `SELECT run_id, evidence, count(*) FROM findings GROUP BY 1, 2 ORDER BY 1, 2`
	for _, query := range []string{findings, all} {
		one, other := sqlite3(t, "-readonly", paths[0], query), sqlite3(t, "-readonly", paths[1], query)
		if one != other {
			t.Errorf("other secrets were found:\n%s\n\n%s", one, other)
		}
	}
	if n := sqlite3(t, "-readonly", paths[0], `SELECT count(*) FROM findings`); len(n) < 2 {
		t.Errorf("only %s secrets were found", n)
	}
	for _, path := range paths {
		sound(t, path)
	}
}

// TestAHintAboutAnotherState: a hint that belongs to another state is not
// trusted.
func TestAHintAboutAnotherState(t *testing.T) {
	t.Parallel()
	_, stores := twoStores(t)
	st := newStory(5)
	for range 100 {
		st.next(500)
	}
	first, second, third := st.next(500), st.next(500), st.next(500)
	saveBytes(t, stores[0], "a", "", ckpt.KindRoutine, first)
	saveBytes(t, stores[0], "a", "", ckpt.KindRoutine, second)
	wrong := []jsontext.Copy{{At: 0, From: 100, Length: len(third) - 100}}
	for _, sum := range []string{hashOf(string(first)), "", hashOf("x")} {
		saved, err := stores[0].Save(t.Context(), ann, &ckpt.SaveRequest{Agent: "a", Kind: ckpt.KindRoutine, ContentType: ckpt.ContentTypeJSON, State: bytes.Clone(third), Same: wrong, SameAs: sum})
		must(t, err)
		ck, err := stores[0].Checkpoint(t.Context(), ann, saved.ID, true)
		must(t, err)
		if !bytes.Equal(ck.State, third) {
			t.Fatal("another state is read back")
		}
	}
}

// hints returns what a client's change would say about two states, sometimes
// incompletely.
func hints(base, state []byte) ([]jsontext.Copy, string) {
	at := 0
	var copies []jsontext.Copy
	for _, op := range delta.Compare(base, state, delta.MaxOnWire) {
		for length := op.Length; op.Offset != delta.Literal && length > 0; { // in parts
			part := min(length, 5000)
			copies = append(copies, jsontext.Copy{At: at + op.Length - length, From: op.Offset + op.Length - length, Length: part})
			length -= part
		}
		at += op.Length
	}
	return copies, hashOf(string(base))
}

// TestLentMemory saves many states at once in reused memory, while agents are
// erased and other states evict them. The states are made from the base and a
// change, as the server does.
func TestLentMemory(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "ckpt.db")
	o := options(path, newClock())
	o.LiveBytes = 1 << 20 // room for a few of them
	s := openWith(t, o)
	rounds := 16
	if testing.Short() {
		rounds = 8
	}
	var wg sync.WaitGroup
	for g := range 8 {
		wg.Go(func() {
			r := rand.New(rand.NewPCG(uint64(g), 6))
			st := newStory(uint64(g))
			agent := fmt.Sprint("a", g/2) // two runs per agent
			var last *ckpt.Saved
			for i := range rounds {
				for len(st.messages) < 400 {
					st.next(300)
				}
				state := st.next(900)
				if i%7 == 6 {
					st.compact(20)
				}
				q := &ckpt.SaveRequest{Agent: agent, Run: fmt.Sprint("r", g), Kind: ckpt.KindRoutine, ContentType: ckpt.ContentTypeJSON, Lent: true}
				if last != nil {
					takeChange(s, q, last.ID, state)
				}
				if q.State == nil {
					q.State = append(s.Memory(len(state))[:0], state...)
				}
				saved, err := s.Save(context.Background(), ann, q)
				if err != nil {
					t.Error(err)
					return
				}
				if saved.SHA256 != hashOf(string(state)) {
					t.Error("another state was saved")
				}
				ck, err := s.Checkpoint(context.Background(), ann, saved.ID, true)
				if ckpt.CodeOf(err) != ckpt.CodeNotFound && (err != nil || !bytes.Equal(ck.State, state)) {
					t.Errorf("a state is read back differently: %v", err)
				}
				last = saved
				if r.IntN(30) == 0 {
					_, err := s.Erase(context.Background(), ann, agent)
					if code := ckpt.CodeOf(err); err != nil && code != ckpt.CodeNotFound && code != ckpt.CodeBusy { // busy: a reader sees traces
						t.Error(err)
					}
				}
			}
		})
	}
	wg.Wait()
	sound(t, path)
}

// takeChange makes the state as the server does, if the base is there.
func takeChange(s *db.Store, q *ckpt.SaveRequest, id string, state []byte) {
	base, sum, release, err := s.Base(context.Background(), ann, q.Agent, id)
	if err != nil {
		return
	}
	defer release()
	made, _, err := delta.Apply(s.Memory(len(state)), base, delta.Wire(state, delta.Compare(base, state, delta.MaxOnWire)))
	if err == nil {
		q.State = made
		q.Same, _ = hints(base, made)
		q.SameAs = sum
	}
}
