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
	"unicode"

	"github.com/google/uuid"

	"github.com/ckptsidecar/ckptsidecar/internal/expect"
	"github.com/ckptsidecar/ckptsidecar/internal/fleet/host"
	"github.com/ckptsidecar/ckptsidecar/internal/fleet/pgtest"
	"github.com/ckptsidecar/ckptsidecar/internal/osfile"
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
	expect.Soon(h.t, "the lease of "+h.name+" is over", func() bool {
		return engine.Rows("fleet", `SELECT lease_until + interval '1100 ms' < clock_timestamp() FROM fleet_hosts WHERE name = '`+h.name+`'`)[0] == "true"
	})
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

// TestFrontCheck: an ordinary role with the grants of docs/FLEET.md is told that a standby streams, and what
// it lacks to see more. No text about an engine that is away has a control character.
func TestFrontCheck(t *testing.T) {
	t.Parallel()
	engine, hosts := frontHosts(t, "one")
	engine.Standby()
	engine.Exec("fleet", `CREATE ROLE plain LOGIN; GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA public TO plain`)
	check := func() string {
		t.Helper()
		r, err := host.Check(t.Context(), strings.Replace(engine.URL("fleet"), "postgres@", "plain@", 1))
		if err != nil || !r.Replicated {
			t.Fatalf("%+v, %v", r, err)
		}
		return r.How + "; " + strings.Join(r.Notes, "; ")
	}
	if got := check(); strings.Contains(got, "no standby") || !strings.Contains(got, "connected standbys: 1") || !strings.Contains(got, "pg_monitor") {
		t.Errorf("without pg_monitor: %s", got)
	}
	engine.Exec("fleet", `GRANT pg_monitor TO plain`)
	if got := check(); !strings.Contains(got, "1 standbys count now") {
		t.Errorf("with pg_monitor: %s", got)
	}
	two := []byte("postgres://plain@127.0.0.1:1,127.0.0.1:2/fleet") // two servers, and none of them is there
	if err := osfile.Write(filepath.Join(hosts[0].folder, "engine"), two, 0o600); err != nil {
		t.Fatal(err)
	}
	engine.Stop()
	var s struct{ Error string }
	expect.Soon(t, "the status tells that the engine is away", func() bool {
		return hosts[0].call(t.Context(), "GET", "/v1/fleet", nil, &s) == http.StatusOK && strings.Contains(s.Error, "cannot be reached")
	})
	if strings.ContainsFunc(s.Error, unicode.IsControl) {
		t.Errorf("the status has control characters: %q", s.Error)
	}
}
