package db_test

import (
	"encoding/json"
	"fmt"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	ckpt "github.com/ckptsidecar/ckptsidecar"
)

// TestSameKeyAtOnce: sixteen clients save with the same id at once; the result is one row and one answer.
func TestSameKeyAtOnce(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "ckpt.db")
	s := openWith(t, options(path, newClock()))
	r := request("a", ckpt.KindRoutine, `{"x":1}`)
	r.ID = newID(t)
	var wg sync.WaitGroup
	answers := make([]*ckpt.Saved, 16)
	for i := range answers {
		wg.Go(func() {
			mine := *r
			var err error
			if answers[i], err = s.Save(t.Context(), ann, &mine); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	first := 0
	for _, a := range answers {
		if !a.Replayed {
			first++
		}
		a.Replayed = false
		if diff := cmp.Diff(answers[0], a); diff != "" {
			t.Errorf("two answers differ:\n%s", diff)
		}
	}
	if got := seqs(t, s, ann, "a"); first != 1 || len(got) != 1 {
		t.Errorf("%d first answers, %v", first, got)
	}
	sound(t, path)
}

// TestEachPartOfARequestCounts: a request with the same key is another request if any part differs.
func TestEachPartOfARequestCounts(t *testing.T) {
	t.Parallel()
	s, _ := open(t)
	parent := save(t, s, ann, "a", ckpt.KindRecovery, `0`)
	make := func() *ckpt.SaveRequest {
		r := request("a", ckpt.KindRoutine, `1`)
		r.IdempotencyKey = "key"
		return r
	}
	if _, err := s.Save(t.Context(), ann, make()); err != nil {
		t.Fatal(err)
	}
	for name, change := range map[string]func(*ckpt.SaveRequest){
		"state":    func(r *ckpt.SaveRequest) { r.State = []byte(`1 `) },
		"run":      func(r *ckpt.SaveRequest) { r.Run = "other" },
		"kind":     func(r *ckpt.SaveRequest) { r.Kind = ckpt.KindRecovery },
		"parent":   func(r *ckpt.SaveRequest) { r.Parent = ckpt.Ref(parent.ID) },
		"step":     func(r *ckpt.SaveRequest) { r.Step = "s" },
		"labels":   func(r *ckpt.SaveRequest) { r.Labels = ckpt.Labels{"a": "b"} },
		"metadata": func(r *ckpt.SaveRequest) { r.Metadata = []byte(`{"a":1}`) },
		"program":  func(r *ckpt.SaveRequest) { r.Program = &ckpt.Program{Source: "x"} },
		"type":     func(r *ckpt.SaveRequest) { r.ContentType = "application/x+json" },
	} {
		r := make()
		change(r)
		if _, err := s.Save(t.Context(), ann, r); ckpt.CodeOf(err) != ckpt.CodeIdempotencyMismatch {
			t.Errorf("another %s under the same key: %v", name, err)
		}
	}
	if again, err := s.Save(t.Context(), ann, make()); err != nil || !again.Replayed {
		t.Errorf("the same request: %v", err)
	}
}

// TestKeysOfRestoreAndPrune: a repeated restore or prune is done once, and its first answer is replayed.
func TestKeysOfRestoreAndPrune(t *testing.T) {
	t.Parallel()
	s, c := open(t)
	first := save(t, s, ann, "a", ckpt.KindRecovery, `"first"`)
	restore := ckpt.RestoreRequest{Agent: "a", IdempotencyKey: "r", Reason: "why"}
	_, replayed, err := s.Restore(t.Context(), ann, restore)
	must(t, err)
	later := save(t, s, ann, "a", ckpt.KindRecovery, `"later"`)
	got, again, err := s.Restore(t.Context(), ann, restore)
	must(t, err)
	if replayed || !again || got.ID != first.ID || string(got.State) != `"first"` {
		t.Errorf("the second restore answers %+v, replayed %t", got, again)
	}
	if next := save(t, s, ann, "a", ckpt.KindRecovery, `1`); string(next.Parent) != later.ID {
		t.Error("a replayed restore has moved the head")
	}
	restore.Reason = "another"
	_, _, err = s.Restore(t.Context(), ann, restore)
	wantCode(t, err, ckpt.CodeIdempotencyMismatch)

	c.add(8 * ckpt.Day)
	save(t, s, ann, "a", ckpt.KindRecovery, `"new"`)
	request := ckpt.PruneRequest{Agent: "a"}
	report, replayed, err := s.Prune(t.Context(), ann, request, "p")
	must(t, err)
	if len(report.Removed) == 0 || replayed {
		t.Fatalf("%+v", report)
	}
	second, replayed, err := s.Prune(t.Context(), ann, request, "p")
	must(t, err)
	if diff := cmp.Diff(report, second); diff != "" || !replayed {
		t.Errorf("the second prune, replayed %t: %s", replayed, diff)
	}
	request.DryRun = true
	_, _, err = s.Prune(t.Context(), ann, request, "p")
	wantCode(t, err, ckpt.CodeIdempotencyMismatch)
	_, _, err = s.Restore(t.Context(), ann, ckpt.RestoreRequest{Agent: "a", IdempotencyKey: "p"})
	wantCode(t, err, ckpt.CodeIdempotencyMismatch)
}

// TestKeysOfTwoOwners: a key of one owner does not affect another owner, even in calls that name no agent.
func TestKeysOfTwoOwners(t *testing.T) {
	t.Parallel()
	s, _ := open(t)
	for _, sc := range []ckpt.Scope{ann, bob} {
		save(t, s, sc, "a", ckpt.KindRoutine, `1`)
		if _, replayed, err := s.Prune(t.Context(), sc, ckpt.PruneRequest{}, "nightly"); err != nil || replayed {
			t.Errorf("%s: replayed %t, %v", sc.Owner, replayed, err)
		}
		r := request("a", ckpt.KindRoutine, `"`+sc.Owner+`"`)
		r.IdempotencyKey = "k"
		if saved, err := s.Save(t.Context(), sc, r); err != nil || saved.Replayed {
			t.Errorf("%s: %v", sc.Owner, err)
		}
	}
}

// TestExpiredKeys: the oldest keys are forgotten first, in bounded portions. An id stays taken as long as its
// checkpoint exists.
func TestExpiredKeys(t *testing.T) {
	t.Parallel()
	s, c := open(t)
	old := c.Now()
	r := request("a", ckpt.KindRecovery, `1`)
	r.ID = newID(t)
	_, err := s.Save(t.Context(), ann, r)
	must(t, err)
	keyed := func(key string) *ckpt.Saved {
		r := request("a", ckpt.KindRecovery, `2`)
		r.IdempotencyKey = key
		saved, err := s.Save(t.Context(), ann, r)
		must(t, err)
		return saved
	}
	for i := range 5 {
		keyed(fmt.Sprint(i))
	}
	c.add(time.Hour)
	keyed("young")
	for _, want := range []int{5, 1, 0} { // at most 4 of each kind, of five keys and one id
		if n, err := s.Expire(t.Context(), old.Add(time.Minute), 4); err != nil || n != want {
			t.Errorf("%d forgotten, want %d, %v", n, want, err)
		}
	}
	if keyed("0").Replayed || !keyed("young").Replayed {
		t.Error("the wrong keys were forgotten")
	}
	_, err = s.Save(t.Context(), ann, r)
	wantCode(t, err, ckpt.CodeIdempotencyMismatch)
}

// TestKeysOfStepsAreSmall: what is kept with the key of a step does not repeat what the request and the step's row have. A repeated request
// gets the same answer, byte for byte.
func TestKeysOfStepsAreSmall(t *testing.T) {
	t.Parallel()
	s, _, _ := openRuns(t)
	ref, big := ckpt.RunRef{Agent: "a"}, ckpt.JSON(`"`+strings.Repeat("x", 4000)+`"`)
	begin := func(key, id string, status ckpt.StepStatus) ckpt.StepRequest {
		r := ckpt.StepRequest{Key: key, Name: "tool", Args: big, Status: status, IdempotencyKey: id}
		if status != "" {
			r.Result = big
		}
		return r
	}
	type call struct {
		r      ckpt.StepRequest
		finish bool
	}
	var calls []call
	for i := range 20 {
		key := fmt.Sprint("step", i)
		calls = append(calls, call{begin(key, fmt.Sprint("begin", i), ""), false},
			call{ckpt.StepRequest{Key: key, Status: ckpt.StepFailed, Result: big, Error: ckpt.Ref(big[1:3000]), IdempotencyKey: fmt.Sprint("fail", i)}, true},
			call{begin(key, fmt.Sprint("again", i), ""), false},
			call{ckpt.StepRequest{Key: key, Result: big, IdempotencyKey: fmt.Sprint("finish", i)}, true},
			call{begin(key+"whole", fmt.Sprint("whole", i), ckpt.StepSucceeded), false})
	}
	answer := func(c call) (string, bool) {
		do := s.BeginStep
		if c.finish {
			do = s.FinishStep
		}
		step, replayed, err := do(t.Context(), ann, ref, c.r)
		must(t, err)
		step.Drift = nil
		b, err := json.Marshal(step)
		must(t, err)
		return string(b), replayed
	}
	var first []string
	for _, c := range calls {
		got, replayed := answer(c)
		if first = append(first, got); replayed {
			t.Error("a first request is answered as a repeated one")
		}
	}
	for i, c := range calls {
		if got, replayed := answer(c); !replayed || got != first[i] {
			t.Errorf("the request %s is answered %.200s, and was answered %.200s", c.r.IdempotencyKey, got, first[i])
		}
	}
	if got := sqlite3(t, "-readonly", pathOf(s), `SELECT count(*), max(length(reply)) < 150, sum(length(key) + length(fingerprint) + length(reply)) < 100 * 150 FROM idempotency`); got != "100|1|1" {
		t.Errorf("keys, and whether they are small: %s", got)
	}
}
