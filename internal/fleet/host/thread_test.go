package host

import (
	"errors"
	"strings"
	"testing"
	"time"

	ckpt "github.com/ckptsidecar/ckptsidecar"
	"github.com/ckptsidecar/ckptsidecar/internal/fleet"
	"github.com/ckptsidecar/ckptsidecar/internal/ipc"
)

// graphRead is the answer to a read of a graph's thread. The test's checkpoints have no values, so that the answer is
// its header alone.
type graphRead struct {
	answered
	ipc.GraphPageHead
}

// readGraph reads a thread as a graph does before it goes on.
func (r *roaming) readGraph(agent, call, body string) (g graphRead) {
	r.t.Helper()
	g.status, _ = r.askInto("POST", "/v1/agents/"+agent+"/graph/"+call, body, &g)
	return g
}

func (r *roaming) putGraph(agent string, t ckpt.GraphThread, id string) error {
	_, err := r.store.GraphPut(r.t.Context(), fleetUser,
		&ckpt.GraphPut{Agent: agent, GraphThread: t, Checkpoint: ckpt.JSON(`{"v":1,"id":"` + id + `","channel_versions":{}}`)})
	return err
}

// TestARunThatCannotBeOpenedIsNotBegunAnew: on a host without the key, a user is not told that his run is fresh, and a graph
// does not begin anew. Runs of others are not there for him.
func TestARunThatCannotBeOpenedIsNotBegunAnew(t *testing.T) {
	t.Parallel()
	server, url := fleetEngine(t)
	keys := keyFile(t)
	if _, err := AddKey(keys, "second", time.Now()); err != nil {
		t.Fatal(err)
	}
	without := keysWithout(t, keys, "second")
	one := roamingHost(t, url, "one", func(s *shipper) { s.keys = keysIn(keys) })
	two := roamingHost(t, url, "two", func(s *shipper) { s.keys = keysIn(without) })
	thread := ckpt.GraphThread{Thread: "trip"}
	one.policy("moves", fleetPolicy)
	if a := one.save("moves", ""); a.status != 201 {
		t.Fatalf("%+v", a)
	}
	if err := one.putGraph("moves", thread, "1"); err != nil {
		t.Fatal(err)
	}
	one.silent(server)

	const refusal = "is in the fleet, and this host cannot open it: ask an administrator"
	if p := two.resume("moves", `{}`); p.status != 409 || !strings.Contains(p.Detail, "run main of moves "+refusal) || strings.Contains(p.Detail, "second") {
		t.Errorf("the user resumes: %+v", p)
	}
	if g := two.readGraph("moves", "get", `{"thread":"trip"}`); g.status != 409 || !strings.Contains(g.Detail, refusal) {
		t.Errorf("a graph reads its thread: %+v", g)
	}
	c := two.claimant()
	c.keys = keysIn(without)
	var e *ckpt.Error
	err := c.Bring(t.Context(), fleetUser, &ckpt.ResumeRequest{Agent: "moves", Standby: true})
	if wantRefused(t, err, ckpt.CodeConflict, refusal); !errors.As(err, &e) || e.RetryAfter == 0 {
		t.Errorf("a standby is answered %+v, and does not ask again", e)
	}
	wantRefused(t, c.Bring(t.Context(), fleetAdminOf(fleetUser.Owner), &ckpt.ResumeRequest{Agent: "moves"}), ckpt.CodeConflict, "sealed with the key second,")
	_, err = c.Claim(t.Context(), fleetUser, fleet.ClaimRequest{Agent: "moves", Run: "main"})
	wantRefused(t, err, ckpt.CodeNotFound, "no run that fits")
	other := ckpt.Scope{Caller: ckpt.Caller{Owner: "uid:1002"}}
	for _, bring := range []func() error{
		func() error { return c.Bring(t.Context(), other, &ckpt.ResumeRequest{Agent: "moves"}) },
		func() error {
			return c.BringThread(t.Context(), other, ckpt.RunRef{Agent: "moves", Run: thread.RunName()})
		},
		func() error {
			return c.Bring(t.Context(), fleetAdminOf(other.Owner), &ckpt.ResumeRequest{Agent: "moves"})
		},
	} {
		if err := bring(); err != nil {
			t.Errorf("for another user there is nothing to bring, and he is told %v", err)
		}
	}
	if got := server.Rows("fleet", `SELECT count(*) FROM fleet_claims`); got[0] != "0" {
		t.Errorf("refusals left %s claims", got[0])
	}
	if a := two.save("moves", ""); a.status != 201 {
		t.Fatalf("%+v", a)
	}
	two.claimsNothing("a run of its name that is here", "moves", `{}`, "resume")
}

// TestAThreadComesWhenItsGraphReadsIt: a graph that reads its thread on another host never begins anew while a host of
// the fleet has the thread. The thread comes if everything that it did is known, and is refused otherwise.
func TestAThreadComesWhenItsGraphReadsIt(t *testing.T) {
	t.Parallel()
	server, url := fleetEngine(t)
	one, two := roamingHost(t, url, "one"), roamingHost(t, url, "two")
	root, sub := ckpt.GraphThread{Thread: "trip"}, ckpt.GraphThread{Thread: "trip", NS: "plan:1"}
	for agent, policy := range map[string]string{"moves": fleetPolicy, "local": `{"takeover":"auto"}`, "stays": `{"takeover":"manual"}`} {
		one.policy(agent, policy)
		for _, thread := range []ckpt.GraphThread{root, sub} {
			if err := one.putGraph(agent, thread, "1"); err != nil {
				t.Fatal(err)
			}
		}
	}
	waitShipped(t, one)
	const get, subgraph = `{"thread":"trip"}`, `{"thread":"trip","ns":"plan:1"}`
	for call, body := range map[string]string{"get": get, "list": get, "history": `{"thread":"trip","checkpoint":"1","channels":["a"]}`} {
		if g := two.readGraph("moves", call, body); g.status != 409 || !strings.Contains(g.Detail, "holds its lease") {
			t.Errorf("%s while the owner holds its lease: %+v", call, g)
		}
	}
	leaseOver(server, one.store.ID)
	if g := two.readGraph("local", "get", get); g.status != 409 || !strings.Contains(g.Detail, "`ckptsidecar resume local --run "+root.RunName()+"`") {
		t.Errorf("a thread that may have done more than was shipped: %+v", g)
	}
	if g := two.readGraph("stays", "get", get); g.status != 409 || !strings.Contains(g.Detail, "`ckptsidecar fleet claim stays/"+root.RunName()+"`") {
		t.Errorf("a policy that says manual: %+v", g)
	}
	for body, name := range map[string]string{get: root.RunName(), subgraph: sub.RunName()} {
		g := two.readGraph("moves", "get", body)
		if g.status != 200 || len(g.Tuples) != 1 || g.Tuples[0].ID != "1" {
			t.Fatalf("the thread did not come: %+v", g)
		}
		want := two.store.ID + " 1"
		if got := server.Rows("fleet", `SELECT host || ' ' || term FROM fleet_runs WHERE agent = 'moves' AND run = '`+name+`'`); len(got) != 1 || got[0] != want {
			t.Errorf("the engine has %q, want %q", got, want)
		}
	}
	if err := two.putGraph("moves", root, "2"); err != nil {
		t.Errorf("the graph goes on: %v", err)
	}
	// A person brings the other one, as the error says. Then it is here.
	if status, _ := two.askInto("POST", "/v1/agents/local/runs/"+root.RunName()+"/resume", `{}`, new(resumed)); status != 200 {
		t.Errorf("a person resumes the run: %d", status)
	}
	if g := two.readGraph("local", "get", get); g.status != 200 || len(g.Tuples) != 1 {
		t.Errorf("after a person has brought it: %+v", g)
	}

	if err := one.s.shipper.keeper.renew(t.Context()); err != nil {
		t.Fatal(err)
	}
	if g := one.readGraph("moves", "get", get); g.status != 409 || !strings.Contains(g.Detail, "host two, which owns run") {
		t.Errorf("the former owner reads: %+v", g)
	}
}
