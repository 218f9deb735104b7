package db_test

import (
	"fmt"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"

	ckpt "github.com/ckptsidecar/ckptsidecar"
	"github.com/ckptsidecar/ckptsidecar/internal/expect"
)

func newID(t testing.TB) string {
	t.Helper()
	id, err := uuid.NewV7()
	if err != nil {
		t.Fatal(err)
	}
	return id.String()
}

func TestSaveAndReadBack(t *testing.T) {
	t.Parallel()
	s, clock := open(t)
	large := `{"history":"` + strings.Repeat("all work and no play ", 5000) + `"}`
	for _, state := range []string{`{"b": 1.50, "a":[ ]}`, large, `null`} {
		r := request("writer", ckpt.KindRoutine, state)
		r.Labels = ckpt.Labels{"phase": "one"}
		r.Metadata = []byte(`{"k": [1, 2]}`)
		r.Step = "s1"
		r.Program = &ckpt.Program{Source: "a()\na()\n", Executed: 4}
		saved, err := s.Save(t.Context(), ann, r)
		if err != nil {
			t.Fatal(err)
		}
		c, err := s.Checkpoint(t.Context(), ann, saved.ID, true)
		if err != nil {
			t.Fatal(err)
		}
		if string(c.State) != state || c.SHA256 != hashOf(state) || c.Size != int64(len(state)) {
			t.Errorf("state of %d bytes came back as %d bytes", len(state), len(c.State))
		}
		c.State = nil
		if diff := cmp.Diff(saved.Checkpoint, *c); diff != "" {
			t.Errorf("the answer to the save and the checkpoint differ:\n%s", diff)
		}
		if !c.CreatedAt.Equal(clock.Now()) {
			t.Errorf("created at %s", c.CreatedAt)
		}
	}
}

func TestBinaryStates(t *testing.T) {
	t.Parallel()
	s, _ := open(t)
	for _, size := range []int{0, 1, 4096, 4097, 100_000} {
		state := make([]byte, size)
		for i := range state {
			state[i] = byte(i * i)
		}
		saved, err := s.Save(t.Context(), ann, &ckpt.SaveRequest{Agent: "b", Kind: ckpt.KindRoutine, ContentType: "application/octet-stream", State: state})
		if err != nil {
			t.Fatal(err)
		}
		c, err := s.Checkpoint(t.Context(), ann, saved.ID, true)
		if err != nil {
			t.Fatal(err)
		}
		if string(c.State) != string(state) {
			t.Errorf("%d bytes did not come back", size)
		}
	}
}

func TestSequenceAndParents(t *testing.T) {
	t.Parallel()
	s, _ := open(t)
	var parent ckpt.Ref
	for i := range 5 {
		c := save(t, s, ann, "a", ckpt.KindRoutine, fmt.Sprint(i))
		if c.Seq != int64(i+1) || c.Parent != parent {
			t.Errorf("save %d has seq %d and parent %q, want %d and %q", i, c.Seq, c.Parent, i+1, parent)
		}
		parent = ckpt.Ref(c.ID)
	}
}

func TestFourthRoutinePrunesTheFirst(t *testing.T) {
	t.Parallel()
	s, _ := open(t)
	var ids []string
	for i := range 5 {
		c := save(t, s, ann, "a", ckpt.KindRoutine, fmt.Sprint(i))
		ids = append(ids, c.ID)
		want := []string{}
		if i >= 3 {
			want = ids[i-3 : i-2]
		}
		if diff := cmp.Diff(want, c.Pruned); diff != "" {
			t.Errorf("save %d pruned:\n%s", i+1, diff)
		}
	}
	_, err := s.Checkpoint(t.Context(), ann, ids[0], false)
	wantCode(t, err, ckpt.CodeNotFound)
}

func TestIdempotentSave(t *testing.T) {
	t.Parallel()
	s, _ := open(t)
	r := request("a", ckpt.KindRoutine, `{"x":1}`)
	r.ID = newID(t)
	first, err := s.Save(t.Context(), ann, r)
	if err != nil {
		t.Fatal(err)
	}
	for i := range 5 { // also after retention has removed it
		save(t, s, ann, "a", ckpt.KindRoutine, fmt.Sprint(i))
		again, err := s.Save(t.Context(), ann, r)
		if err != nil {
			t.Fatal(err)
		}
		if !again.Replayed {
			t.Error("the repeated save is not marked as replayed")
		}
		again.Replayed = false
		if diff := cmp.Diff(first, again); diff != "" {
			t.Errorf("the repeated save answers differently:\n%s", diff)
		}
	}
	r.State = []byte(`{"x":2}`)
	_, err = s.Save(t.Context(), ann, r)
	wantCode(t, err, ckpt.CodeIdempotencyMismatch)
}

func TestIdempotencyKeyOfAPost(t *testing.T) {
	t.Parallel()
	s, _ := open(t)
	r := request("a", ckpt.KindRoutine, `1`)
	r.IdempotencyKey = "k1"
	first, err := s.Save(t.Context(), ann, r)
	if err != nil {
		t.Fatal(err)
	}
	again, err := s.Save(t.Context(), ann, r)
	if err != nil {
		t.Fatal(err)
	}
	if again.ID != first.ID || !again.Replayed {
		t.Errorf("the same key saved again: %s and %s", first.ID, again.ID)
	}
	r.Kind = ckpt.KindRecovery
	_, err = s.Save(t.Context(), ann, r)
	wantCode(t, err, ckpt.CodeIdempotencyMismatch)
}

// TestIDOfAnotherAgentIsTaken: an owner can use an id only once, in runs in the
// run cache and in others, and as long as its checkpoint is there.
func TestIDOfAnotherAgentIsTaken(t *testing.T) {
	t.Parallel()
	s, c := open(t)
	r := request("a", ckpt.KindRoutine, `1`)
	r.ID = newID(t)
	if _, err := s.Save(t.Context(), ann, r); err != nil {
		t.Fatal(err)
	}
	for range 4 {
		other := *r
		other.Agent = "b"
		_, err := s.Save(t.Context(), ann, &other)
		wantCode(t, err, ckpt.CodeIdempotencyMismatch)
		save(t, s, ann, "b", ckpt.KindRoutine, `2`)
	}
	c.add(8 * 24 * time.Hour)
	if n, err := s.Expire(t.Context(), c.Now().Add(-7*24*time.Hour), 100); err != nil || n == 0 {
		t.Fatalf("%d ids went, %v", n, err)
	}
	for range 2 { // nothing says any more that the id was used, but the checkpoint
		other := *r
		other.Agent = "c"
		_, err := s.Save(t.Context(), ann, &other)
		wantCode(t, err, ckpt.CodeIdempotencyMismatch)
	}
}

// TestIDsOfOthersTellNothing: an id that another owner uses is still free, and
// each owner reaches his own checkpoint under it. An administrator must name
// the owner.
func TestIDsOfOthersTellNothing(t *testing.T) {
	t.Parallel()
	s, _ := open(t)
	r := request("a", ckpt.KindRoutine, `"ann's"`)
	r.ID = newID(t)
	_, err := s.Save(t.Context(), ann, r)
	must(t, err)
	for _, how := range []string{"the long way", "the short way"} {
		theirs := request("a", ckpt.KindRoutine, `"bob's"`)
		theirs.ID, theirs.Run = r.ID, "main"
		if how == "the short way" {
			theirs.Run = "hot"
			theirs.ID = newID(t)
			mine := request("a", ckpt.KindRoutine, `"ann's"`)
			mine.ID = theirs.ID
			_, err := s.Save(t.Context(), ann, mine)
			must(t, err)
			for range 5 {
				again := request("a", ckpt.KindRoutine, `"before"`)
				again.Run = "hot"
				_, err := s.Save(t.Context(), bob, again)
				must(t, err)
			}
		}
		saved, err := s.Save(t.Context(), bob, theirs)
		if err != nil || saved.Replayed || saved.ID != theirs.ID {
			t.Fatalf("%s: %+v, %v", how, saved, err)
		}
		for _, sc := range []ckpt.Scope{ann, bob} {
			c, err := s.Checkpoint(t.Context(), sc, theirs.ID, true)
			must(t, err)
			if want := map[string]string{ann.Caller.Owner: `"ann's"`, bob.Caller.Owner: `"bob's"`}[sc.Caller.Owner]; string(c.State) != want {
				t.Errorf("%s: %s gets %s", how, sc.Caller.Owner, c.State)
			}
		}
		admin := ckpt.Scope{Caller: ckpt.Caller{Owner: "uid:0", Admin: true}}
		_, err = s.Checkpoint(t.Context(), admin, theirs.ID, false)
		wantCode(t, err, ckpt.CodeConflict)
		admin.Target = bob.Caller.Owner
		if c, err := s.Checkpoint(t.Context(), admin, theirs.ID, false); err != nil || c.Owner != bob.Caller.Owner {
			t.Errorf("%s: %+v, %v", how, c, err)
		}
		_, err = s.Delete(t.Context(), bob, theirs.ID)
		must(t, err)
		if c, err := s.Checkpoint(t.Context(), ann, theirs.ID, true); err != nil || string(c.State) != `"ann's"` {
			t.Errorf("%s: after bob deleted his: %+v, %v", how, c, err)
		}
	}
}

func TestBadSaves(t *testing.T) {
	t.Parallel()
	s, _ := open(t)
	save(t, s, ann, "a", ckpt.KindRoutine, `1`)
	epoch := func(n int64) *int64 { return &n }
	cases := map[string]struct {
		change func(*ckpt.SaveRequest)
		code   ckpt.Code
	}{
		"agent":        {func(r *ckpt.SaveRequest) { r.Agent = "../a" }, ckpt.CodeInvalid},
		"run":          {func(r *ckpt.SaveRequest) { r.Run = "a/b" }, ckpt.CodeInvalid},
		"kind":         {func(r *ckpt.SaveRequest) { r.Kind = "Routine" }, ckpt.CodeInvalid},
		"no kind":      {func(r *ckpt.SaveRequest) { r.Kind = "" }, ckpt.CodeInvalid},
		"id":           {func(r *ckpt.SaveRequest) { r.ID = "x" }, ckpt.CodeInvalid},
		"id version 4": {func(r *ckpt.SaveRequest) { r.ID = uuid.NewString() }, ckpt.CodeInvalid},
		"state":        {func(r *ckpt.SaveRequest) { r.State = []byte(`{"a":1,"a":2}`) }, ckpt.CodeInvalid},
		"metadata":     {func(r *ckpt.SaveRequest) { r.Metadata = []byte(`[]`) }, ckpt.CodeInvalid},
		"metadata size": {func(r *ckpt.SaveRequest) {
			r.Metadata = []byte(`{"a":"` + strings.Repeat("x", ckpt.MaxMetadata) + `"}`)
		}, ckpt.CodeTooLarge},
		"label":        {func(r *ckpt.SaveRequest) { r.Labels = ckpt.Labels{"a b": ""} }, ckpt.CodeInvalid},
		"program":      {func(r *ckpt.SaveRequest) { r.Program = &ckpt.Program{Source: "x", Executed: 2} }, ckpt.CodeInvalid},
		"parent":       {func(r *ckpt.SaveRequest) { r.Parent = ckpt.Ref(newID(t)) }, ckpt.CodeNotFound},
		"old epoch":    {func(r *ckpt.SaveRequest) { r.Epoch = epoch(0) }, ckpt.CodeFenced},
		"future epoch": {func(r *ckpt.SaveRequest) { r.Epoch = epoch(2) }, ckpt.CodeInvalid},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			r := request("a", ckpt.KindRoutine, `2`)
			c.change(r)
			_, err := s.Save(t.Context(), ann, r)
			wantCode(t, err, c.code)
		})
	}
	if got := seqs(t, s, ann, "a"); len(got) != 1 {
		t.Errorf("a refused save left something: %v", got)
	}
}

func TestRefusalsAreRecordedAndHarmNobody(t *testing.T) {
	t.Parallel()
	s, _ := open(t)
	save(t, s, ann, "a", ckpt.KindRoutine, `1`)
	r := request("a", ckpt.KindRoutine, `2`)
	r.Epoch = new(int64)
	_, err := s.Save(t.Context(), ann, r)
	wantCode(t, err, ckpt.CodeFenced)
	page, err := s.Audit(t.Context(), ann, ckpt.AuditFilter{Agent: "a", Action: "save"})
	if err != nil {
		t.Fatal(err)
	}
	last := page.Audit[len(page.Audit)-1]
	if last.Outcome != "fenced" || last.Reason == "" {
		t.Errorf("the refusal is recorded as %+v", last)
	}
}

// TestManyAtOnce: many writers share transactions. Each sees its own saves in
// order, and nothing is lost or mixed up.
func TestManyAtOnce(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "ckpt.db")
	s := openWith(t, options(path, newClock()))
	const writers, saves = 24, 30
	release := blocked(t, s) // on one processor and a fast disk, nobody would wait otherwise
	defer release()
	var wg sync.WaitGroup
	for w := range writers {
		wg.Go(func() {
			agent := fmt.Sprintf("agent%d", w)
			sc := ann
			if w%2 == 1 {
				sc = bob
			}
			for i := range saves {
				c, err := s.Save(t.Context(), sc, request(agent, ckpt.KindRoutine, fmt.Sprintf(`{"w":%d,"i":%d}`, w, i)))
				if err != nil {
					t.Error(err)
					return
				}
				if c.Seq != int64(i+1) {
					t.Errorf("%s: save %d has seq %d", agent, i+1, c.Seq)
				}
				if i%7 == 0 { // a refusal in the same batch must not disturb the others
					r := request(agent, ckpt.KindRoutine, `0`)
					r.Parent = ckpt.Ref(newID(t))
					_, err := s.Save(t.Context(), sc, r)
					wantCode(t, err, ckpt.CodeNotFound)
				}
			}
		})
	}
	expect.Soon(t, "two writers to wait", func() bool { return s.Waiting() > 1 })
	release()
	wg.Wait()
	st, err := s.Status(t.Context(), root)
	if err != nil {
		t.Fatal(err)
	}
	if st.Counts[ckpt.KindRoutine] != writers*3 || st.Agents != writers {
		t.Errorf("%d routine checkpoints of %d agents", st.Counts[ckpt.KindRoutine], st.Agents)
	}
	if st.Writer.Commits >= st.Writer.Operations {
		t.Errorf("%d commits for %d operations: none was shared", st.Writer.Commits, st.Writer.Operations)
	}
	sound(t, path)
}

func TestCommitDoesNotEndWithTheCaller(t *testing.T) {
	t.Parallel()
	s, _ := open(t)
	ctx, cancel := contextWithCancel(t)
	cancel()
	if _, err := s.Save(ctx, ann, request("a", ckpt.KindRoutine, `1`)); err != nil {
		t.Fatal(err)
	}
	if got := seqs(t, s, ann, "a"); len(got) != 1 {
		t.Error("the save of a client that hung up is not there")
	}
}

func TestReopen(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "ckpt.db")
	c := newClock()
	s := openWith(t, options(path, c))
	var last *ckpt.Saved
	for i := range 4 {
		last = save(t, s, ann, "a", ckpt.KindRoutine, fmt.Sprint(i))
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	_, err := s.Save(t.Context(), ann, request("a", ckpt.KindRoutine, `1`))
	wantCode(t, err, ckpt.CodeBusy)
	c.add(time.Hour)
	s = openWith(t, options(path, c))
	next := save(t, s, ann, "a", ckpt.KindRoutine, `"next"`)
	if next.Seq != 5 || string(next.Parent) != last.ID {
		t.Errorf("after a restart: seq %d, parent %s", next.Seq, next.Parent)
	}
	sound(t, path)
}
