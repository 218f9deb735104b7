package host

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	ckpt "github.com/ckptsidecar/ckptsidecar"
	"github.com/ckptsidecar/ckptsidecar/internal/fleet/lease"
	"github.com/ckptsidecar/ckptsidecar/internal/ipc/server"
)

// TestWhatBeginsWithoutALease: when this host's lease is over, nothing begins
// for agents whose runs may move to other hosts. For all other agents
// everything continues.
func TestWhatBeginsWithoutALease(t *testing.T) {
	t.Parallel()
	server, url := fleetEngine(t)
	clock := &ticks{now: time.Hour}
	h := hostOf(t, url, func(s *shipper) { s.keepLease(lease.New(clock.read, 15*time.Second), 0); s.assume = true })
	l := h.s.lease()
	l.Renewed(clock.read())
	h.policy("moves", `{"takeover":"auto"}`)
	h.policy("careful", `{"durability":"fleet","takeover":"manual"}`)
	h.policy("lax", `{"durability":"fleet","takeover":"manual","on_outage":"degrade"}`)
	h.policy("stops", `{"takeover":"manual","on_lease_lost":"stop"}`)
	h.policy("plain", `{}`)
	agents := []string{"moves", "careful", "lax", "stops", "plain"}
	for _, agent := range agents {
		if a := h.save(agent, ""); a.status/100 != 2 {
			t.Fatalf("%s: %+v", agent, a)
		}
	}
	if got := server.Rows("fleet", `SELECT takeover FROM fleet_agents WHERE agent = 'careful'`); len(got) != 1 || got[0] != "manual" {
		t.Errorf("the engine says of takeover: %q", got)
	}
	ask := func(agent, path, body string) answered {
		return h.ask("POST", "/v1/agents/"+agent+"/runs/main"+path, body)
	}
	beats := func(agent, lease, lost string) {
		t.Helper()
		run, err := h.store.Beat(t.Context(), fleetUser, ckpt.RunRef{Agent: agent}, ckpt.Heartbeat{})
		if err != nil {
			t.Fatal(err)
		}
		h.s.TellLease(fleetUser, run)
		if string(run.Lease) != lease || string(run.OnLeaseLost) != lost || (run.LeaseLeftMS > 0) != (lease == "held") {
			t.Errorf("the heartbeat of %s is answered %s with %d ms, %s", agent, run.Lease, run.LeaseLeftMS, run.OnLeaseLost)
		}
	}
	for _, agent := range agents {
		if a := ask(agent, "/steps", `{"key":"held","name":"x"}`); a.status != 201 {
			t.Errorf("%s, with a lease: %+v", agent, a)
		}
	}
	beats("moves", "held", "stop")
	place := func(agent, ownership string) {
		t.Helper()
		a := h.ask("GET", "/v1/agents/"+agent+"/runs/main", "")
		if a.Ownership != ownership || a.Host == "" || a.AsOf == 0 || a.Durability == "" {
			t.Errorf("the run of %s is answered as %+v, not as %s", agent, a, ownership)
		}
	}
	place("careful", "held")
	clock.pass(13 * time.Second)
	beats("moves", "lost", "stop")
	place("moves", "doubtful")
	beats("plain", "lost", "continue")
	for _, c := range []struct {
		agent, path, body string
		status            int
		code              string
	}{
		{"moves", "/steps", `{"key":"lost","name":"x"}`, 409, "fenced"},
		{"moves", "/steps", `{"key":"told","name":"x","status":"succeeded"}`, 201, ""},
		{"moves", "/steps/held/finish", `{"status":"succeeded"}`, 200, ""},
		{"moves", "/operations", `{"key":"lost","name":"x"}`, 409, "fenced"},
		{"moves", "/resume", `{}`, 503, "busy"},
		{"moves", "/resume", `{"dry_run":true}`, 200, ""},
		{"careful", "/operations", `{"key":"lost","name":"x"}`, 503, "not_replicated"},
		{"lax", "/operations", `{"key":"lost","name":"x"}`, 201, ""},
		{"stops", "/steps", `{"key":"lost","name":"x"}`, 201, ""},
		{"stops", "/resume", `{}`, 503, "busy"},
		{"plain", "/steps", `{"key":"lost","name":"x"}`, 201, ""},
		{"plain", "/operations", `{"key":"lost","name":"x"}`, 201, ""},
		{"plain", "/resume", `{}`, 200, ""},
	} {
		if a := ask(c.agent, c.path, c.body); a.status != c.status || a.Code != c.code {
			t.Fatalf("%s%s %s: %+v, want %d %s", c.agent, c.path, c.body, a, c.status, c.code)
		}
	}
	if a := h.save("moves", ""); a.status != 201 || a.Durability != "local" {
		t.Errorf("a local save without a lease: %+v", a)
	}
	l.Renewed(clock.read())
	if a := ask("moves", "/operations", `{"key":"again","name":"x"}`); a.status != 201 {
		t.Errorf("with a lease again: %+v", a)
	}
}

// TestARestartLosesNoLease: a daemon that was just started asks the engine before it says that
// the lease is over.
func TestARestartLosesNoLease(t *testing.T) {
	t.Parallel()
	_, url := fleetEngine(t)
	h := hostOf(t, url, func(s *shipper) { s.keepLease(lease.New(lease.Boottime, 15*time.Minute), 0); s.assume = true })
	keeper := h.s.shipper.keeper
	t.Cleanup(keeper.hangUp)
	if _, err := h.store.SetOwnPolicy(t.Context(), fleetUser, "a", []byte(`{"takeover":"auto"}`)); err != nil {
		t.Fatal(err)
	}
	began := make(chan error, 1)
	go func() { began <- h.s.Before(t.Context(), fleetUser, ckpt.RunRef{Agent: "a"}, server.BeginStep) }()
	beat := make(chan ckpt.Run, 1)
	go func() {
		run := ckpt.Run{Agent: "a"}
		h.s.TellLease(fleetUser, &run)
		beat <- run
	}()
	time.Sleep(50 * time.Millisecond) // the daemon serves, and then asks
	if err := keeper.renew(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := <-began; err != nil {
		t.Errorf("a step: %v", err)
	}
	if run := <-beat; run.Lease != ckpt.LeaseHeld {
		t.Errorf("a heartbeat is answered %+v", run)
	}
}

// TestNobodyWaitsForALeaseThatNeverComes: a host whose runs were given to another host, or whose database has another
// past than the engine knows, is not told to wait until it holds its lease.
func TestNobodyWaitsForALeaseThatNeverComes(t *testing.T) {
	t.Parallel()
	h := hostOf(t, "postgres://nobody@127.0.0.1:1/none", func(s *shipper) { s.keepLease(lease.New(lease.Boottime, time.Hour), 0) })
	h.policy("stops", `{"on_lease_lost":"stop"}`)
	h.policy("moves", `{"takeover":"auto"}`)
	h.policy("plain", `{}`)
	_ = h.s.shipper.keeper.renew(t.Context())
	for _, c := range []struct {
		why  error
		want map[string]string
	}{
		{errors.New("the engine is away"), map[string]string{"stops": "says held", "moves": "says held"}},
		{errSplit, map[string]string{"stops": "once an administrator", "moves": "once an administrator"}},
	} {
		h.s.shipper.note(c.why)
		for agent, want := range c.want {
			err := h.s.Before(t.Context(), fleetUser, ckpt.RunRef{Agent: agent}, server.BeginResume)
			if err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("%v: %s is answered %v", c.why, agent, err)
			}
		}
		if err := h.s.Before(t.Context(), fleetUser, ckpt.RunRef{Agent: "plain"}, server.BeginResume); err != nil {
			t.Errorf("%v: an agent that needs no lease is answered %v", c.why, err)
		}
	}
}

// TestWhoeverNeedsNoLeaseWaitsForNone: before the engine was asked for the lease, agents
// that go on without one do not wait for it, and are not told that it is lost.
func TestWhoeverNeedsNoLeaseWaitsForNone(t *testing.T) {
	t.Parallel()
	h := hostOf(t, "postgres://nobody@127.0.0.1:1/none", func(s *shipper) { s.keepLease(lease.New(lease.Boottime, time.Hour), 0) })
	h.policy("plain", `{}`)
	begun := make(chan error, 1)
	go func() {
		var all []error
		for _, what := range []server.Beginning{server.BeginStep, server.BeginOperation, server.BeginResume} {
			all = append(all, h.s.Before(t.Context(), fleetUser, ckpt.RunRef{Agent: "plain"}, what))
		}
		run := ckpt.Run{Agent: "plain"}
		if h.s.TellLease(fleetUser, &run); run.Lease != "" || run.OnLeaseLost != ckpt.LeaseLostContinue {
			all = append(all, fmt.Errorf("a heartbeat is answered %+v", run))
		}
		_ = h.s.shipper.keeper.renew(context.Background())
		if h.s.TellLease(fleetUser, &run); run.Lease != ckpt.LeaseLost {
			all = append(all, fmt.Errorf("when the engine did not answer, a heartbeat is answered %+v", run))
		}
		begun <- errors.Join(all...)
	}()
	select {
	case err := <-begun:
		if err != nil {
			t.Error(err)
		}
	case <-time.After(5 * time.Minute):
		t.Error("it waits for a lease that it does not need")
	}
}
