package host

import (
	"context"
	"errors"
	"log/slog"
	"path/filepath"
	"strings"
	"testing"
	"time"

	ckpt "github.com/ckptsidecar/ckptsidecar"
	"github.com/ckptsidecar/ckptsidecar/internal/fleet"
	"github.com/ckptsidecar/ckptsidecar/internal/fleet/lease"
	"github.com/ckptsidecar/ckptsidecar/internal/fleet/pgtest"
	"github.com/ckptsidecar/ckptsidecar/internal/ipc/server"
)

// roaming is a host on which uid:1001 is acme/build, as on all other hosts of
// the test.
type roaming struct {
	*fleetHost
	clock *ticks
	api   *server.Server
}

// twoHosts returns an engine with two hosts. Agent a, with a policy, has saved a checkpoint on the first.
func twoHosts(t *testing.T, policy string) (server *pgtest.Server, url string, one, two *roaming) {
	t.Helper()
	server, url = fleetEngine(t)
	one, two = roamingHost(t, url, "one"), roamingHost(t, url, "two")
	one.policy("a", policy)
	if a := one.save("a", ""); a.status != 201 {
		t.Fatalf("%+v", a)
	}
	return server, url, one, two
}

func roamingHost(t *testing.T, url, name string, change ...func(*shipper)) *roaming {
	t.Helper()
	r := &roaming{clock: &ticks{now: time.Hour}}
	r.fleetHost = hostOf(t, url, append(change, func(s *shipper) {
		s.host.Name, s.assume = name, true
		s.keepLease(lease.New(r.clock.read, 15*time.Second), 5*time.Second)
		s.who.Store(&fleet.Identities{DB: s.host.DB, Named: map[string]string{"uid:1001": "acme/build"}})
	})...)
	if err := r.s.shipper.keeper.renew(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(r.s.shipper.keeper.hangUp)
	r.api = server.NewServer(server.Options{Store: server.StoreOf(r.store), Durable: r.s.Durable, Before: r.s.Before, Lease: r.s.TellLease, Place: r.s.TellPlace, Began: r.s.Began, Fleet: r.s.API()})
	r.fleetHost.api = r.api.HandlerFor(fleetUser.Caller)
	return r
}

// resumed is the answer to a resume request.
type resumed struct {
	answered
	Verdict string
	Claimed bool
	Epoch   int64
	Reasons []string
	Fleet   *ckpt.PlanFleet
}

func (r *roaming) resume(agent, body string) (p resumed) {
	r.t.Helper()
	p.status, _ = r.askInto("POST", "/v1/agents/"+agent+"/runs/main/resume", body, &p)
	return p
}

func (r *roaming) claimsNothing(what, agent, body, verdict string) {
	r.t.Helper()
	if p := r.resume(agent, body); p.Verdict != verdict || p.Fleet != nil {
		r.t.Errorf("%s: %+v, want verdict %q of this host alone", what, p, verdict)
	}
}

// TestResumeClaims: a user who resumes a run of a lost host gets the run if he
// is its owner on both hosts and the policy lets it move. No other user gets
// it.
func TestResumeClaims(t *testing.T) {
	t.Parallel()
	server, url := fleetEngine(t)
	one, two := roamingHost(t, url, "one"), roamingHost(t, url, "two")
	for agent, policy := range map[string]string{"moves": fleetPolicy, "stays": `{"takeover":"manual"}`, "local": `{"takeover":"auto"}`, "held": fleetPolicy} {
		one.policy(agent, policy)
		if a := one.save(agent, ""); a.status != 201 {
			t.Fatalf("%s: %+v", agent, a)
		}
		one.ask("POST", "/v1/agents/"+agent+"/runs/main/steps", `{"key":"s1","name":"think"}`)
	}
	waitShipped(t, one)
	if p := two.resume("moves", `{}`); p.status != 409 || !strings.Contains(p.Detail, "holds its lease") || strings.Contains(p.Detail, "--force") {
		t.Errorf("while the owner holds its lease: %+v", p)
	}
	leaseOver(server, one.store.ID)
	other := ckpt.Scope{Caller: ckpt.Caller{Owner: "uid:1002"}}
	c := two.s.API()
	for _, request := range []ckpt.ResumeRequest{{Agent: "moves"}} {
		if err := c.Bring(t.Context(), other, &request); err != nil || request.Claimed != nil {
			t.Errorf("another user gets %+v, %v", request.Claimed, err)
		}
	}
	if p := two.resume("stays", `{}`); p.status != 409 || !strings.Contains(p.Detail, "`ckptsidecar fleet claim stays/main` brings it here") {
		t.Errorf("a policy that says manual: %+v", p)
	}
	two.claimsNothing("a caller who looks at this host only", "held", `{"fleet":false}`, "fresh")
	if p := two.resume("moves", `{"dry_run":true}`); p.status != 409 || !strings.Contains(p.Detail, "on host one") {
		t.Errorf("a dry run: %+v", p)
	}

	p := two.resume("moves", `{}`)
	if p.Verdict != "repair" || !p.Claimed || p.Epoch>>20 != 1 || p.Fleet == nil || p.Fleet.FromHost != "one" || p.Fleet.Term != 1 ||
		p.Fleet.AcknowledgedTo != 1 || !p.Fleet.StrandPossible || p.Fleet.LostAtMost != 0 {
		t.Fatalf("claimed as %+v, %+v", p, p.Fleet)
	}
	if p := two.resume("local", `{}`); p.Verdict != "ask" || p.Fleet == nil || p.Fleet.LostAtMost == 0 {
		t.Errorf("a run that may have done more than was shipped: %+v, %+v", p, p.Fleet)
	}
	if a := two.save("moves", ""); a.status != 201 || a.Durability != "fleet" || a.Seq != 2 {
		t.Errorf("the new owner saves: %+v", a)
	}
	if a := one.save("moves", ""); a.Code != "fenced" {
		t.Errorf("the old owner saves: %+v", a)
	}
	if err := one.s.shipper.keeper.renew(t.Context()); err != nil {
		t.Fatal(err)
	}
	if a := one.ask("GET", "/v1/agents/moves/runs/main", ""); a.Ownership != "fenced" || a.Host != "two" || a.Term != 1 {
		t.Errorf("the run that another host owns is answered as %+v", a)
	}
	if a := one.save("moves", ""); a.Code != "fenced" || a.Host != "two" || a.Term != 1 {
		t.Errorf("the old owner, once it has heard of it, saves: %+v", a)
	}

	t.Run("and back", func(t *testing.T) {
		leaseOver(server, two.store.ID)
		p := one.resume("moves", `{}`)
		if p.Verdict != "repair" || p.Fleet == nil || p.Fleet.FromHost != "two" || p.Epoch>>20 != 2 || p.Fleet.AcknowledgedTo != 2 {
			t.Fatalf("claimed back as %+v, %+v", p, p.Fleet)
		}
		if a := one.save("moves", ""); a.status != 201 || a.Durability != "fleet" || a.Seq != 3 {
			t.Errorf("the first host saves again: %+v", a)
		}
		if a := two.save("moves", ""); a.Code != "fenced" {
			t.Errorf("the second host saves: %+v", a)
		}
		if got := server.Rows("fleet", `SELECT term, seq FROM fleet_runs WHERE agent = 'moves'`); len(got) != 1 || got[0] != "2 3" {
			t.Errorf("the engine has %q", got)
		}
	})
}

func waitShipped(t *testing.T, h *roaming) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	if err := h.s.shipper.shippedTo(ctx, h.store.Committed()); err != nil {
		t.Fatal(err)
	}
}

// TestResumeWithoutTheEngine: while the engine is away, a run that may be on
// another host waits, and all other runs continue.
func TestResumeWithoutTheEngine(t *testing.T) {
	t.Parallel()
	server, url := fleetEngine(t)
	one := roamingHost(t, url, "one")
	one.policy("moves", `{"takeover":"auto"}`)
	waitShipped(t, one)
	server.Stop()
	one.claimsNothing("a new agent", "plain", `{}`, "fresh")
	if p := one.resume("moves", `{}`); p.status != 503 || p.Code != "busy" {
		t.Errorf("an agent whose runs may be elsewhere: %+v", p)
	}
}

// TestResumeWithoutAnAnswer: if the engine can be reached and does not say which hosts have a
// run, agents whose runs do not move go on.
func TestResumeWithoutAnAnswer(t *testing.T) {
	t.Parallel()
	server, url := fleetEngine(t)
	one := roamingHost(t, url, "one")
	one.policy("moves", `{"takeover":"auto"}`)
	server.Exec("fleet", `CREATE ROLE poor LOGIN; GRANT SELECT, INSERT, UPDATE ON ALL TABLES IN SCHEMA public TO poor; REVOKE SELECT ON fleet_runs FROM poor`)
	c := one.claimant()
	var log strings.Builder
	c.log = slog.New(slog.NewTextHandler(&log, nil))
	c.url = func() (string, error) { return strings.Replace(url, "postgres@", "poor@", 1), nil }
	if err := c.Bring(t.Context(), fleetUser, &ckpt.ResumeRequest{Agent: "plain"}); err != nil {
		t.Errorf("a new agent: %v", err)
	}
	if !strings.Contains(log.String(), "permission denied for table fleet_runs") {
		t.Errorf("the log says %q", log.String())
	}
	wantRefused(t, c.Bring(t.Context(), fleetUser, &ckpt.ResumeRequest{Agent: "moves"}), ckpt.CodeConflict, "lacks a right")
	wantRefused(t, c.Bring(t.Context(), fleetUser, &ckpt.ResumeRequest{Agent: "plain", Standby: true}), ckpt.CodeConflict, "lacks a right")
}

// TestALargeRunHoldsUpNobody: while a large run is brought, other resumptions ask the engine
// and go on. Another claim of that run waits or is refused.
func TestALargeRunHoldsUpNobody(t *testing.T) {
	t.Parallel()
	server, url := fleetEngine(t)
	one, two := roamingHost(t, url, "one"), roamingHost(t, url, "two")
	for _, agent := range []string{"large", "small"} {
		one.policy(agent, fleetPolicy)
		if a := one.save(agent, ""); a.status != 201 {
			t.Fatalf("%+v", a)
		}
	}
	one.silent(server)
	c := two.claimant()
	c.brought = &brought{}
	arrived, err := c.turns.brings.take(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	bring := func(r *ckpt.ResumeRequest) chan error {
		done := make(chan error, 1)
		go func() { done <- c.Bring(ctx, fleetUser, r) }()
		return done
	}
	owner := func() string { return server.Rows("fleet", `SELECT host FROM fleet_runs WHERE agent = 'large'`)[0] }
	first, second := &ckpt.ResumeRequest{Agent: "large"}, &ckpt.ResumeRequest{Agent: "large"}
	answer := bring(first)
	for owner() != two.store.ID {
		if err := ctx.Err(); err != nil {
			t.Fatal(err)
		}
		time.Sleep(10 * time.Millisecond)
	}
	repeated := bring(second)
	plain := &ckpt.ResumeRequest{Agent: "plain"}
	if err := c.Bring(ctx, fleetUser, plain); err != nil || plain.Claimed != nil {
		t.Errorf("an agent that the fleet does not know: %+v, %v", plain.Claimed, err)
	}
	wantRefused(t, c.Bring(ctx, fleetUser, &ckpt.ResumeRequest{Agent: "small", DryRun: true}), ckpt.CodeConflict, "on host one")
	_, err = c.Claim(ctx, fleetAdmin, fleet.ClaimRequest{Agent: "large", Owner: fleetUser.Owner})
	wantRefused(t, err, ckpt.CodeBusy, "brought here just now")
	arrived()
	for _, done := range []chan error{answer, repeated} {
		if err := <-done; err != nil {
			t.Error(err)
		}
	}
	if first.Claimed == nil || second.Claimed == nil || *first.Claimed != *second.Claimed {
		t.Errorf("the plans say %+v and %+v", first.Claimed, second.Claimed)
	}
	_, err = c.Claim(ctx, fleetAdmin, fleet.ClaimRequest{Agent: "large", Owner: fleetUser.Owner})
	wantRefused(t, err, ckpt.CodeConflict, "on this host already")
}

// TestANewRunOfAFencedName: a run that another host has claimed is deleted here. A new run of
// its name is this host's own.
func TestANewRunOfAFencedName(t *testing.T) {
	t.Parallel()
	server, _, one, two := twoHosts(t, fleetPolicy)
	waitShipped(t, one)
	leaseOver(server, one.store.ID)
	if p := two.resume("a", `{}`); p.Verdict != "repair" {
		t.Fatalf("claimed as %+v", p)
	}
	if err := one.s.shipper.keeper.renew(t.Context()); err != nil {
		t.Fatal(err)
	}
	if a := one.save("a", ""); a.Code != "fenced" {
		t.Fatalf("the old owner saves: %+v", a)
	}
	if _, err := one.store.DeleteRun(t.Context(), fleetUser, ckpt.RunRef{Agent: "a"}, false); err != nil {
		t.Fatal(err)
	}
	waitShipped(t, one)
	if a := one.save("a", ""); a.Code != "conflict" || !strings.Contains(a.Detail, "host two has run main of a") {
		t.Errorf("a new run of that name saves: %+v", a)
	}

	w := newWaiters()
	w.confirmed(1, nil, []string{"refused"}, "")
	for _, taken := range []map[string]string{{"erased": "two"}, nil} {
		w.fence(taken)
		if err := w.owned("erased"); (err != nil) != (taken != nil) {
			t.Errorf("while other hosts have claimed %q, it is answered %v", taken, err)
		}
		if w.owned("refused") == nil {
			t.Error("a run that the engine has refused may be written")
		}
	}
}

// TestEngineFailsAClaim: if the engine fails in the middle of a claim, the answer says
// that the claim can be repeated. Only an administrator and the log are told what the
// engine said. If a person must act first, the answer is a conflict.
func TestEngineFailsAClaim(t *testing.T) {
	t.Parallel()
	server, url, one, two := twoHosts(t, fleetPolicy)
	waitShipped(t, one)
	leaseOver(server, one.store.ID)
	var log strings.Builder
	c := claimantOf(two.store, url, "two")
	c.who, c.log = two.s.shipper.identities, slog.New(slog.NewTextHandler(&log, nil))
	logged := func(text string) {
		t.Helper()
		for range 2 {
			err := c.Bring(t.Context(), fleetUser, &ckpt.ResumeRequest{Agent: "a", Standby: true})
			if err == nil {
				t.Fatal("a claim does not fail: this test sees nothing")
			}
		}
		if got := strings.Count(log.String(), text); got != 1 {
			t.Errorf("the log has %q %d times:\n%s", text, got, log.String())
		}
	}
	server.Exec("fleet", `ALTER TABLE fleet_claims ADD CONSTRAINT broken CHECK (run_uid = '')`)
	if p := two.resume("a", `{"standby":true}`); p.status != 503 || p.Code != "busy" || !p.Retryable || strings.Contains(p.Detail, "broken") {
		t.Errorf("a standby: %+v", p)
	}
	claim := func() error {
		_, err := two.s.API().Claim(t.Context(), fleetAdmin, fleet.ClaimRequest{Agent: "a"})
		return err
	}
	wantRefused(t, claim(), ckpt.CodeBusy, "broken")
	logged("broken")
	server.Exec("fleet", `ALTER TABLE fleet_claims DROP CONSTRAINT broken`)
	server.Exec("fleet", `CREATE ROLE poor LOGIN; GRANT SELECT, INSERT, UPDATE ON ALL TABLES IN SCHEMA public TO poor; REVOKE INSERT ON fleet_claims FROM poor`)
	c.url = func() (string, error) { return strings.Replace(url, "postgres@", "poor@", 1), nil }
	err := c.Bring(t.Context(), fleetUser, &ckpt.ResumeRequest{Agent: "a", Standby: true})
	wantRefused(t, err, ckpt.CodeConflict, "lacks a right")
	var told *ckpt.Error
	if errors.As(err, &told) && strings.Contains(told.Message, "fleet_claims") {
		t.Errorf("a user is told %q", told.Message)
	}
	logged("permission denied")
	_, err = c.Claim(t.Context(), fleetAdmin, fleet.ClaimRequest{Agent: "a"})
	wantRefused(t, err, ckpt.CodeConflict, "permission denied for table fleet_claims")
	if p := two.resume("a", `{"standby":true}`); p.Verdict != "repair" {
		t.Errorf("when the engine works again: %+v", p)
	}
	server.Exec("fleet", `ALTER TABLE fleet_claims RENAME TO claims_away`)
	wantRefused(t, claim(), ckpt.CodeConflict, "ckptsidecar fleet migrate")
}

// TestARemovalIsNotOfTheRunThatIsClaimed: a removal of this host's own run of
// the same name is shipped before the claim, and removes nothing of the claimed
// run.
func TestARemovalIsNotOfTheRunThatIsClaimed(t *testing.T) {
	t.Parallel()
	server, url := fleetEngine(t)
	one := openFleetStore(t, filepath.Join(t.TempDir(), "one.db"))
	if err := saveOne(one, t, "main", `{"n":1}`); err != nil {
		t.Fatal(err)
	}
	old := shipperOf(one, url, "one")
	defer old.hangUp()
	if err := old.once(t.Context()); err != nil {
		t.Fatal(err)
	}
	two := openFleetStore(t, filepath.Join(t.TempDir(), "two.db"))
	if err := saveOne(two, t, "main", `{"n":2}`); err != nil {
		t.Fatal(err)
	}
	if _, err := two.DeleteRun(t.Context(), fleetAdminOf("uid:1001"), ckpt.RunRef{Agent: "a"}, true); err != nil {
		t.Fatal(err)
	}
	if _, err := claimantOf(two, url, "two").Claim(t.Context(), fleetAdmin, fleet.ClaimRequest{Agent: "a", Owner: "uid:1001", Force: true}); err != nil {
		t.Fatal(err)
	}
	next := shipperOf(two, url, "two")
	defer next.hangUp()
	if err := next.once(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got := server.Rows("fleet", `SELECT term, seq FROM fleet_runs`); len(got) != 1 || got[0] != "1 1" {
		t.Errorf("the engine has the runs %q", got)
	}
}

// TestClaimedRunsAreNotGone: after this host has claimed a run and before it
// has shipped it, no row of its audit log about a run of the same name removes
// the claimed run from the engine.
func TestClaimedRunsAreNotGone(t *testing.T) {
	t.Parallel()
	engine := pgtest.Start(t)
	url := engine.Database("fleet")
	if _, _, err := Migrate(t.Context(), url); err != nil {
		t.Fatal(err)
	}
	one := openFleetStore(t, filepath.Join(t.TempDir(), "one.db"))
	if err := saveOne(one, t, "main", `{"n":1}`); err != nil {
		t.Fatal(err)
	}
	old := shipperOf(one, url, "one")
	defer old.hangUp()
	if err := old.once(t.Context()); err != nil {
		t.Fatal(err)
	}
	two := openFleetStore(t, filepath.Join(t.TempDir(), "two.db"))
	e, err := claimantOf(two, url, "two").dial(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer e.Close()
	all, err := e.Find(t.Context(), fleet.ClaimRequest{Agent: "a"})
	if err != nil || len(all) != 1 {
		t.Fatalf("found %+v, %v", all, err)
	}
	if _, err := e.Claim(t.Context(), fleet.Claim{Run: &all[0], To: two.ID, Ground: fleet.GroundForced}); err != nil {
		t.Fatal(err)
	}
	if err := saveOne(two, t, "main", `{"n":2}`); err != nil { // before the claimed run of that name is here
		t.Fatal(err)
	}
	next := shipperOf(two, url, "two")
	defer next.hangUp()
	if err := next.once(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got := engine.Rows("fleet", `SELECT count(*) FROM fleet_checkpoints WHERE run_uid = '`+all[0].UID+`'`); got[0] != "1" {
		t.Errorf("of the claimed run %s checkpoints are left", got[0])
	}
}

func fleetAdminOf(owner string) ckpt.Scope {
	sc := fleetAdmin
	sc.Target = owner
	return sc
}
