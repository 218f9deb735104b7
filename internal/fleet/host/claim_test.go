package host

import (
	"log/slog"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	ckpt "github.com/ckptsidecar/ckptsidecar"
	"github.com/ckptsidecar/ckptsidecar/internal/db"
	"github.com/ckptsidecar/ckptsidecar/internal/db/journal"
	"github.com/ckptsidecar/ckptsidecar/internal/fleet"
	"github.com/ckptsidecar/ckptsidecar/internal/fleet/pg"
)

var fleetAdmin = ckpt.Scope{Caller: ckpt.Caller{Owner: "uid:0", PID: 12, Admin: true}, Target: "uid:0", Reason: "test"}

func claimantOf(s *db.Store, url, name string) *claimant {
	return &claimant{url: func() (string, error) { return url, nil }, store: s, host: fleet.Host{DB: s.ID, Name: name},
		who: func() *fleet.Identities { return &fleet.Identities{DB: s.ID} }, turns: newTurns(), log: slog.New(slog.DiscardHandler)}
}

func wantRefused(t *testing.T, err error, code ckpt.Code, says string) {
	t.Helper()
	if ckpt.CodeOf(err) != code || !strings.Contains(err.Error(), says) {
		t.Errorf("answered %v, want %s with %q", err, code, says)
	}
}

func saveOne(s *db.Store, t *testing.T, run, state string) error {
	t.Helper()
	_, err := s.Save(t.Context(), fleetUser, &ckpt.SaveRequest{Agent: "a", Run: run, Kind: ckpt.KindRoutine, ContentType: ckpt.ContentTypeJSON, State: []byte(state)})
	return err
}

// TestFleetClaim claims a run from a host that falls silent, and lets that host
// come back. What it did in the meantime is shown until a person deletes the run.
func TestFleetClaim(t *testing.T) {
	t.Parallel()
	whole := t
	server, url := fleetEngine(t)
	path := filepath.Join(t.TempDir(), "ckpt.db")
	one := openFleetStore(t, path)
	newest := work(t, one)
	old := shipperOf(one, url, "one")
	defer old.hangUp()
	if err := old.once(t.Context()); err != nil {
		t.Fatal(err)
	}
	two := openFleetStore(t, filepath.Join(t.TempDir(), "two.db"))
	c := claimantOf(two, url, "two")
	ask := fleet.ClaimRequest{Agent: "a", Run: "main", Owner: "uid:1001"}
	forced := ask
	forced.Force = true

	t.Run("refused before anything changes", func(t *testing.T) {
		_, err := c.Claim(t.Context(), fleetUser, forced)
		wantRefused(t, err, ckpt.CodeDenied, "administrator")
		_, err = c.Claim(t.Context(), fleetAdmin, fleet.ClaimRequest{Agent: "nobody", Force: true})
		wantRefused(t, err, ckpt.CodeNotFound, "no run that fits")
		_, err = c.Claim(t.Context(), fleetAdmin, fleet.ClaimRequest{Agent: "a", Force: true})
		wantRefused(t, err, ckpt.CodeConflict, "a/main of uid:1002 on host one")
		_, err = c.Claim(t.Context(), fleetAdmin, ask)
		wantRefused(t, err, ckpt.CodeConflict, "--force")
		busy := openFleetStore(t, filepath.Join(t.TempDir(), "busy.db"))
		if err := saveOne(busy, t, "main", `{}`); err != nil {
			t.Fatal(err)
		}
		unnamed := forced
		unnamed.Run = ""
		for _, r := range []fleet.ClaimRequest{forced, unnamed} {
			_, err = claimantOf(busy, url, "busy").Claim(t.Context(), fleetAdmin, r)
			wantRefused(t, err, ckpt.CodeConflict, "a has a run main of its own on this host: delete that one (export it first, if you need it)")
		}
		if got := server.Rows("fleet", `SELECT count(*) FROM fleet_claims`); got[0] != "0" {
			t.Errorf("claims that were refused left %s rows", got[0])
		}
	})

	done, err := c.Claim(t.Context(), fleetAdmin, forced)
	if err != nil || done.Checkpoints != 4 || done.Term != 1 || done.From != "one" || done.Uncertain == "" {
		t.Fatalf("the claim answers %+v, %v", done, err)
	}
	_, err = c.Claim(t.Context(), fleetAdmin, forced)
	wantRefused(t, err, ckpt.CodeConflict, "on this host already")
	restoredGoesOn(t, two, newest)
	next := shipperOf(two, url, "two")
	defer next.hangUp()
	if err := next.once(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got := server.Rows("fleet", `SELECT DISTINCT db FROM fleet_checkpoints WHERE term = 1`); len(got) != 1 || got[0] != two.ID {
		t.Errorf("the run's checkpoints are of %q", got)
	}

	t.Run("the former host is fenced", func(t *testing.T) {
		if err := saveOne(one, t, "main", `{"strand":true}`); err != nil {
			t.Fatal(err) // it does not know about the claim yet
		}
		if err := old.once(t.Context()); err != nil {
			t.Fatal(err)
		}
		wantRefused(t, saveOne(one, t, "main", `{}`), ckpt.CodeFenced, "host two of the fleet has claimed run main (term 1): stop this agent; an administrator sees")
		if err := saveOne(one, t, "other", `{}`); err != nil {
			t.Errorf("a run that nobody has claimed is refused: %v", err)
		}
		_, err := claimantOf(one, url, "one").Claim(t.Context(), fleetAdmin, forced)
		wantRefused(t, err, ckpt.CodeConflict, "what this host had of it is still here: keep them with `ckptsidecar export a -o FILE`")
	})
	t.Run("also after a restart without the engine", func(t *testing.T) {
		word := path + wordSuffix
		old.wordFile = word
		old.hangUp()
		if err := old.once(t.Context()); err != nil {
			t.Fatal(err)
		}
		old.keepWord(true)
		if err := one.Close(); err != nil {
			t.Fatal(err)
		}
		one = openFleetStore(whole, path)
		taken, err := fenceAsBefore(t.Context(), word, journal.New(one.Core), one.ID)
		if err != nil || len(taken) != 1 || taken[0].Host != "two" {
			t.Fatalf("the file says %+v, %v", taken, err)
		}
		wantRefused(t, saveOne(one, t, "main", `{}`), ckpt.CodeFenced, "has claimed run main")
	})
	old = shipperOf(one, url, "one")
	strands := func() []fleet.Strand {
		t.Helper()
		again(t, old)
		all, err := old.strands(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		return all
	}
	if all := strands(); len(all) != 1 || all[0].Checkpoints != 1 || all[0].Host != "two" || all[0].Run != "main" {
		t.Errorf("only here are %+v", all)
	}
	if _, err := one.DeleteRun(t.Context(), fleetUser, ckpt.RunRef{Agent: "a", Run: "main"}, false); err != nil {
		t.Fatal(err)
	}
	if all := strands(); len(all) > 0 {
		t.Errorf("after the run was deleted, only here are %+v", all)
	}
}

// TestInterruptedClaim: if a host dies after the engine has given it a run,
// repeating the claim brings the run. If two hosts claim at the same time, one
// of them gets the run.
func TestInterruptedClaim(t *testing.T) {
	t.Parallel()
	server, url := fleetEngine(t)
	one := openFleetStore(t, filepath.Join(t.TempDir(), "one.db"))
	if _, err := one.SetOwnPolicy(t.Context(), fleetUser, "a", []byte(`{"takeover":"auto"}`)); err != nil {
		t.Fatal(err)
	}
	work(t, one)
	if err := saveOne(one, t, "other", `{"n":1}`); err != nil {
		t.Fatal(err)
	}
	old := shipperOf(one, url, "one")
	defer old.hangUp()
	if err := old.once(t.Context()); err != nil {
		t.Fatal(err)
	}
	var claimants []*claimant
	for _, name := range []string{"two", "three"} {
		claimants = append(claimants, claimantOf(openFleetStore(t, filepath.Join(t.TempDir(), name+".db")), url, name))
	}

	two := claimants[0]
	e, err := two.dial(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer e.Close()
	ask := fleet.ClaimRequest{Agent: "a", Run: "main", Owner: "uid:1001", Force: true}
	found, err := e.Find(t.Context(), ask)
	if err != nil || len(found) != 1 {
		t.Fatalf("found %+v, %v", found, err)
	}
	if _, err := e.Claim(t.Context(), fleet.Claim{Run: &found[0], To: two.host.DB, By: "uid:0", Ground: fleet.GroundForced}); err != nil {
		t.Fatal(err)
	}
	again := func(what string) {
		t.Helper()
		if done, err := two.Claim(t.Context(), fleetAdmin, ask); err != nil || done.Checkpoints != 4 || done.Term != 1 {
			t.Errorf("%s: the claim again answers %+v, %v", what, done, err)
		}
	}
	again("the claimant died before it had anything of the run")

	ask.Run = "other"
	var wg sync.WaitGroup
	errs := make([]error, len(claimants))
	for i, c := range claimants {
		wg.Go(func() { _, errs[i] = c.Claim(t.Context(), fleetAdmin, ask) })
	}
	wg.Wait()
	won := 0
	for i, err := range errs {
		_, has := claimants[i].store.Run(t.Context(), fleetUser, ckpt.RunRef{Agent: "a", Run: "other"})
		switch {
		case err == nil && has == nil:
			won++
		case err == nil || has == nil:
			t.Errorf("host %d: the claim answers %v, and the run there %v", i, err, has)
		case ckpt.CodeOf(err) == ckpt.CodeBusy && strings.Contains(err.Error(), "the engine did not say"): // a slow machine
		case ckpt.CodeOf(err) != ckpt.CodeConflict && !pg.IsUnknown(err):
			t.Errorf("the loser is answered %v", err)
		}
	}
	if got := server.Rows("fleet", `SELECT term FROM fleet_runs WHERE run = 'other'`); won < 1 || len(got) != 1 {
		t.Errorf("%d hosts won, the terms are %q: %v", won, got, errs)
	}
}
