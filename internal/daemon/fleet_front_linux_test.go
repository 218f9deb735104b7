package daemon

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/ckptsidecar/ckptsidecar/internal/expect"
	"github.com/ckptsidecar/ckptsidecar/internal/fleet/host"
	"github.com/ckptsidecar/ckptsidecar/internal/fleet/pgtest"
)

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

// frontHosts starts an engine and daemons of these names, each a process of its own. The tests know only
// their answers.
func frontHosts(t *testing.T, names ...string) (engine *pgtest.Server, hosts []*nemesisHost) {
	t.Helper()
	engine = pgtest.Start(t)
	if _, _, err := host.Migrate(t.Context(), engine.Database("fleet")); err != nil {
		t.Fatal(err)
	}
	for _, name := range names {
		h := newNemesisHost(t, name, engine.Relay())
		h.ready()
		hosts = append(hosts, h)
	}
	return engine, hosts
}

// ready waits until the daemon holds its lease.
func (h *nemesisHost) ready() {
	h.t.Helper()
	expect.Soon(h.t, h.name+" holds its lease", func() bool {
		var s struct{ State, Lease string }
		return h.call(h.t.Context(), "GET", "/v1/fleet", nil, &s) == http.StatusOK && s.Lease == "held" && s.State == "shipping"
	})
}

// reply is what the tests look at in an answer.
type reply struct {
	status                            int
	Code, Detail, Durability, Verdict string
	Host                              string
	Epoch                             int64
	Claimed                           bool
}

func (r reply) String() string {
	text, err := json.Marshal(r)
	return fmt.Sprint(r.status, " ", string(text), err)
}

func (h *nemesisHost) ask(method, path string, body any) (r reply) {
	h.t.Helper()
	r.status = h.call(h.t.Context(), method, path, body, &r)
	return r
}

// policy sets the policy of an agent.
func (h *nemesisHost) policy(agent, durability string) {
	h.t.Helper()
	if a := h.ask("PUT", "/v1/agents/"+agent+"/policy", map[string]any{"durability": durability}); a.status != http.StatusOK {
		h.t.Fatalf("the policy on %s: %v", h.name, a)
	}
}

// save saves a state in a run without a resume and without an epoch.
func (h *nemesisHost) save(agent, run string, n int) reply {
	h.t.Helper()
	return h.ask("PUT", fmt.Sprintf("/v1/agents/%s/checkpoints/%s?kind=routine&run=%s", agent, uuid.Must(uuid.NewV7()), run), map[string]any{"n": n})
}

// lost kills a daemon, and waits until its lease and the grace are over.
func (h *nemesisHost) lost(engine *pgtest.Server) {
	h.t.Helper()
	h.kill()
	engine.Wait("the lease is over", `SELECT count(*) = 1 FROM fleet_hosts WHERE name = '`+h.name+`' AND lease_until + interval '1100 ms' < clock_timestamp()`)
}

// TestFrontStored: what status says of the engine's contents is what psql shows, with keys and without.
func TestFrontStored(t *testing.T) {
	t.Parallel()
	engine, hosts := frontHosts(t, "clear")
	clear := hosts[0]
	folder := t.TempDir()
	if _, err := host.AddKey(filepath.Join(folder, "keys"), "*", "", time.Now()); err != nil {
		t.Fatal(err)
	}
	sealed := newNemesisHost(t, "sealed", engine.Relay(), filepath.Join(folder, "keys"))
	sealed.ready()
	for _, h := range []*nemesisHost{clear, sealed} {
		h.policy(h.name, "fleet")
		event := map[string]any{"type": "said", "payload": map[string]string{"text": "canary-of-" + h.name}}
		if a := h.ask("POST", "/v1/agents/"+h.name+"/runs/main/events", []any{event}); a.status != http.StatusCreated {
			t.Fatalf("an event on %s: %v", h.name, a)
		}
		readable := strings.Contains(engine.Dump("fleet"), "canary-of-"+h.name)
		var s struct {
			Clear bool     `json:"stored_in_the_clear"`
			Keys  []string `json:"sealed_with"`
		}
		if h.call(t.Context(), "GET", "/v1/fleet", nil, &s); s.Clear != readable || readable != (h == clear) || s.Clear == (len(s.Keys) > 0) {
			t.Errorf("host %s says stored_in_the_clear %v, sealed_with %q; pg_dump shows the state: %v", h.name, s.Clear, s.Keys, readable)
		}
	}
}
