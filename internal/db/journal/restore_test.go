package journal_test

import (
	"bytes"
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/jmoiron/sqlx"

	ckpt "github.com/ckptsidecar/ckptsidecar"
	"github.com/ckptsidecar/ckptsidecar/internal/db"
	"github.com/ckptsidecar/ckptsidecar/internal/db/copy"
	"github.com/ckptsidecar/ckptsidecar/internal/db/journal"
	"github.com/ckptsidecar/ckptsidecar/internal/fleet"
	"github.com/ckptsidecar/ckptsidecar/internal/resume"
	"github.com/ckptsidecar/ckptsidecar/internal/retention"
)

// TestRestore restores any history from the engine, and checks that everything
// is there.
func TestRestore(t *testing.T) {
	for _, seed := range seeds() {
		t.Run(fmt.Sprint("seed=", seed), func(t *testing.T) {
			w := newWorld(t, seed)
			for range 12 {
				for range 1 + w.lots.IntN(16) {
					w.act()
				}
				w.ship([]int{4000, 5}[w.lots.IntN(2)])
			}
			s, err := db.Open(t.Context(), db.Options{Path: filepath.Join(t.TempDir(), "new.db"), Retention: retention.Plan, Resume: resume.Make, Version: "test"})
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = s.Close() })
			w.bringBack(s)
			before, after := held(t, w.store), held(t, s)
			if diff := cmp.Diff(before, after); diff != "" {
				t.Fatalf("what came back (+) is not what was there (-):\n%.6000s", diff)
			}
			t.Log(len(after), "rows came back")
		})
	}
}

// bringBack reads from the engine everything that the world's host has, and
// imports it into another store.
func (w *world) bringBack(s *db.Store) {
	w.t.Helper()
	ctx := w.t.Context()
	page, err := w.engine.Runs(ctx, fleet.RunsQuery{Limit: 1000})
	if err != nil {
		w.t.Fatal(err)
	}
	agents := map[string][]fleet.LostAgent{} // by owner
	for _, r := range page.Runs {
		found, err := w.engine.Find(ctx, fleet.ClaimRequest{Agent: r.Agent, UID: r.UID})
		if err != nil || len(found) != 1 {
			w.t.Fatalf("%+v, %v", found, err)
		}
		found[0].Here = r.Owner
		agents[r.Owner] = append(agents[r.Owner], found[0].Lost(1))
	}
	for _, owner := range []string{"uid:1001", "uid:1002"} {
		mine := joined(agents[owner])
		if len(mine) == 0 {
			continue
		}
		text := &bytes.Buffer{}
		if damaged, err := journal.WriteLost(text, mine, func(r *fleet.LostRun) error { return w.engine.Fill(ctx, r) }); err != nil || len(damaged) > 0 {
			w.t.Fatalf("%v, damaged are %+v", err, damaged)
		}
		root := ckpt.Scope{Caller: ckpt.Caller{Owner: "uid:0", Admin: true}, Target: owner}
		if _, err := s.ImportKept(ctx, root, text, journal.KeepRuns(mine)); err != nil {
			w.t.Fatal(err)
		}
	}
}

// joined puts the runs of one agent together.
func joined(runs []fleet.LostAgent) (agents []fleet.LostAgent) {
	for _, a := range runs {
		i := slices.IndexFunc(agents, func(b fleet.LostAgent) bool { return b.Name == a.Name })
		if i < 0 {
			agents = append(agents, a)
			continue
		}
		agents[i].Runs = append(agents[i].Runs, a.Runs...)
	}
	return agents
}

// held describes what a restore must bring back.
func held(t *testing.T, s *db.Store) (list []string) {
	t.Helper()
	err := s.Reading(t.Context(), func(q *sqlx.Tx) error {
		if err := heldRows(t.Context(), q, &list); err != nil {
			return err
		}
		for _, query := range []string{
			`SELECT 'agent ' || owner || ' ' || name || ' ' || policy FROM agents WHERE id IN (SELECT agent_id FROM runs)`,
			`SELECT 'run ' || uid || ' ' || name || ' ' || status || ' ' || last_seq || ' ' || last_event || ' ' || coalesce(head, '') FROM runs`,
			`SELECT 'state ' || r.uid || ' ' || c.id || ' ' || c.seq || ' ' || c.kind || ' ' || c.suspect || ' ' || c.pinned || ' ' || c.labels || ' ' || c.sha256 FROM checkpoints c JOIN runs r ON r.id = c.run_id`,
		} {
			var more []string
			if err := q.SelectContext(t.Context(), &more, query); err != nil {
				return err
			}
			list = append(list, more...)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	slices.Sort(list)
	return list
}

func heldRows(ctx context.Context, q *sqlx.Tx, list *[]string) error {
	var runs []struct {
		ID  int64  `db:"id"`
		UID string `db:"uid"`
	}
	if err := q.SelectContext(ctx, &runs, `SELECT id, uid FROM runs`); err != nil {
		return err
	}
	for _, r := range runs {
		rows, err := copy.RowsOf(ctx, q, r.ID, nil)
		if err != nil {
			return err
		}
		for _, row := range rows {
			if !strings.Contains(row.Key, "ckptsidecar.import") { // the import adds these, because a person must decide
				*list = append(*list, fmt.Sprint(row.Kind, " ", r.UID, " ", row.Key, " ", row.Text))
			}
		}
	}
	return nil
}
