package daemon

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
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
	if _, err := host.AddKey(filepath.Join(folder, "keys"), "", time.Now()); err != nil {
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

// TestFrontBirth: two hosts that begin a run of one name at the same moment, by a start, by a first save or by
// a resume, are one owner and one that is refused. Nothing is acknowledged to the other one, and no run of it
// goes on beside the owner's. Later, a host that begins the run is told who has it, and both ways on.
func TestFrontBirth(t *testing.T) {
	t.Parallel()
	engine, hosts := frontHosts(t, "one", "two")
	begin := map[string]func(h *nemesisHost, run string) reply{
		"start": func(h *nemesisHost, run string) reply {
			return h.ask("POST", "/v1/agents/pay/runs", map[string]any{"run": run})
		},
		"save": func(h *nemesisHost, run string) reply { return h.save("pay", run, 1) },
		"resume": func(h *nemesisHost, run string) reply {
			return h.ask("POST", "/v1/agents/pay/runs/"+run+"/resume", map[string]any{})
		},
		"operation": func(h *nemesisHost, run string) reply {
			return h.ask("POST", "/v1/agents/pay/runs/"+run+"/operations", map[string]any{"key": "pay", "name": "pay"})
		},
	}
	for _, h := range hosts {
		h.policy("pay", "fleet")
	}
	var ofOne []string // the runs that the first host has
	for how, do := range begin {
		for round := range 4 {
			run := fmt.Sprint(how, "-", round)
			var answers [2]reply
			var both sync.WaitGroup
			for i, h := range hosts {
				both.Go(func() { answers[i] = do(h, run) })
			}
			both.Wait()
			owners := 0
			for i, a := range answers {
				if a.status/100 == 2 {
					owners++
					if i == 0 {
						ofOne = append(ofOne, run)
					}
				} else if a.Code != "fenced" && a.Code != "conflict" {
					t.Errorf("%s of %s on %s: %v", how, run, hosts[i].name, a)
				}
			}
			if owners != 1 {
				t.Errorf("%s of %s has %d owners: %v", how, run, owners, answers)
			}
		}
	}
	one, two := hosts[0], hosts[1]
	if a := one.save("pay", "main", 1); a.status != http.StatusCreated || a.Durability != "fleet" {
		t.Fatalf("the first host saves: %v", a)
	}
	for how, do := range begin {
		a := do(two, "main")
		want := []string{"host one", "has run main of pay", "`ckptsidecar fleet claim pay/main`", "`ckptsidecar resume pay --here`"}
		if how == "resume" {
			want = []string{"host one", "owns run main of pay", "holds its lease"}
		}
		for _, text := range want {
			if a.status != http.StatusConflict || !strings.Contains(a.Detail, text) {
				t.Errorf("a %s on the second host: %v, want %q", how, a, text)
			}
		}
	}
	if a := two.ask("POST", "/v1/agents/pay/runs/main/resume", map[string]any{"fleet": false}); a.status != http.StatusConflict {
		t.Errorf("a run is begun anew while its host holds its lease: %v", a)
	}
	one.lost(engine)
	for _, run := range ofOne { // the second host has begun them too, and has acknowledged nothing
		if a := two.ask("POST", "/v1/agents/pay/runs/"+run+"/resume", map[string]any{}); !a.Claimed && a.Verdict != "ask" {
			t.Errorf("run %s does not go on when its host is lost: %v", run, a)
		}
	}
	if a := two.ask("POST", "/v1/agents/pay/runs/main/resume", map[string]any{"fleet": false}); a.Verdict != "fresh" || !a.Claimed {
		t.Errorf("--here, when the lease of the first host is over: %v", a)
	}
	if a := two.save("pay", "main", 2); a.status != http.StatusCreated || a.Durability != "fleet" {
		t.Errorf("the run that was begun anew: %v", a)
	}
	one.start()
	one.ready()
	if a := one.save("pay", "main", 2); a.Code != "fenced" || a.Host != "two" {
		t.Errorf("the first host is back, and saves: %v", a)
	}
}

// TestFrontFresh: with the default policy, a resume on another host does not begin anew beside the run of a
// dead host, unless the caller says so.
func TestFrontFresh(t *testing.T) {
	t.Parallel()
	engine, hosts := frontHosts(t, "one", "two")
	one, two := hosts[0], hosts[1]
	if a := two.save("coder", "other", 1); a.status != http.StatusCreated { // the agent is known there
		t.Fatalf("%v", a)
	}
	if a := one.save("coder", "main", 1); a.status != http.StatusCreated {
		t.Fatalf("%v", a)
	}
	expect.Soon(t, "the run is in the engine", func() bool {
		return len(engine.Rows("fleet", `SELECT uid FROM fleet_runs WHERE run = 'main' AND status <> ''`)) == 1
	})
	one.lost(engine)
	a := two.ask("POST", "/v1/agents/coder/runs/main/resume", map[string]any{})
	if a.status != http.StatusConflict || !strings.Contains(a.Detail, "host one has run main of coder and is silent for") ||
		!strings.Contains(a.Detail, "`ckptsidecar fleet claim coder/main` brings it here, or `ckptsidecar resume coder --here` begins anew") {
		t.Errorf("a resume while the run lies with a dead host: %v", a)
	}
	if a := two.ask("POST", "/v1/agents/coder/runs/main/resume", map[string]any{"fleet": false}); a.Verdict != "fresh" || !a.Claimed {
		t.Errorf("--here: %v", a)
	}
}

// TestFrontUnacknowledged: what a host has written of a run after another host has claimed the run, and has
// acknowledged to nobody, does not keep the run from coming back.
func TestFrontUnacknowledged(t *testing.T) {
	t.Parallel()
	engine, hosts := frontHosts(t, "one", "two")
	one, two := hosts[0], hosts[1]
	for _, h := range hosts {
		h.policy("pay", "fleet")
	}
	if a := one.save("pay", "main", 1); a.status != http.StatusCreated {
		t.Fatalf("%v", a)
	}
	letGo := one.relay.Hold(t)
	for n := range 3 { // none of them is acknowledged
		if a := one.save("pay", "main", 2+n); a.status/100 == 2 {
			t.Fatalf("a save without the engine: %v", a)
		}
	}
	resume := func(h *nemesisHost) reply {
		return h.ask("POST", "/v1/agents/pay/runs/main/resume", map[string]any{"standby": true})
	}
	expect.Soon(t, "the second host has the run", func() bool { return resume(two).Claimed })
	if a := two.save("pay", "main", 2); a.status != http.StatusCreated || a.Durability != "fleet" {
		t.Fatalf("%v", a)
	}
	letGo()
	one.ready()
	two.lost(engine)
	var last reply
	expect.Soon(t, "the first host has the run again", func() bool { last = resume(one); return last.Claimed || last.status == http.StatusConflict })
	if !last.Claimed {
		t.Errorf("the run does not come back: %v", last)
	}
}

// TestFrontRestart: after a restart while the engine is away, the status does not tell rows as not shipped that
// the engine has.
func TestFrontRestart(t *testing.T) {
	t.Parallel()
	engine, hosts := frontHosts(t, "one")
	one := hosts[0]
	for n := range 50 {
		if a := one.save("coder", "main", n); a.status != http.StatusCreated {
			t.Fatalf("%v", a)
		}
	}
	rows := func() int64 {
		s := struct {
			Unshipped int64 `json:"unshipped_rows"`
		}{-1}
		one.call(t.Context(), "GET", "/v1/fleet", nil, &s)
		return s.Unshipped
	}
	expect.Soon(t, "everything is shipped", func() bool { return rows() == 0 })
	engine.Stop()
	if err := one.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	_ = one.cmd.Wait()
	one.start()
	expect.Soon(t, "the daemon is back", func() bool { return rows() >= 0 })
	if a := one.save("coder", "main", 50); a.status != http.StatusCreated {
		t.Fatalf("%v", a)
	}
	if got := rows(); got < 1 || got > 10 { // the save, and the end and the start of the daemon
		t.Errorf("after a restart and one save, %d rows are told as not shipped", got)
	}
}

// TestFrontLostHost: what a claim of every run of a lost host brings goes on by itself, if its agent's policy lets nothing
// be lost. Only the runs of other agents wait for a person.
func TestFrontLostHost(t *testing.T) {
	t.Parallel()
	engine, hosts := frontHosts(t, "one", "two")
	one, two := hosts[0], hosts[1]
	one.policy("pay", "fleet")
	want := map[string]string{"pay": "resume", "coder": "ask"}
	for agent := range want {
		if a := one.ask("POST", "/v1/agents/"+agent+"/runs", map[string]any{}); a.status != http.StatusCreated {
			t.Fatalf("%v", a)
		}
		if a := one.save(agent, "main", 1); a.status != http.StatusCreated {
			t.Fatalf("%v", a)
		}
	}
	expect.Soon(t, "both runs are in the engine", func() bool {
		return len(engine.Rows("fleet", `SELECT uid FROM fleet_runs WHERE seq = 1`)) == 2
	})
	one.lost(engine)
	var page struct {
		Runs []struct{ Agent, Run, DB string }
	}
	two.call(t.Context(), "GET", "/v1/fleet/runs?host=one", nil, &page)
	if len(page.Runs) != 2 {
		t.Fatalf("the lost host has %+v", page)
	}
	for _, r := range page.Runs {
		if a := two.ask("POST", "/v1/fleet/claim", map[string]any{"agent": r.Agent, "run": r.Run, "host": r.DB}); a.status != http.StatusOK {
			t.Errorf("the claim of %+v: %v", r, a)
		}
	}
	for agent, verdict := range want {
		if a := two.ask("POST", "/v1/agents/"+agent+"/runs/main/resume", map[string]any{}); a.Verdict != verdict {
			t.Errorf("the run of %s: %v, want %s", agent, a, verdict)
		}
	}
}
