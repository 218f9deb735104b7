package db_test

import (
	"fmt"
	"testing"

	ckpt "github.com/ckptsidecar/ckptsidecar"
	"github.com/ckptsidecar/ckptsidecar/internal/db"
	"github.com/ckptsidecar/ckptsidecar/internal/expect"
)

// readAll reads an owner's events after a number, page by page.
func readAll(t *testing.T, s *db.Store, sc ckpt.Scope, after int64, limit int) (list []string, last int64) {
	t.Helper()
	for last = after; ; {
		page, err := s.EventsOf(t.Context(), sc, last, limit)
		expect.OK(t, err)
		for _, e := range page.Events {
			list, last = append(list, fmt.Sprintf("%s/%s/%d", e.Agent, e.Run, e.Seq)), e.N
		}
		if page.Next == nil {
			return list, last
		}
	}
}

// TestEventsOfAllRuns: the events of all runs of an owner come in the order in
// which they were appended, for every page size. Reading after any event
// returns all later ones. The numbers are not valid for another owner, and
// survive a restart.
func TestEventsOfAllRuns(t *testing.T) {
	t.Parallel()
	c := newClock()
	o := options(t.TempDir()+"/ckpt.db", c)
	s := openWith(t, o)
	add := func(sc ckpt.Scope, agent, run string, n int) {
		t.Helper()
		events := make([]ckpt.NewEvent, n)
		for i := range events {
			events[i] = ckpt.NewEvent{Type: "t", Payload: ckpt.JSON(`{"a":1}`)}
		}
		if _, _, err := s.Append(t.Context(), sc, ckpt.RunRef{Agent: agent, Run: run}, events, ""); err != nil {
			t.Fatal(err)
		}
	}
	want := []string{}
	seqs := map[string]int{}
	for i := range 40 {
		agent, run, n := fmt.Sprint("a", i%3), fmt.Sprint("r", i%2), i%4+1
		add(ann, agent, run, n)
		add(bob, "b", "main", 1)
		for range n {
			seqs[agent+run]++
			want = append(want, fmt.Sprintf("%s/%s/%d", agent, run, seqs[agent+run]))
		}
	}
	for _, limit := range []int{1, 2, 7, 1000} {
		got, _ := readAll(t, s, ann, 0, limit)
		expect.Equal(t, fmt.Sprint("in pages of ", limit), fmt.Sprint(got), fmt.Sprint(want))
	}
	page, err := s.EventsOf(t.Context(), ann, 0, 1000)
	expect.OK(t, err)
	numbers := map[int64]bool{}
	for i, e := range page.Events {
		if numbers[e.N] = true; e.N <= 0 || e.N >= 1<<53 {
			t.Errorf("the number %d", e.N)
		}
		rest, _ := readAll(t, s, ann, e.N, 1000)
		expect.Equal(t, "after "+want[i], len(rest), len(want)-i-1)
	}
	expect.Equal(t, "numbers", len(numbers), len(want))
	_, err = s.EventsOf(t.Context(), bob, page.Events[3].N, 1000)
	if ckpt.CodeOf(err) != ckpt.CodeInvalid { // it could be one of his own numbers by chance, but is not here
		t.Errorf("a number of another owner: %v", err)
	}
	_, err = s.EventsOf(t.Context(), ckpt.Scope{Caller: ckpt.Caller{Owner: "uid:0", Admin: true}, Target: ckpt.AllOwners}, 0, 10)
	expect.Code(t, err, ckpt.CodeInvalid)

	_, last := readAll(t, s, ann, 0, 1000)
	expect.OK(t, s.Close())
	s = openWith(t, o)
	add(ann, "a0", "r0", 2)
	rest, last := readAll(t, s, ann, last, 1000)
	expect.Equal(t, "after a restart", fmt.Sprint(rest), fmt.Sprintf("[a0/r0/%d a0/r0/%d]", seqs["a0r0"]+1, seqs["a0r0"]+2))

	// Events that are removed with their run, with their agent or by max_events
	// also leave this order.
	if _, err := s.DeleteRun(t.Context(), ann, ckpt.RunRef{Agent: "a0", Run: "r1"}, false); err != nil {
		t.Fatal(err)
	}
	p, err := s.Policy(t.Context(), ann, "a1")
	expect.OK(t, err)
	p.MaxEvents = 5
	if _, err := s.SetPolicy(t.Context(), ann, "a1", *p); err != nil {
		t.Fatal(err)
	}
	add(ann, "a1", "r0", 3)
	if _, err := s.Erase(t.Context(), ann, "a2"); err != nil {
		t.Fatal(err)
	}
	var batches, dangling int
	expect.OK(t, s.RO.Get(&batches, `SELECT count(*) FROM event_batches WHERE owner = 'uid:1001'`))
	expect.OK(t, s.RO.Get(&dangling, `SELECT count(*) FROM event_batches b WHERE NOT EXISTS (SELECT 1 FROM events e WHERE e.run_id = b.run_id AND e.batch = b.n)`))
	if dangling != 0 || batches == 0 {
		t.Errorf("%d of %d batches have no events", dangling, batches)
	}
	rest, _ = readAll(t, s, ann, last, 1000)
	expect.Equal(t, "after all that", len(rest), 3)
}
