package host

import (
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	ckpt "github.com/ckptsidecar/ckptsidecar"
	"github.com/ckptsidecar/ckptsidecar/internal/fleet"
	"github.com/ckptsidecar/ckptsidecar/internal/fleet/pgtest"
)

// quotaHost is a host that limits principals, with its shipper and the API.
type quotaHost struct {
	*fleetHost
	engine *pgtest.Server
	quota  *quota
}

func newQuotaHost(t *testing.T, engine *pgtest.Server, url string, limit int64, named map[string]string) *quotaHost {
	t.Helper()
	h := &quotaHost{engine: engine}
	var s *shipper
	h.fleetHost = hostOf(t, url, func(of *shipper) {
		s, of.assume = of, true
	})
	s.who.Store(&fleet.Identities{DB: h.store.ID, Named: named})
	s.renamed.Store(true)
	h.quota = h.s.newQuota(limit)
	t.Cleanup(h.quota.hangUp)
	return h
}

// counts counts what the engine has of the test's user, after everything has been shipped.
func (h *quotaHost) counts() (p fleet.PrincipalUsed) {
	h.t.Helper()
	if err := h.s.shipper.shippedTo(h.t.Context(), h.store.Committed()); err != nil {
		h.t.Fatal(err)
	}
	if err := h.quota.count(h.t.Context()); err != nil {
		h.t.Fatal(err)
	}
	known := h.quota.known
	h.quota.known = nil
	anew, err := h.quota.bytes(h.t.Context(), []string{h.quota.ids().Principal(fleetUser.Owner)})
	if err != nil {
		h.t.Fatal(err)
	}
	h.quota.known = known
	if of := h.quota.Usage().Of(fleetUser.Owner).Principals; len(of) == 1 {
		p = of[0]
	}
	if anew[p.Principal] != p.Bytes {
		h.t.Errorf("the count says %d bytes, and %d are there", p.Bytes, anew[p.Principal])
	}
	return p
}

// noise returns a state of n bytes that does not compress.
func noise(n int) string {
	var b strings.Builder
	for i := 0; b.Len() < n; i++ {
		fmt.Fprintf(&b, "%x", sha256.Sum256(fmt.Append(nil, i, newID())))
	}
	return `{"noise":"` + b.String()[:n] + `"}`
}

// puts saves a state of n bytes as a recovery checkpoint, because a policy keeps all of those.
func (h *quotaHost) puts(agent, id string, n int) answered {
	h.t.Helper()
	if id == "" {
		id = newID()
	}
	return h.ask("PUT", "/v1/agents/"+agent+"/checkpoints/"+id+"?kind=recovery", noise(n))
}

func (a answered) wantQuota(t *testing.T, what string) {
	t.Helper()
	if a.status != 429 || a.Code != "quota" || a.Outcome != "not_saved" || !a.Retryable {
		t.Errorf("%s: %+v, want quota", what, a)
	}
}

const quotaLimit = 96 << 10

// TestFleetQuota: a principal uses up his quota on two hosts. His agents that request durability fleet are refused,
// and no others are. They continue when there is room again.
func TestFleetQuota(t *testing.T) {
	t.Parallel()
	engine, url := fleetEngine(t)
	named := map[string]string{fleetUser.Owner: "acme/build"}
	a, b := newQuotaHost(t, engine, url, quotaLimit, named), newQuotaHost(t, engine, url, quotaLimit, named)
	for _, h := range []*quotaHost{a, b} {
		h.policy("strict", fleetPolicy)
		h.policy("lax", degradePolicy)
		h.policy("plain", `{}`)
	}
	b.puts("plain", "", 40<<10).want(t, "a save of the other host", "local", false)
	b.counts()
	first := newID()
	body := noise(40 << 10)
	put := func() answered {
		return a.ask("PUT", "/v1/agents/strict/checkpoints/"+first+"?kind=recovery", body)
	}
	put().want(t, "a save while there is room", "fleet", false)
	if p := a.counts(); p.Principal != "acme/build" || p.Bytes < 40<<10 || p.Full {
		t.Fatalf("two states of 40 KiB count as %+v", p)
	}
	a.full(a.fills())
	put().want(t, "the first save again", "fleet", true)
	t.Run("the other host", func(t *testing.T) {
		save := func() answered {
			return b.ask("PUT", "/v1/agents/strict/checkpoints/"+newID()+"?kind=recovery&run=of-b", noise(10))
		}
		save().want(t, "a save before the other host has counted", "fleet", false)
		b.counts()
		save().wantQuota(t, "a save on the other host")
	})
	a.others()
	a.makesRoom(b, first)
}

// fills saves until the quota is used up. How many bytes a state takes depends on how well it compresses.
func (h *quotaHost) fills() (p fleet.PrincipalUsed) {
	h.t.Helper()
	for range 20 {
		h.puts("strict", "", 8<<10).want(h.t, "a save while there is room", "fleet", false)
		if p = h.counts(); p.Full {
			return p
		}
	}
	h.t.Fatalf("160 KiB more count as %+v", p)
	return p
}

// full makes every request that an agent can make, for a principal whose quota is used up.
func (h *quotaHost) full(p fleet.PrincipalUsed) {
	t := h.t
	refused := h.puts("strict", "", 10)
	says := fmt.Sprintf("%d bytes of acme/build, and the limit is %d", p.Bytes, quotaLimit)
	if refused.wantQuota(t, "a save"); !strings.Contains(refused.Detail, says) ||
		!strings.Contains(refused.Detail, "erase agents") {
		t.Errorf("the agent is told %q", refused.Detail)
	}
	h.ask("POST", "/v1/agents/strict/runs/main/steps", `{"key":"k2","name":"n"}`).wantQuota(t, "a step")
	h.ask("POST", "/v1/agents/strict/runs/main/operations", `{"key":"o2","name":"n"}`).wantQuota(t, "an operation")
	h.ask("POST", "/v1/agents/strict/runs/main/events", `[{"type":"x"}]`).wantQuota(t, "events")
	_, err := h.store.GraphPutWrites(t.Context(), fleetUser, &ckpt.GraphPutWrites{Agent: "strict", GraphThread: ckpt.GraphThread{Thread: "t"},
		Checkpoint: newID(), Writes: []ckpt.GraphWrite{{Task: "t1", Channel: "c", GraphBytes: ckpt.GraphBytes{Type: "null", Data: []byte{}}}}})
	wantRefused(t, err, ckpt.CodeQuota, "limits.principal_bytes")
	h.puts("lax", "", 10).want(t, "a save with on_outage degrade", "local", false)
	h.puts("plain", "", 10).want(t, "a save of an agent that asks for nothing", "local", false)
	h.ask("POST", "/v1/agents/plain/runs/main/steps", `{"key":"k","name":"n"}`).want(t, "a step of that agent", "local", false)
	h.wantUsage(p)
	if u := h.quota.Usage(); u.Full() != 1 {
		t.Errorf("%d principals are full", u.Full())
	}
}

// wantUsage checks who sees which usage: an administrator sees all principals, a user only himself.
func (h *quotaHost) wantUsage(p fleet.PrincipalUsed) {
	v := &view{shipper: h.s.shipper, store: h.store}
	h.s.shipper.quota = h.quota
	for scope, want := range map[*ckpt.Scope]int{&fleetUser: 1, {Caller: fleetAdmin.Caller}: 1, {Caller: ckpt.Caller{Owner: "uid:7"}}: 0} {
		u, err := v.FleetUsage(h.t.Context(), *scope)
		if err != nil || u.Limit != quotaLimit || u.CountedAgo < 0 || len(u.Principals) != want || want == 1 && u.Principals[0] != p {
			h.t.Errorf("%s is told %+v, %v", scope.Owner, u, err)
		}
	}
}

// others checks that another user of the host continues as before: the refusal is only for one principal.
func (h *quotaHost) others() {
	t := h.t
	other := ckpt.Scope{Caller: ckpt.Caller{Owner: "uid:1002"}}
	if _, err := h.store.SetOwnPolicy(t.Context(), other, "strict", []byte(fleetPolicy)); err != nil {
		t.Fatal(err)
	}
	saved, err := h.store.Save(t.Context(), other, &ckpt.SaveRequest{
		Agent: "strict", Kind: ckpt.KindRoutine, ContentType: ckpt.ContentTypeJSON, State: []byte(`{}`)})
	if err != nil {
		t.Fatal(err)
	}
	_, wait := h.s.Durable(other, "strict", saved.Run)
	if d, err := wait(t.Context()); d != ckpt.DurabilityFleet || err != nil {
		t.Errorf("a save of another user is %q, %v", d, err)
	}
	h.counts()
	u := h.quota.Usage().Of(other.Owner)
	if want := "host/" + h.store.ID + "/uid:1002"; len(u.Principals) != 1 || u.Principals[0].Principal != want || u.Principals[0].Bytes == 0 {
		t.Errorf("a user whom nobody has mapped counts as %+v, want %s", u.Principals, want)
	}
}

// makesRoom frees the quota by a delete and by an erasure on the other host. A claim frees nothing.
func (h *quotaHost) makesRoom(b *quotaHost, id string) {
	t := h.t
	before := h.counts()
	if _, err := h.store.Delete(t.Context(), fleetUser, id); err != nil {
		t.Fatal(err)
	}
	if p := h.counts(); p.Full || before.Bytes-p.Bytes < 20<<10 {
		t.Errorf("after a delete of 40 KiB the count goes from %d to %+v", before.Bytes, p)
	}
	h.fills()
	h.puts("strict", "", 10).wantQuota(t, "a save")
	if _, err := b.store.Erase(t.Context(), fleetUser, "plain"); err != nil {
		t.Fatal(err)
	}
	b.counts()
	if p := h.counts(); p.Full {
		t.Errorf("after an erasure on the other host the count is %+v", p)
	}
	h.puts("strict", "", 10).want(t, "a save after the erasure", "fleet", false)
	was := h.counts()
	h.stop()
	silent(h.engine)
	c := claimantOf(b.store, b.url(), "b")
	c.who = b.s.shipper.identities
	if _, err := c.Claim(t.Context(), fleetAdmin, fleet.ClaimRequest{Agent: "lax", Run: "main", Host: h.store.ID}); err != nil {
		t.Fatal(err)
	}
	is := b.counts()
	if diff := is.Bytes - was.Bytes; diff < -2048 || diff > 2048 || is.Principal != was.Principal {
		t.Errorf("a claim changes the count from %+v to %+v", was, is)
	}
}

func (h *quotaHost) url() string {
	url, err := h.s.shipper.url()
	if err != nil {
		h.t.Fatal(err)
	}
	return url
}

// TestFleetQuotaWithoutEngine: before the first count no principal is refused, and the last count stays in force
// while the engine is away.
func TestFleetQuotaWithoutEngine(t *testing.T) {
	t.Parallel()
	engine, url := fleetEngine(t)
	h := newQuotaHost(t, engine, url, 1, nil)
	h.policy("strict", fleetPolicy)
	if u := h.quota.Usage(); u.CountedAgo != -1 || len(u.Principals) != 0 {
		t.Errorf("before the first count: %+v", u)
	}
	h.save("strict", "").want(t, "a save before the first count", "fleet", false)
	if p := h.counts(); !p.Full || p.Principal != "host/"+h.store.ID+"/"+fleetUser.Owner {
		t.Errorf("with a limit of one byte the count says %+v", p)
	}
	engine.Stop()
	if err := h.quota.count(t.Context()); err == nil {
		t.Error("a count is made without an engine")
	}
	h.save("strict", "").wantQuota(t, "a save while the engine is away")
	var none *quota
	if text, err := json.Marshal(none.Usage()); err != nil || string(text) != `{"limit":0,"counted_seconds_ago":-1,"principals":[]}` {
		t.Errorf("a host without a limit answers %s, %v", text, err)
	}
}
