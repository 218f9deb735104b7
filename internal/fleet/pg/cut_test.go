package pg_test

import (
	"fmt"
	"slices"
	"testing"

	"github.com/ckptsidecar/ckptsidecar/internal/fleet"
	"github.com/ckptsidecar/ckptsidecar/internal/fleet/pg"
	"github.com/ckptsidecar/ckptsidecar/internal/fleet/pgtest"
)

// cuts is how many places of a batch are tried in each direction.
const cuts = 40

// TestCutConnection is part of T6: the connection breaks at many places in a
// batch and in its answer. A batch that is acknowledged as shipped is there.
// After an error the mark tells whether it is there. A batch is always there
// completely or not at all.
func TestCutConnection(t *testing.T) {
	t.Parallel()
	s := pgtest.Start(t)
	migrated(t, s.Database("fleet")).Close()
	relay := s.Relay()
	at := int64(0)
	shipOnce := func(way, after int) error {
		t.Helper()
		e, err := pg.Dial(t.Context(), relay.URL("fleet"))
		if err != nil {
			t.Fatal(err)
		}
		defer e.Close()
		if m := register(t, e, "db1"); m.N != at {
			t.Fatalf("the mark is %v, want %d", m, at)
		}
		relay.Cut(way, after)
		_, err = e.Ship(t.Context(), "db1", batch(at, at+1))
		return err
	}
	if err := shipOnce(pgtest.ToServer, 0); err != nil {
		t.Fatal(err)
	}
	at++
	up, down := relay.Cut(pgtest.ToServer, 0)
	t.Logf("a batch has %d bytes, and its answer %d", up, down)
	there, lost := 0, 0 // batches whose answer was cut off, by what became of them
	for way, size := range []int{up, down} {
		for after := 1; after < size; after += max(1, size/cuts) {
			err := shipOnce(way, after)
			relay.Cut(pgtest.ToServer, 0)
			s.Wait("the engine has noticed", `SELECT count(*) = 0 FROM pg_stat_activity WHERE application_name = 'ckptsidecar'`)
			committed := isThere(t, s, at)
			what := fmt.Sprintf("cut after %d of %d bytes, direction %d: %v", after, size, way, err)
			switch {
			case err == nil && !committed:
				t.Fatalf("%s: it is believed, and is not there", what)
			case err != nil && !pg.IsUnknown(err):
				t.Fatalf("%s: it is not taken for unknown", what)
			case err != nil && committed:
				there++
			case err != nil:
				lost++
				if err := shipOnce(pgtest.ToServer, 0); err != nil {
					t.Fatalf("%s: again: %v", what, err)
				}
			}
			at++
		}
	}
	if there < cuts/4 || lost < cuts/4 {
		t.Errorf("%d batches were committed without an answer, and %d were not committed: one of both was hardly tried", there, lost)
	}
	var want []string
	for n := range at {
		want = append(want, fmt.Sprint(n+1))
	}
	for _, query := range []string{`SELECT n FROM fleet_audit ORDER BY n`, `SELECT n FROM fleet_checkpoints ORDER BY n`} {
		if got := s.Rows("fleet", query); !slices.Equal(got, want) {
			t.Errorf("%s: %q", query, got)
		}
	}
}

// isThere reports whether the batch after a row is there. It fails the test if
// only a part is there.
func isThere(t *testing.T, s *pgtest.Server, after int64) bool {
	t.Helper()
	next := fleet.Mark{N: after + 1, Hash: fmt.Sprint("hash", after+1)}
	got := s.Rows("fleet", fmt.Sprintf(`SELECT (SELECT count(*) FROM fleet_marks WHERE mark_n = %d AND mark_hash = '%s'), (SELECT count(*) FROM fleet_audit WHERE n = %d),
		(SELECT count(*) FROM fleet_checkpoints WHERE n = %d), (SELECT count(*) FROM fleet_runs WHERE as_of_n = %d)`, next.N, next.Hash, next.N, next.N, next.N))[0]
	if got != "1 1 1 1" && got != "0 0 0 0" {
		t.Fatalf("a part of a batch is there: mark, log, checkpoint and run are %s", got)
	}
	return got == "1 1 1 1"
}
