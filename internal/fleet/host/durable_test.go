package host

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"

	ckpt "github.com/ckptsidecar/ckptsidecar"
	"github.com/ckptsidecar/ckptsidecar/internal/db"
	"github.com/ckptsidecar/ckptsidecar/internal/expect"
	"github.com/ckptsidecar/ckptsidecar/internal/fleet"
	"github.com/ckptsidecar/ckptsidecar/internal/fleet/pg"
	"github.com/ckptsidecar/ckptsidecar/internal/fleet/pgtest"
	"github.com/ckptsidecar/ckptsidecar/internal/ipc/server"
)

// fleetHost is a store with its shipper and the API over both.
type fleetHost struct {
	t     *testing.T
	store *db.Store
	s     *Member
	api   http.Handler
	stop  func() // ends the shipper
}

// hostOf makes a host. If it has a shipper, the shipper runs until the test ends.
func hostOf(t *testing.T, url string, change ...func(*shipper)) *fleetHost {
	t.Helper()
	h := &fleetHost{t: t, store: openFleetStore(t, filepath.Join(t.TempDir(), "ckpt.db"))}
	h.s = &Member{store: h.store, writeTimeout: time.Minute}
	if url != "" {
		h.s.shipper = shipperOf(h.store, url, "here")
		for _, f := range change {
			f(h.s.shipper)
		}
		ctx, cancel := context.WithCancel(context.Background())
		done := make(chan error, 1)
		go func() { done <- h.s.shipper.Run(ctx) }()
		h.stop = sync.OnceFunc(func() { cancel(); <-done })
		t.Cleanup(h.stop)
	}
	h.api = server.NewServer(server.Options{Store: server.StoreOf(h.store), Durable: h.s.Durable, Before: h.s.Before, Lease: h.s.TellLease, Place: h.s.TellPlace}).HandlerFor(fleetUser.Caller)
	return h
}

// policy sets an agent's policy.
func (h *fleetHost) policy(agent, set string) {
	h.t.Helper()
	if _, err := h.store.SetOwnPolicy(h.t.Context(), fleetUser, agent, []byte(set)); err != nil {
		h.t.Fatal(err)
	}
}

// answered is the answer to an agent.
type answered struct {
	status int
	replay bool
	Seq    int64  `json:"seq"`
	Code   string `json:"code"`
	Detail string `json:"detail"`

	Host       string `json:"host"`
	Term       int64  `json:"term"`
	Ownership  string `json:"ownership"`
	AsOf       int64  `json:"fleet_as_of"`
	Durability string `json:"durability"`
	Retryable  bool   `json:"retryable"`
	Outcome    string `json:"outcome"`
}

func (h *fleetHost) ask(method, path, body string) (a answered) {
	h.t.Helper()
	a.status, a.replay = h.askInto(method, path, body, &a)
	return a
}

// askInto sends a request and decodes the answer into v.
func (h *fleetHost) askInto(method, path, body string, v any) (status int, replay bool) {
	h.t.Helper()
	r := httptest.NewRequest(method, "http://local"+path, strings.NewReader(body))
	r.Header.Set("Content-Type", "application/json")
	w := httptest.NewRecorder()
	h.api.ServeHTTP(w, r)
	if err := json.Unmarshal(w.Body.Bytes(), v); err != nil {
		h.t.Errorf("%s: %v", w.Body, err)
	}
	return w.Code, w.Header().Get("Idempotent-Replayed") == "true"
}

// save saves under an id; "" means a new one.
func (h *fleetHost) save(agent, id string) answered {
	h.t.Helper()
	if id == "" {
		id = newID()
	}
	return h.ask("PUT", "/v1/agents/"+agent+"/checkpoints/"+id+"?kind=routine", fmt.Sprintf(`{"id":%q}`, id))
}

func newID() string { return uuid.Must(uuid.NewV7()).String() }

// saving saves while the test continues.
func (h *fleetHost) saving(agent, id string) <-chan answered {
	answer := make(chan answered, 1)
	go func() { answer <- h.save(agent, id) }()
	return answer
}

// waiting waits until this many requests wait for the engine.
func (h *fleetHost) waiting(n int) {
	h.t.Helper()
	w := h.s.shipper.waiters
	expect.Soon(h.t, fmt.Sprint(n, " requests wait for the engine"), func() bool { w.mu.Lock(); defer w.mu.Unlock(); return len(w.list) == n })
}

func (a answered) want(t *testing.T, what, durability string, replay bool) {
	t.Helper()
	if a.status/100 != 2 || a.Durability != durability || a.replay != replay {
		t.Errorf("%s: %+v, want a success with durability %q, replayed %v", what, a, durability, replay)
	}
}

func (a answered) refused(t *testing.T, what string) {
	t.Helper()
	if a.status != 503 || a.Code != "not_replicated" || !a.Retryable || a.Outcome != "unknown" {
		t.Errorf("%s: %+v, want not_replicated", what, a)
	}
}

const (
	fleetPolicy   = `{"durability":"fleet"}`
	degradePolicy = `{"durability":"fleet","on_outage":"degrade"}`
)

// TestDurableWithoutEngine requests durability fleet without an engine, and with an engine that is away from the
// beginning.
func TestDurableWithoutEngine(t *testing.T) {
	t.Parallel()
	for _, url := range []string{"", "postgres://postgres@127.0.0.1:1/fleet"} {
		h := hostOf(t, url)
		h.policy("strict", fleetPolicy)
		h.policy("lax", degradePolicy)
		here := map[bool]string{true: "", false: "local"}[url == ""]
		h.save("plain", "").want(t, "an agent that asks for nothing", here, false)
		h.save("lax", "").want(t, "an agent that is content with less", "local", false)
		h.s.writeTimeout = 200 * time.Millisecond
		id := newID()
		h.save("strict", id).refused(t, "a save")
		h.save("strict", id).refused(t, "the same save again")
		h.ask("POST", "/v1/agents/strict/runs/main/steps", `{"key":"k","name":"n"}`).refused(t, "a step")
		page, err := h.store.Checkpoints(t.Context(), fleetUser, ckpt.CheckpointFilter{Agent: "strict"})
		if err != nil || len(page.Checkpoints) != 1 || page.Checkpoints[0].ID != id {
			t.Errorf("what was refused is on disk as %+v, %v", page, err)
		}
	}
}

// TestDurableFleet: writes of durability fleet are acknowledged only when they are replicated.
func TestDurableFleet(t *testing.T) {
	t.Parallel()
	server, url := fleetEngine(t)
	h := hostOf(t, url)
	h.policy("strict", fleetPolicy)
	h.policy("lax", degradePolicy)
	a := h.save("strict", "")
	if a.refused(t, "a save on an engine without a standby"); !strings.Contains(a.Detail, "standby") {
		t.Errorf("the agent is told %q", a.Detail)
	}
	h.save("lax", "").want(t, "the same with on_outage degrade", "local", false)
	t.Run("assumed", func(t *testing.T) {
		h := hostOf(t, url, func(s *shipper) { s.assume = true })
		h.policy("strict", fleetPolicy)
		h.save("strict", "").want(t, "a save on an engine that is assumed to replicate", "fleet", false)
	})
	standby := server.Standby()
	h.save("strict", "").want(t, "a save with a standby", "fleet", false) // each batch asks the engine again
	h.save("plain", "").want(t, "a save of an agent that asks for nothing", "local", false)
	h.allWrites()
	h.standbyAway(server, standby)
	h.engineAway(server)
	h.removed(server)
	h.forgotten(server)
	h.claimed(url)
}

// forgotten makes the engine lose everything and cuts the connection. The host ships everything again, including
// the data that it sends only once per connection.
func (h *fleetHost) forgotten(server *pgtest.Server) {
	t := h.t
	names := func() []string {
		return server.Rows("fleet", `SELECT r.owner, r.agent, r.run FROM fleet_runs r JOIN fleet_agents a ON a.uid = r.agent_uid WHERE r.host = '`+h.store.ID+`' ORDER BY 1, 2, 3`)
	}
	h.save("lax", "").want(t, "a save before the engine forgets", "fleet", false)
	before := names()
	server.Exec("fleet", `TRUNCATE fleet_agents, fleet_runs, fleet_checkpoints, fleet_segments, fleet_rows, fleet_audit;
		UPDATE fleet_marks SET mark_n = 0, mark_hash = '';
		SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'ckptsidecar'`)
	id := newID()
	h.save("strict", id).want(t, "a save after the engine has forgotten all", "fleet", false)
	if after := names(); len(before) < 3 || !slices.Equal(after, before) {
		t.Errorf("the engine had the runs %q and has %q", before, after)
	}
	if got := server.Rows("fleet", `SELECT id FROM fleet_checkpoints`); !slices.Contains(got, id) {
		t.Errorf("the engine has %q and not %s", got, id)
	}
}

// claimed lets another host claim a run: after that no write to it is acknowledged, even if this host restarts.
func (h *fleetHost) claimed(url string) {
	t := h.t
	e, err := pg.Dial(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	defer e.Close()
	if _, _, err := e.Register(t.Context(), fleet.Host{DB: "another", Name: "another"}); err != nil {
		t.Fatal(err)
	}
	id := newID()
	h.save("claimed", id)
	h.policy("claimed", fleetPolicy)
	h.save("claimed", id).want(t, "a save before the claim", "fleet", true)
	runs, err := e.Find(t.Context(), fleet.ClaimRequest{Agent: "claimed"})
	if err != nil || len(runs) != 1 {
		t.Fatalf("the engine has %+v, %v", runs, err)
	}
	if _, err := e.Claim(t.Context(), fleet.Claim{Run: &runs[0], To: "another", Ground: fleet.GroundForced}); err != nil {
		t.Fatal(err)
	}
	late := newID()
	if a := h.save("claimed", late); a.status != 409 || a.Code != "fenced" {
		t.Errorf("a save after the claim: %+v", a)
	}
	again := shipperOf(h.store, url, "here") // as after a restart
	h.stop()
	defer again.hangUp()
	if err := again.once(t.Context()); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	if err := again.waiters.Wait(ctx, h.store.Committed(), fleet.RunName(fleetUser.Owner, "claimed", "main"), false); ckpt.CodeOf(err) != ckpt.CodeFenced {
		t.Errorf("the same save after a restart is answered %v", err)
	}
}

// allWrites begins and ends everything that a run consists of.
func (h *fleetHost) allWrites() {
	const run = "/v1/agents/strict/runs/main/"
	for _, w := range [][2]string{
		{"steps", `{"key":"k","name":"n"}`}, {"steps/k/finish", `{"status":"succeeded"}`},
		{"operations", `{"key":"o","name":"n"}`}, {"operations/o/succeed", `{}`},
		{"operations", `{"key":"f","name":"n"}`}, {"operations/f/fail", `{"error":"e"}`},
		{"events", `[{"type":"t"}]`},
	} {
		h.ask("POST", run+w[0], w[1]).want(h.t, w[0], "fleet", false)
	}
}

// cancelWait cancels the wait for the standby in a backend other than the previous one, and returns that backend.
func (h *fleetHost) cancelWait(server *pgtest.Server, before string, answer <-chan answered) string {
	h.t.Helper()
	const waits = ` FROM pg_stat_activity WHERE wait_event = 'SyncRep' AND application_name = 'ckptsidecar'`
	var pids []string
	expect.Soon(h.t, "a backend waits for the standby", func() bool {
		select {
		case a := <-answer:
			h.t.Fatalf("without its standby the engine is believed: %+v", a)
		default:
		}
		pids = server.Rows("postgres", `SELECT pid`+waits+` AND pid <> `+before)
		return len(pids) == 1
	})
	server.Rows("postgres", `SELECT pg_cancel_backend(pid)`+waits+` AND pid = `+pids[0])
	return pids[0]
}

// standbyAway is T4: nothing is acknowledged while the standby is away, not even if the wait for the standby is
// canceled.
func (h *fleetHost) standbyAway(server, standby *pgtest.Server) {
	t := h.t
	standby.Stop()
	id := newID()
	h.s.writeTimeout = 500 * time.Millisecond
	h.save("strict", id).refused(t, "a save without the standby")
	h.s.writeTimeout = time.Minute
	again := h.saving("strict", id)
	h.waiting(1)
	first := h.cancelWait(server, "0", again)
	h.cancelWait(server, first, again) // the shipper has reconnected, and trusts its mark no more than the batch
	h.save("plain", "").want(t, "a save of an agent that asks for nothing", "local", false)
	standby.Again()
	(<-again).want(t, "the same save again", "fleet", true)
}

// engineAway stops the engine and starts it again.
func (h *fleetHost) engineAway(server *pgtest.Server) {
	t := h.t
	server.Stop()
	h.save("lax", "").want(t, "a save without the engine", "local", false)
	h.s.writeTimeout = 200 * time.Millisecond
	id := newID()
	first := h.save("strict", id)
	first.refused(t, "a save without the engine")
	h.s.writeTimeout = time.Minute
	again := h.saving("strict", id)
	h.waiting(1)
	server.Again()
	a := <-again
	a.want(t, "the same save again", "fleet", true)
	saved, err := h.store.Checkpoint(t.Context(), fleetUser, id, false)
	if err != nil || saved.Seq != a.Seq {
		t.Errorf("the first reply was another: %+v, %+v, %v", a, saved, err)
	}
	if got := server.Rows("fleet", `SELECT id FROM fleet_checkpoints`); !slices.Contains(got, id) {
		t.Errorf("the engine has %q and not %s", got, id)
	}
	h.save("lax", "").want(t, "a save when the engine is back", "fleet", false)
}

// removed checks that a save is acknowledged even if retention has removed it before it was shipped.
func (h *fleetHost) removed(server *pgtest.Server) {
	t := h.t
	h.policy("short", `{"durability":"fleet","routine_keep":1}`)
	h.save("short", "").want(t, "the first save", "fleet", false)
	server.Stop()
	ids := []string{newID(), newID()}
	old := h.saving("short", ids[0])
	h.waiting(1)
	newer := h.saving("short", ids[1])
	h.waiting(2)
	if _, err := h.store.Checkpoint(t.Context(), fleetUser, ids[0], false); ckpt.CodeOf(err) != ckpt.CodeNotFound {
		t.Errorf("the older one is still there: %v", err)
	}
	server.Again()
	(<-old).want(t, "a save that retention has removed", "fleet", false)
	(<-newer).want(t, "the newer one", "fleet", false)
	if got := server.Rows("fleet", `SELECT id FROM fleet_checkpoints`); slices.Contains(got, ids[0]) || !slices.Contains(got, ids[1]) {
		t.Errorf("the engine has %q of %q", got, ids)
	}
}
