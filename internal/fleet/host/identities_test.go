package host

import (
	"log/slog"
	"path/filepath"
	"testing"

	ckpt "github.com/ckptsidecar/ckptsidecar"
	"github.com/ckptsidecar/ckptsidecar/internal/db"
	"github.com/ckptsidecar/ckptsidecar/internal/fleet"
	"github.com/ckptsidecar/ckptsidecar/internal/fleet/pgtest"
)

// mapped sets the principals of a host's users, as a reload does.
func (h *seenHost) mapped(named map[string]string) {
	h.t.Helper()
	h.ship.who.Store(&fleet.Identities{DB: h.store.ID, Named: named})
	h.ship.renamed.Store(true)
	if err := h.ship.once(h.t.Context()); err != nil {
		h.t.Fatal(err)
	}
}

// silent makes the engine treat all hosts as silent for an hour.
func silent(s *pgtest.Server) {
	s.Exec("fleet", `UPDATE fleet_marks SET seen_at = seen_at - interval '1 hour'`)
	s.Exec("fleet", `UPDATE fleet_hosts SET lease_until = lease_until - interval '1 hour'`)
}

// TestFleetPrincipals is T7: the same uid on two hosts is two people until the
// settings of both hosts say that it is one person.
func TestFleetPrincipals(t *testing.T) {
	t.Parallel()
	engine, url := fleetEngine(t)
	a, b := newSeenHost(t, url, "a"), newSeenHost(t, url, "b")
	user, other := ckpt.Caller{Owner: "uid:1001"}, ckpt.Caller{Owner: "uid:1002"}
	a.has(user.Owner, "canary-a")
	b.has(user.Owner, "canary-b")
	onA, onB := "a uid:1001 canary-a", "b uid:1001 canary-b"
	admin := ckpt.Caller{Owner: "uid:0", Admin: true}
	alone := func(when string) {
		t.Helper()
		a.sees(user, "", onA)
		b.sees(user, "", onB)
		b.sees(other, "")
		b.sees(user, "&host=a")
		claims(t, b, user, ckpt.CodeNotFound)
		if t.Failed() {
			t.Fatal(when)
		}
	}
	alone("nobody is mapped")
	a.mapped(map[string]string{"uid:1001": "acme/build"})
	alone("the map is on one side")
	b.mapped(map[string]string{"uid:1002": "acme/build"})
	b.sees(user, "", onB)
	b.sees(other, "", onA) // uid 1002 here is uid 1001 there
	b.sees(admin, "&principal=acme/build", onA)
	a.sees(user, "&principal=acme/other")
	b.mapped(map[string]string{"uid:1001": "acme/build"})
	a.sees(user, "", onA, onB)
	b.sees(user, "", onA, onB)
	b.sees(other, "")
	if s := b.status(admin); s.Principals["uid:1001"] != "acme/build" {
		t.Errorf("the status says %v", s.Principals)
	}
	b.mapped(nil)
	alone("the map went again")

	b.mapped(map[string]string{"uid:1002": "acme/build"})
	silent(engine)
	claims(t, b, user, ckpt.CodeNotFound)
	if _, err := claimantFor(b).Claim(t.Context(), ckpt.Scope{Caller: other}, fleet.ClaimRequest{Agent: "canary-a", Force: true}); ckpt.CodeOf(err) != ckpt.CodeDenied {
		t.Errorf("a user who takes a run from a host that may live is told %v", err)
	}
	done := claims(t, b, other, "")
	if done.Owner != other.Owner || done.Agent != "canary-a" {
		t.Errorf("the claim answers %+v", done)
	}
	if got := ownerOf(t, b.store, "canary-a"); got != other.Owner {
		t.Errorf("the agent belongs to %q, want who claimed its run", got)
	}
}

// claimantFor returns the claimant of a host.
func claimantFor(h *seenHost) *claimant {
	return &claimant{url: h.ship.url, store: h.store, host: h.ship.host, who: h.ship.identities, turns: newTurns(), log: slog.New(slog.DiscardHandler)}
}

// claims claims the canary of host a as the caller.
func claims(t *testing.T, h *seenHost, caller ckpt.Caller, want ckpt.Code) *fleet.Claimed {
	t.Helper()
	done, err := claimantFor(h).Claim(t.Context(), ckpt.Scope{Caller: caller}, fleet.ClaimRequest{Agent: "canary-a"})
	if ckpt.CodeOf(err) != want {
		t.Errorf("%s claims on %s and is told %v, want %q", caller.Owner, h.ship.host.Name, err, want)
	}
	return done
}

// TestClaimedPrincipals: claimed agents belong to the local user who is the same principal.
func TestClaimedPrincipals(t *testing.T) {
	t.Parallel()
	_, url := fleetEngine(t)
	lost := newSeenHost(t, url, "lost")
	lost.has("uid:1001", "mapped")
	lost.has("uid:1002", "unmapped")
	lost.has("uid:1003", "clash")
	lost.mapped(map[string]string{"uid:1001": "acme/build"})
	s := openFleetStore(t, filepath.Join(t.TempDir(), "new.db"))
	claimAll(t, url, s, "", map[string]string{"uid:1003": "acme/carl", "uid:4001": "acme/build"})
	for agent, want := range map[string]string{"mapped": "uid:4001", "unmapped": "uid:1002", "clash": "host/" + lost.store.ID + "/uid:1003"} {
		if got := ownerOf(t, s, agent); got != want {
			t.Errorf("agent %s belongs to %q, want %s", agent, got, want)
		}
	}
}

func ownerOf(t *testing.T, s *db.Store, agent string) (owner string) {
	t.Helper()
	if err := s.RO.Get(&owner, `SELECT owner FROM agents WHERE name = ?`, agent); err != nil {
		t.Fatal(err)
	}
	return owner
}
