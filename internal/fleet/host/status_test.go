package host

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	ckpt "github.com/ckptsidecar/ckptsidecar"
	"github.com/ckptsidecar/ckptsidecar/internal/db"
	"github.com/ckptsidecar/ckptsidecar/internal/fleet"
	"github.com/ckptsidecar/ckptsidecar/internal/fleet/pgtest"
	"github.com/ckptsidecar/ckptsidecar/internal/ipc/server"
)

// seenHost is a host with its shipper and the API over both.
type seenHost struct {
	t     *testing.T
	store *db.Store
	ship  *shipper
	api   *server.Server
}

const fleetSecret = "word-of-the-engine" // in the URL; must be in no answer

func newSeenHost(t *testing.T, url, name string) *seenHost {
	t.Helper()
	h := &seenHost{t: t, store: openFleetStore(t, filepath.Join(t.TempDir(), "ckpt.db"))}
	h.ship = shipperOf(h.store, strings.Replace(url, "postgres@", "postgres:"+fleetSecret+"@", 1), name)
	t.Cleanup(h.ship.hangUp)
	h.api = server.NewServer(server.Options{Store: server.StoreOf(h.store), Fleet: (&Member{shipper: h.ship, store: h.store}).API()})
	return h
}

// has saves under each agent's name as the owner, and ships the saves.
func (h *seenHost) has(owner string, agents ...string) {
	h.t.Helper()
	for _, agent := range agents {
		if _, err := h.store.Save(h.t.Context(), ckpt.Scope{Caller: ckpt.Caller{Owner: owner}},
			&ckpt.SaveRequest{Agent: agent, Kind: ckpt.KindRoutine, ContentType: ckpt.ContentTypeJSON, State: []byte(`{}`)}); err != nil {
			h.t.Fatal(err)
		}
	}
	if err := h.ship.once(h.t.Context()); err != nil {
		h.t.Fatal(err)
	}
}

// ask sends a GET request as the caller, and returns the answer.
func (h *seenHost) ask(caller ckpt.Caller, path string, status int) string {
	h.t.Helper()
	w := httptest.NewRecorder()
	h.api.HandlerFor(caller).ServeHTTP(w, httptest.NewRequest(http.MethodGet, "http://daemon"+path, nil))
	if w.Code != status {
		h.t.Errorf("%s as %s answers %d %s, want %d", path, caller.Owner, w.Code, w.Body, status)
	}
	if strings.Contains(w.Body.String(), fleetSecret) {
		h.t.Errorf("%s as %s shows the password: %s", path, caller.Owner, w.Body)
	}
	return w.Body.String()
}

// agents returns the agents of the runs that a caller sees, over all pages,
// sorted.
func (h *seenHost) agents(caller ckpt.Caller, query string) (list []string) {
	h.t.Helper()
	for next := ""; ; {
		var page fleet.Runs
		if err := json.Unmarshal([]byte(h.ask(caller, "/v1/fleet/runs?limit=1"+query+next, 200)), &page); err != nil {
			h.t.Fatal(err)
		}
		for _, r := range page.Runs {
			list = append(list, r.Host+" "+r.Owner+" "+r.Agent)
		}
		if page.Next == nil {
			slices.Sort(list)
			return list
		}
		if next = "&before=" + *page.Next; len(list) > 20 {
			h.t.Fatalf("the pages do not end: %q", list)
		}
	}
}

func (h *seenHost) sees(caller ckpt.Caller, query string, want ...string) {
	h.t.Helper()
	if got := h.agents(caller, query); !slices.Equal(got, want) {
		h.t.Errorf("%s sees with %q the runs %q, want %q", caller.Owner, query, got, want)
	}
}

// TestFleetRights is part of T7: two users of one host, and one of them with
// the same uid on another host. Only an administrator sees what belongs to
// another user.
func TestFleetRights(t *testing.T) {
	t.Parallel()
	engine, url := fleetEngine(t)
	here, there := newSeenHost(t, url, "here"), newSeenHost(t, url, "there")
	ann, bob := ckpt.Caller{Owner: "uid:1001"}, ckpt.Caller{Owner: "uid:1002"}
	admin := ckpt.Caller{Owner: "uid:0", Admin: true}
	here.has(ann.Owner, "canary-ann-1", "canary-ann-2")
	here.has(bob.Owner, "canary-bob")
	there.has(ann.Owner, "canary-of-another-1001")
	ann1, ann2, bobs, another := "here uid:1001 canary-ann-1", "here uid:1001 canary-ann-2", "here uid:1002 canary-bob", "there uid:1001 canary-of-another-1001"

	here.sees(ann, "", ann1, ann2)
	here.sees(bob, "", bobs)
	there.sees(ann, "", another)
	there.sees(bob, "")
	here.sees(ann, "&agent=canary-bob")
	here.sees(ann, "&host=there")
	here.sees(ann, "&host="+there.store.ID)
	here.sees(ann, "&host=here", ann1, ann2)
	here.sees(ann, "&status=completed")
	here.sees(admin, "", ann1, ann2, bobs, another)
	here.sees(admin, "&owner=*", ann1, ann2, bobs, another)
	here.sees(admin, "&owner=uid:1002", bobs)
	here.sees(admin, "&host=there", another)
	here.sees(admin, "&agent=canary-bob&status=running", bobs)
	for _, path := range []string{"/v1/fleet", "/v1/fleet/hosts", "/v1/fleet/runs?owner=uid:1002", "/v1/fleet/runs?owner=*"} {
		if told := here.ask(ann, path, http.StatusForbidden); strings.Contains(told, "canary") || strings.Contains(told, there.store.ID) {
			t.Errorf("who may not see it is told %s", told)
		}
	}
	var reads int
	if err := here.store.RO.Get(&reads, `SELECT count(*) FROM audit_log WHERE action = 'admin_read_fleet_runs' AND who = 'uid:0'`); err != nil || reads == 0 {
		t.Errorf("what an administrator reads has %d rows, %v", reads, err)
	}

	var hosts fleet.Hosts
	if err := json.Unmarshal([]byte(here.ask(admin, "/v1/fleet/hosts", 200)), &hosts); err != nil || len(hosts.Hosts) != 2 || !hosts.Hosts[0].This || hosts.Hosts[1].This {
		t.Errorf("the hosts are %+v, %v", hosts, err)
	}
	here.away(engine, ann, admin)
}

// TestStatusOfAHostWithKeys: a host with keys stores nothing in the clear, also before it has read the keys.
func TestStatusOfAHostWithKeys(t *testing.T) {
	t.Parallel()
	for _, keys := range []string{"", keyFile(t)} {
		h := newSeenHost(t, "postgres://postgres@127.0.0.1:1/fleet", "here")
		if keys != "" {
			h.ship.keys = keysIn(keys)
		}
		if err := h.ship.once(t.Context()); err == nil {
			t.Fatal("there is an engine: this test sees nothing")
		}
		st, err := newView(h.ship, h.store).FleetStatus(t.Context(), fleetAdmin)
		if err != nil || st.Clear != (keys == "") {
			t.Errorf("with the keys %q: stored in the clear: %v, %v", keys, st.Clear, err)
		}
	}
}

// status returns the status of the shipping as an administrator sees it.
func (h *seenHost) status(admin ckpt.Caller) (s fleet.Status) {
	h.t.Helper()
	if err := json.Unmarshal([]byte(h.ask(admin, "/v1/fleet", 200)), &s); err != nil {
		h.t.Fatal(err)
	}
	return s
}

// away checks the status of the shipping before and after the engine dies.
func (h *seenHost) away(engine *pgtest.Server, user, admin ckpt.Caller) {
	t := h.t
	t.Helper()
	if err := h.ship.once(t.Context()); err != nil { // ships what the reads have written
		t.Fatal(err)
	}
	s := h.status(admin)
	if !s.On || s.State != fleet.StateShipping || s.Error != "" || s.Name != "here" || s.DB != h.store.ID || s.Profile != fleet.ProfilePostgres ||
		!strings.HasPrefix(s.Engine, "PostgreSQL") || s.EngineID == "" || s.Unshipped != 0 || s.Lag != 0 || s.Batches == 0 || s.Took <= 0 || s.Mark.N == 0 {
		t.Errorf("the status is %+v", s)
	}
	if want := strings.TrimPrefix(engine.URL("fleet"), "postgres://postgres@"); s.Address != want {
		t.Errorf("the engine is at %q, want %q", s.Address, want)
	}
	engine.Stop()
	if _, err := h.store.Save(t.Context(), ckpt.Scope{Caller: user}, &ckpt.SaveRequest{Agent: "canary-ann-1", Kind: ckpt.KindRoutine, ContentType: ckpt.ContentTypeJSON, State: []byte(`{}`)}); err != nil {
		t.Fatal(err)
	}
	h.ship.note(h.ship.once(t.Context()))
	if s := h.status(admin); s.State != fleet.StateUnreachable || s.Error == "" || s.Unshipped < 1 || s.Engine == "" {
		t.Errorf("without an engine the status is %+v", s)
	}
	h.ship.note(fmt.Errorf("%w (it has row 9)", errSplit))
	if s := h.status(admin); s.State != fleet.StateSplit {
		t.Errorf("with another past the status is %+v", s)
	}
	if told := h.ask(user, "/v1/fleet/runs", http.StatusServiceUnavailable); strings.Contains(told, "127.0.0.1") || strings.Contains(told, "postgres") {
		t.Errorf("a user is told of the engine: %s", told)
	}
	for _, path := range []string{"/v1/fleet/runs", "/v1/fleet/hosts"} {
		if told := h.ask(admin, path, http.StatusServiceUnavailable); !strings.Contains(told, "127.0.0.1") {
			t.Errorf("an administrator is not told what fails: %s", told)
		}
	}
}

// TestFleetStates checks the name of each state of the shipping.
func TestFleetStates(t *testing.T) {
	t.Parallel()
	if got := stateOf(&shipped{}); got != fleet.StateConnecting {
		t.Errorf("a shipper that has begun is %s", got)
	}
	if got := stateOf(&shipped{failure: errors.New("odd")}); got != fleet.StateUnreachable {
		t.Errorf("an error that nobody knows is %s", got)
	}
}
