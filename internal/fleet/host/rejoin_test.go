package host

import (
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	ckpt "github.com/ckptsidecar/ckptsidecar"
	"github.com/ckptsidecar/ckptsidecar/internal/fleet"
)

// TestFleetRejoin replaces a host's database with an older copy. The host ships nothing until it joins again. What
// it did on the older copy is a strand, and what the engine has comes back with a claim.
func TestFleetRejoin(t *testing.T) {
	t.Parallel()
	server, url := fleetEngine(t)
	path := filepath.Join(t.TempDir(), "ckpt.db")
	c := configOf(path, "again", "")
	if _, err := Rejoin(t.Context(), url, true, c); ckpt.CodeOf(err) != ckpt.CodeNotFound {
		t.Errorf("without a database: %v", err)
	}
	if left, err := os.ReadDir(filepath.Dir(path)); err != nil || len(left) > 0 {
		t.Errorf("it left %v, %v", left, err)
	}
	s := openFleetStore(t, path)
	save := func(run, state string) {
		t.Helper()
		if err := saveOne(s, t, run, state); err != nil {
			t.Fatal(err)
		}
	}
	save("main", `{"n":1}`)
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := Rejoin(t.Context(), url, false, c); ckpt.CodeOf(err) != ckpt.CodeConflict || !strings.Contains(err.Error(), "does not know this database") {
		t.Errorf("a database that the engine does not know: %v", err)
	}
	s = openFleetStore(t, path)
	ship := shipperOf(s, url, "first")
	again(t, ship)
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	old, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	s = openFleetStore(t, path)
	save("main", `{"n":2}`)
	ship = shipperOf(s, url, "first")
	again(t, ship)
	ship.hangUp()
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := Rejoin(t.Context(), url, false, c); ckpt.CodeOf(err) != ckpt.CodeConflict || !strings.Contains(err.Error(), "nothing to settle") {
		t.Errorf("a host that is not split is told %v", err)
	}
	putBack(t, path, old)
	s = openFleetStore(t, path)
	save("main", `{"n":"strand"}`)
	ship = shipperOf(s, url, "first")
	if err := ship.once(t.Context()); !errors.Is(err, errSplit) || !strings.Contains(err.Error(), "fleet rejoin") {
		t.Fatalf("with an older copy shipping answers %v", err)
	}
	ship.hangUp()
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}

	done, err := Rejoin(t.Context(), url, false, c)
	if err != nil || done.From != s.ID || done.To == s.ID || done.Common == 0 {
		t.Fatalf("joining anew answers %+v, %v", done, err)
	}
	s = openFleetStore(t, path)
	if s.FleetID() != done.To {
		t.Fatalf("the database is %s in the fleet, want %s", s.FleetID(), done.To)
	}
	ship = shipperOf(s, url, "again")
	ship.host.DB = s.FleetID()
	t.Cleanup(func() { ship.hangUp() })
	again(t, ship)
	wantRefused(t, saveOne(s, t, "main", `{}`), ckpt.CodeFenced, "main")
	save("fresh", `{"n":1}`)
	again(t, ship)
	if got := server.Rows("fleet", `SELECT run, seq FROM fleet_runs WHERE host = '`+done.To+`'`); len(got) != 1 || got[0] != "fresh 1" {
		t.Errorf("under its new id the host has %q", got)
	}
	takeover := func(policy, host, want string) {
		t.Helper()
		if _, err := s.SetOwnPolicy(t.Context(), fleetUser, "a", []byte(`{"takeover":"`+policy+`"}`)); err != nil {
			t.Fatal(err)
		}
		again(t, ship)
		if got := server.Rows("fleet", `SELECT host, takeover FROM fleet_agents`); len(got) != 1 || got[0] != host+" "+want {
			t.Errorf("after takeover: %s the engine has the agents %q, want takeover %s of %s", policy, got, want, host)
		}
	}
	takeover("never", done.To, "never")
	server.Exec("fleet", `UPDATE fleet_agents SET host = '`+s.ID+`'; UPDATE fleet_marks SET seen_at = clock_timestamp() WHERE db = '`+s.ID+`'`)
	takeover("auto", s.ID, "never") // another machine works under the former id
	server.Exec("fleet", `UPDATE fleet_agents SET host = '`+done.To+`'`)
	takeover("manual", done.To, "manual")
	claim := &claimant{url: ship.url, store: s, host: ship.host, who: ship.identities, turns: newTurns(), log: slog.New(slog.DiscardHandler)}
	strands, err := claim.Strands(t.Context(), fleetAdmin)
	if err != nil || len(strands.Strands) != 1 || strands.Strands[0].Checkpoints != 1 || strands.Strands[0].How != fleet.HowRejoined {
		t.Fatalf("the strands are %+v, %v", strands, err)
	}
	adopted, err := claim.Decide(t.Context(), fleetAdmin, strands.Strands[0].UID, fleet.StrandDecision{Decision: fleet.Adopted})
	if err != nil || adopted.Into == "" {
		t.Fatalf("adopting answers %+v, %v", adopted, err)
	}
	if _, err := claim.Decide(t.Context(), fleetAdmin, strands.Strands[0].UID, fleet.StrandDecision{Decision: fleet.Dropped}); ckpt.CodeOf(err) != ckpt.CodeConflict {
		t.Errorf("a strand is decided about twice: %v", err)
	}
	if _, err := s.DeleteRun(t.Context(), fleetUser, ckpt.RunRef{Agent: "a", Run: "main"}, false); err != nil {
		t.Fatal(err)
	}
	if _, err := claim.Claim(t.Context(), fleetAdmin, fleet.ClaimRequest{Agent: "a", Run: "main", Force: true}); err != nil {
		t.Fatal(err)
	}
	latest, err := s.Latest(t.Context(), fleetUser, ckpt.CheckpointFilter{Agent: "a", Run: "main", Kind: ckpt.KindRoutine}, true)
	if err != nil || string(latest.State) != `{"n":2}` {
		t.Errorf("what the engine had comes back as %v, %v", latest, err)
	}
	again(t, ship)
}

// TestRejoinAfterAClaim: a host that joins again has no strand of a run that another host had claimed from it before, if
// everything was shipped.
func TestRejoinAfterAClaim(t *testing.T) {
	t.Parallel()
	server, url := fleetEngine(t)
	path := filepath.Join(t.TempDir(), "ckpt.db")
	c := configOf(path, "one", "")
	s := openFleetStore(t, path)
	ships := func(id string, run, state string) *shipper {
		t.Helper()
		if err := saveOne(s, t, run, state); err != nil {
			t.Fatal(err)
		}
		ship := shipperOf(s, url, "one")
		ship.host.DB = id
		again(t, ship)
		ship.hangUp()
		return ship
	}
	ships(s.ID, "gone", `{"n":1}`)
	two := claimantOf(openFleetStore(t, filepath.Join(t.TempDir(), "two.db")), url, "two")
	if _, err := two.Claim(t.Context(), fleetAdmin, fleet.ClaimRequest{Agent: "a", Run: "gone", Owner: fleetUser.Owner, Force: true}); err != nil {
		t.Fatal(err)
	}
	ships(s.ID, "main", `{"n":1}`)
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	old, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	s = openFleetStore(t, path)
	ships(s.ID, "main", `{"n":2}`)
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	putBack(t, path, old)
	s = openFleetStore(t, path)
	if err := saveOne(s, t, "main", `{"n":"strand"}`); err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	done, err := Rejoin(t.Context(), url, false, c)
	if err != nil {
		t.Fatal(err)
	}
	s = openFleetStore(t, path)
	ship := ships(done.To, "fresh", `{}`)
	wantRefused(t, saveOne(s, t, "gone", `{}`), ckpt.CodeFenced, "gone")
	claim := &claimant{url: ship.url, store: s, host: ship.host, who: ship.identities, turns: newTurns(), log: slog.New(slog.DiscardHandler)}
	strands, err := claim.Strands(t.Context(), fleetAdmin)
	if err != nil || len(strands.Strands) != 2 {
		t.Fatalf("the strands are %+v, %v, and the engine has %q", strands, err, server.Rows("fleet", `SELECT run_uid, from_n FROM fleet_rejoined`))
	}
	for _, s := range strands.Strands {
		if has := s.Checkpoints + s.Rows; (has > 0) != (s.Run == "main") {
			t.Errorf("the strand of %s has %d checkpoints and rows", s.Run, has)
		}
	}
}

// putBack replaces a database that is closed with an older copy.
func putBack(t *testing.T, path string, old []byte) {
	t.Helper()
	for _, suffix := range []string{"-wal", "-shm"} {
		_ = os.Remove(path + suffix)
	}
	if err := os.WriteFile(path, old, 0o600); err != nil {
		t.Fatal(err)
	}
}
