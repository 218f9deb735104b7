package db_test

import (
	"bytes"
	"context"
	"crypto/sha3"
	"encoding/hex"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	ckpt "github.com/ckptsidecar/ckptsidecar"
	"github.com/ckptsidecar/ckptsidecar/internal/db"
	"github.com/ckptsidecar/ckptsidecar/internal/expect"
)

// story is a growing state: JSON with a counter at the front, messages, and a time at the end.
type story struct {
	r        *rand.Rand
	step     int
	messages []string
}

func newStory(seed uint64) *story { return &story{r: rand.New(rand.NewPCG(seed, 7))} }

func (s *story) next(most int) []byte {
	words := strings.Fields("the agent reads a file calls tools gets résumés naïve 漢字 𝄞 error nil return state")
	var m strings.Builder
	for range 20 + s.r.IntN(most/5) {
		fmt.Fprintf(&m, "%s %x ", words[s.r.IntN(len(words))], s.r.IntN(500))
	}
	s.step++
	s.messages = append(s.messages, fmt.Sprintf(`{"role":"user","content":"%s"}`, m.String()))
	return fmt.Appendf(nil, `{"step":%d,"messages":[%s],"at":"2026-03-01T%02d:00:00Z"}`, s.step, strings.Join(s.messages, ","), s.step%24)
}

// compact replaces all messages except the last few with a summary.
func (s *story) compact(keep int) {
	s.messages = append([]string{fmt.Sprintf(`{"summary":"up to %d"}`, s.step)}, s.messages[max(0, len(s.messages)-keep):]...)
}

// rewrite rewrites a random message.
func (s *story) rewrite() {
	i := s.r.IntN(len(s.messages))
	s.messages[i] = fmt.Sprintf(`{"role":"user","content":"it was %d"}`, s.r.IntN(1e6))
}

func keepAll(t testing.TB, s *db.Store, agent string) {
	t.Helper()
	p := ckpt.DefaultPolicy()
	p.RoutineKeep = 0
	_, err := s.SetPolicy(t.Context(), ann, agent, p)
	must(t, err)
}

func saveBytes(t testing.TB, s *db.Store, agent, run string, kind ckpt.Kind, state []byte) *ckpt.Saved {
	t.Helper()
	saved, err := s.Save(t.Context(), ann, &ckpt.SaveRequest{Agent: agent, Run: run, Kind: kind, ContentType: ckpt.ContentTypeJSON, State: state})
	must(t, err)
	return saved
}

// TestAThousandStates keeps a history of 1,000 checkpoints in a fraction of its size, and stock sqlite3 assembles
// each one from its pieces.
func TestAThousandStates(t *testing.T) {
	t.Parallel()
	expect.OneThread(t)
	path := filepath.Join(t.TempDir(), "ckpt.db")
	s := openWith(t, options(path, newClock()))
	keepAll(t, s, "a")
	story, want, all, stored := newStory(1), map[string]string{}, int64(0), int64(0)
	var some []*ckpt.Saved
	for i := range 1000 {
		if i%300 == 299 {
			story.compact(30)
		}
		state := story.next(200)
		saved := saveBytes(t, s, "a", "", ckpt.KindRoutine, state)
		sum := sha3.Sum256(state)
		want[saved.ID] = hex.EncodeToString(sum[:])
		all, stored = all+saved.Size, stored+saved.StoredSize
		if i%50 == 0 {
			some = append(some, saved)
		}
	}
	if stored*50 > all {
		t.Errorf("%d bytes are stored of %d", stored, all)
	}
	for _, saved := range some {
		c, err := s.Checkpoint(t.Context(), ann, saved.ID, true)
		must(t, err)
		if hashOf(string(c.State)) != saved.SHA256 {
			t.Errorf("checkpoint %d reads back differently", saved.Seq)
		}
	}
	lines := strings.Fields(sqlite3(t, "-readonly", path, `SELECT id || '=' || lower(hex(sha3(CAST(state AS BLOB), 256))) FROM audit_states`))
	if len(lines) != len(want) {
		t.Fatalf("audit_states has %d rows", len(lines))
	}
	for _, line := range lines {
		if id, sum, _ := strings.Cut(line, "="); want[id] != sum {
			t.Errorf("audit_states gives another state of %s", id)
		}
	}
	sound(t, path)
}

// TestRemovalsHarmNoOther saves and removes in random order, in several runs at once, with small and large states,
// restarts and erasures in between.
func TestRemovalsHarmNoOther(t *testing.T) {
	t.Parallel()
	expect.OneThread(t)
	path := filepath.Join(t.TempDir(), "ckpt.db")
	c := newClock()
	o := options(path, c)
	o.LiveBytes = 1 << 20
	s := openWith(t, o)
	keepAll(t, s, "a")
	r := rand.New(rand.NewPCG(1, 9))
	runs := []string{"one", "two", "three"}
	stories := map[string]*story{}
	there := map[string]string{} // from id to hash
	kinds := []ckpt.Kind{ckpt.KindRoutine, ckpt.KindRoutine, ckpt.KindRecovery, ckpt.KindPreOperation}
	for i := range 600 {
		run := runs[r.IntN(len(runs))]
		if stories[run] == nil {
			stories[run] = newStory(uint64(i))
		}
		st := stories[run]
		switch n := r.IntN(20); {
		case n < 10:
			state := st.next(400)
			saved := saveBytes(t, s, "a", run, kinds[r.IntN(4)], state)
			there[saved.ID] = hashOf(string(state))
		case n < 11:
			state := []byte(fmt.Sprintf("[%d]", i))
			there[saveBytes(t, s, "a", run, kinds[r.IntN(4)], state).ID] = hashOf(string(state))
		case n < 12 && len(st.messages) > 0:
			st.compact(r.IntN(10))
		case n < 13 && len(st.messages) > 0:
			st.rewrite()
		case n < 18:
			for id := range there { // takes a random one
				_, err := s.Delete(t.Context(), ann, id)
				must(t, err)
				delete(there, id)
				break
			}
		case n < 19 && i%3 == 0:
			must(t, s.Close())
			s = openWith(t, o)
		case n < 20 && len(there) > 0:
			for id := range there {
				ck, _, err := s.Restore(t.Context(), ann, ckpt.RestoreRequest{Agent: "a", Checkpoint: id, Reason: "test"})
				must(t, err)
				if hashOf(string(ck.State)) != there[id] {
					t.Fatalf("%s restores another state", id)
				}
				break
			}
		}
		if i%150 == 149 {
			sound(t, path)
		}
	}
	for id, sum := range there {
		ck, err := s.Checkpoint(t.Context(), ann, id, true)
		must(t, err)
		if hashOf(string(ck.State)) != sum {
			t.Errorf("%s reads back differently", id)
		}
	}
	sound(t, path)
	_, err := s.Erase(t.Context(), ann, "a")
	must(t, err)
	if left := sqlite3(t, "-readonly", path, "SELECT count(*) FROM segments"); left != "0" {
		t.Errorf("%s segments are left", left)
	}
}

// TestDefaultRetentionGivesBack keeps three checkpoints of a growing and compacting history. They never take much
// more space than three whole states.
func TestDefaultRetentionGivesBack(t *testing.T) {
	t.Parallel()
	expect.OneThread(t)
	path := filepath.Join(t.TempDir(), "ckpt.db")
	s := openWith(t, options(path, newClock()))
	st, most := newStory(3), int64(0)
	for i := range 300 {
		if i%60 == 59 {
			st.compact(3)
		}
		state := st.next(300)
		saveBytes(t, s, "a", "", ckpt.KindRoutine, state)
		most = max(most, int64(len(state)))
		page, err := s.Agents(t.Context(), ann, ckpt.AgentFilter{})
		must(t, err)
		if stored := page.Agents[0].StoredBytes; stored > 3*most+100_000 {
			t.Fatalf("%d bytes are stored after save %d, the largest state is %d", stored, i, most)
		}
	}
	if n := len(seqs(t, s, ann, "a")); n != 3 {
		t.Errorf("%d checkpoints are there", n)
	}
	sound(t, path)
}

// TestSavesOfOneRunAtOnce: concurrent saves of one run must not use a wrong base.
func TestSavesOfOneRunAtOnce(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "ckpt.db")
	s := openWith(t, options(path, newClock()))
	keepAll(t, s, "a")
	base := string(newStory(4).next(5000))
	var wg sync.WaitGroup
	for w := range 8 {
		wg.Go(func() {
			for i := range 15 {
				state := fmt.Appendf(nil, `{"w":%d,"i":%d,"base":%s}`, w, i, base)
				saved, err := s.Save(context.Background(), ann, request("a", ckpt.KindRoutine, string(state)))
				if err != nil {
					t.Error(err)
					return
				}
				ck, err := s.Checkpoint(context.Background(), ann, saved.ID, true)
				if err != nil || !bytes.Equal(ck.State, state) {
					t.Errorf("it reads back differently: %v", err)
				}
				if i%5 == 4 {
					if _, err := s.Delete(context.Background(), ann, saved.ID); err != nil {
						t.Error(err)
					}
				}
				if i%7 == 3 {
					_, _, err := s.BeginOperation(context.Background(), ann, ckpt.RunRef{Agent: "a"}, ckpt.OperationRequest{Key: fmt.Sprint(w, i), Name: "x", State: state})
					if err != nil {
						t.Error(err)
					}
				}
			}
		})
	}
	wg.Wait()
	report := sound(t, path)
	if report.Checkpoints < 100 {
		t.Errorf("%d checkpoints are there", report.Checkpoints)
	}
	var stored int
	fmt.Sscan(sqlite3(t, "-readonly", path, "SELECT sum(length(data)) FROM segments"), &stored)
	if stored > 200_000 {
		t.Errorf("%d bytes are stored for states of %d", stored, len(base))
	}
}

// TestNotMuchMoreThanWhole stores states that have little in common with any other.
func TestNotMuchMoreThanWhole(t *testing.T) {
	t.Parallel()
	expect.OneThread(t)
	r := rand.New(rand.NewPCG(5, 5))
	noise := make([]byte, 300_000)
	for i := range noise {
		noise[i] = byte(r.Uint32())
	}
	for name, change := range map[string]func([]byte){
		"nothing shared": func(b []byte) {
			for i := range b {
				b[i] = byte(r.Uint32())
			}
		},
		"one byte in 80": func(b []byte) {
			for i := r.IntN(80); i < len(b); i += 80 {
				b[i]++
			}
		},
		"one byte in 2000": func(b []byte) {
			for i := r.IntN(2000); i < len(b); i += 2000 {
				b[i]++
			}
		},
		"one byte":          func(b []byte) { b[len(b)/2]++ },
		"everything shared": func([]byte) {},
		"text edits": func(b []byte) {
			copy(b, strings.Repeat("all work and no play ", len(b)/21))
			for range 500 {
				b[r.IntN(len(b))] = 'X'
			}
		},
	} {
		sizes := map[int64]int64{}
		for _, live := range []int64{0, -1} {
			o := options(filepath.Join(t.TempDir(), "ckpt.db"), newClock())
			o.LiveBytes = live
			s := openWith(t, o)
			keepAll(t, s, "a")
			state := bytes.Clone(noise)
			for range 20 {
				state = bytes.Clone(state)
				change(state)
				_, err := s.Save(t.Context(), ann, &ckpt.SaveRequest{Agent: "a", Kind: ckpt.KindRoutine, ContentType: "application/x", State: state})
				must(t, err)
			}
			size := sqlite3(t, "-readonly", o.Path, "SELECT sum(length(data)) + (SELECT sum(length(pieces)) FROM checkpoints) FROM segments")
			var n int64
			fmt.Sscan(size, &n)
			sizes[live] = n
			sound(t, o.Path)
		}
		t.Logf("%s: %d, whole %d", name, sizes[0], sizes[-1])
		if sizes[0]*100 > sizes[-1]*102 {
			t.Errorf("%s: %d bytes, whole they are %d", name, sizes[0], sizes[-1])
		}
	}
}

// TestABaseThatIsGone deletes and restores between the saves, so that the state in memory must not be the base of
// the next one.
func TestABaseThatIsGone(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "ckpt.db")
	s := openWith(t, options(path, newClock()))
	keepAll(t, s, "a")
	st := newStory(6)
	for range 30 {
		first := saveBytes(t, s, "a", "", ckpt.KindRoutine, st.next(900))
		second := saveBytes(t, s, "a", "", ckpt.KindRoutine, st.next(900))
		_, err := s.Delete(t.Context(), ann, second.ID)
		must(t, err)
		third := saveBytes(t, s, "a", "", ckpt.KindRoutine, st.next(900))
		_, err = s.Delete(t.Context(), ann, first.ID)
		must(t, err)
		ck, err := s.Checkpoint(t.Context(), ann, third.ID, true)
		must(t, err)
		if hashOf(string(ck.State)) != third.SHA256 {
			t.Fatal("it reads back differently")
		}
	}
	sound(t, path)
}

// TestABaseThatGoesMeanwhile prepares a save on a base whose removal is queued before the save. When the save is
// executed, the pieces of its base have been removed.
func TestABaseThatGoesMeanwhile(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "ckpt.db")
	s := openWith(t, options(path, newClock()))
	keepAll(t, s, "a")
	st := newStory(6)
	base := saveBytes(t, s, "a", "", ckpt.KindRoutine, st.next(20_000))
	release := blocked(t, s)
	defer release()
	var wg sync.WaitGroup
	wait := func(what string, do func() error) {
		before := s.Waiting()
		wg.Go(func() {
			if err := do(); err != nil {
				t.Errorf("%s: %v", what, err)
			}
		})
		expect.Soon(t, what+" to wait", func() bool { return s.Waiting() > before })
	}
	wait("the removal", func() error { _, err := s.Delete(t.Context(), ann, base.ID); return err })
	var saved *ckpt.Saved
	wait("the save", func() (err error) {
		saved, err = s.Save(t.Context(), ann, &ckpt.SaveRequest{Agent: "a", Kind: ckpt.KindRoutine, ContentType: ckpt.ContentTypeJSON, State: st.next(900)})
		return err
	})
	release()
	wg.Wait()
	ck, err := s.Checkpoint(t.Context(), ann, saved.ID, true)
	if err != nil || hashOf(string(ck.State)) != saved.SHA256 {
		t.Errorf("it does not read back: %v", err)
	}
	sound(t, path)
}

// TestAnOperationCopiesNothing: an operation takes the run's newest state as its rollback target without storing it
// again.
func TestAnOperationCopiesNothing(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "ckpt.db")
	s := openWith(t, options(path, newClock()))
	saveBytes(t, s, "a", "", ckpt.KindRoutine, newStory(8).next(9000))
	before := sqlite3(t, "-readonly", path, "SELECT sum(length(data)) FROM segments")
	o, _, err := s.BeginOperation(t.Context(), ann, ckpt.RunRef{Agent: "a"}, ckpt.OperationRequest{Key: "k", Name: "rm"})
	must(t, err)
	if after := sqlite3(t, "-readonly", path, "SELECT sum(length(data)) FROM segments"); after != before {
		t.Errorf("%s bytes became %s", before, after)
	}
	ck, err := s.Checkpoint(t.Context(), ann, string(o.Checkpoint), true)
	must(t, err)
	if ck.StoredSize != 0 || hashOf(string(ck.State)) != ck.SHA256 {
		t.Errorf("%d bytes were stored", ck.StoredSize)
	}
	_, _, err = s.EndOperation(t.Context(), ann, ckpt.RunRef{Agent: "a"}, ckpt.OperationEnd{Key: "k", Status: ckpt.OperationSucceeded})
	must(t, err)
	sound(t, path)
}

// TestADatabaseThatStoredWhole continues with a database that an older program wrote.
func TestADatabaseThatStoredWhole(t *testing.T) {
	t.Parallel()
	o := options(filepath.Join(t.TempDir(), "ckpt.db"), newClock())
	o.LiveBytes = -1
	s := openWith(t, o)
	keepAll(t, s, "a")
	st := newStory(9)
	for range 20 {
		saveBytes(t, s, "a", "", ckpt.KindRoutine, st.next(3000))
	}
	must(t, s.Close())
	o.LiveBytes = 0
	s = openWith(t, o)
	var saved *ckpt.Saved
	for range 20 {
		saved = saveBytes(t, s, "a", "", ckpt.KindRoutine, st.next(3000))
		if saved.StoredSize*4 > saved.Size {
			t.Errorf("%d bytes of %d were stored", saved.StoredSize, saved.Size)
		}
	}
	page, err := s.Checkpoints(t.Context(), ann, ckpt.CheckpointFilter{Agent: "a", Limit: 100})
	must(t, err)
	for i, c := range page.Checkpoints {
		if i%2 == 0 {
			_, err := s.Delete(t.Context(), ann, c.ID)
			must(t, err)
		}
	}
	sound(t, o.Path)
}
