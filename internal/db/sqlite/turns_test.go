package sqlite

import (
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func pushed(ops ...*Op) *turns {
	var q turns
	for _, o := range ops {
		q.push(o)
	}
	return &q
}

func one(owner string, size int64) *Op { return &Op{Owner: owner, Size: size} }

func owners(batch []*Op) (list []string) {
	for _, o := range batch {
		list = append(list, fmt.Sprintf("%s%d", o.Owner, o.Size))
	}
	return list
}

// TestOwnersTakeTurns: a flood of one owner delays another owner by one
// operation, and each owner's own order is kept.
func TestOwnersTakeTurns(t *testing.T) {
	q := pushed(one("a", 1), one("a", 2), one("a", 3), one("b", 1), one("c", 1), one("b", 2))
	if diff := cmp.Diff([]string{"a1", "b1", "c1", "a2", "b2", "a3"}, owners(q.take(10, 100))); diff != "" {
		t.Error(diff)
	}
	if q.len() != 0 || q.bytes != 0 || q.first() != nil || len(q.owners) != 0 || len(q.order) != 0 {
		t.Errorf("something is left: %+v", q)
	}
}

// TestTurnsGoOnBetweenBatches: a batch begins with an owner that was not served
// last.
func TestTurnsGoOnBetweenBatches(t *testing.T) {
	q := pushed(one("a", 1), one("a", 2), one("a", 3), one("b", 1))
	var got []string
	for q.len() > 0 {
		got = append(got, owners(q.take(1, 100))...)
		if len(got) == 2 {
			q.push(one("c", 1))
		}
	}
	if diff := cmp.Diff([]string{"a1", "b1", "a2", "c1", "a3"}, got); diff != "" {
		t.Error(diff)
	}
}

// TestBatchBounds: a batch is bounded by operations and by bytes, but takes at
// least one operation of any size.
func TestBatchBounds(t *testing.T) {
	q := pushed(one("a", 60), one("a", 30), one("a", 20), one("b", 500), one("b", 1))
	for _, want := range [][]string{{"a60"}, {"b500"}, {"a30", "b1", "a20"}} {
		if diff := cmp.Diff(want, owners(q.take(3, 100))); diff != "" {
			t.Error(diff)
		}
	}
	q = pushed(one("a", 1), one("a", 2), one("a", 3))
	if got := q.take(2, 100); len(got) != 2 || q.len() != 1 || q.bytes != 3 {
		t.Errorf("took %v, left %d of %d bytes", owners(got), q.len(), q.bytes)
	}
}
