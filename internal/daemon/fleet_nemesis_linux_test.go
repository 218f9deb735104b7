package daemon

import (
	"bytes"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	ckpt "github.com/ckptsidecar/ckptsidecar"
	"github.com/ckptsidecar/ckptsidecar/internal/fleet/host"
	"github.com/ckptsidecar/ckptsidecar/internal/fleet/lease"
	"github.com/ckptsidecar/ckptsidecar/internal/fleet/pgtest"
	"github.com/ckptsidecar/ckptsidecar/internal/osfile"
	"github.com/ckptsidecar/ckptsidecar/internal/periodic"
	"github.com/google/uuid"
)

var nemesisFor = flag.Duration("fleet.for", time.Minute, "how long TestFleetNemesis goes on")

// The lease and the grace of the test are the shortest that the settings
// accept.
const (
	nemesisLease = 5 * time.Second
	nemesisGrace = time.Second
)

// fleetHostEnv is the environment variable that makes this program a host of
// the test.
const fleetHostEnv = "CKPTSIDECAR_TEST_FLEET_HOST"

// beFleetHost serves as a host, with the folder from the environment, until it
// is killed.
func beFleetHost(folder string) {
	c := Default(false, os.Getenv)
	c.Database, c.Socket, c.FleetEngine = filepath.Join(folder, "ckpt.db"), filepath.Join(folder, "s"), filepath.Join(folder, "engine")
	c.FleetName, c.FleetLease, c.FleetGrace, c.FleetAssume = filepath.Base(folder), ckpt.Duration(nemesisLease), ckpt.Duration(nemesisGrace), true
	c.WriteTimeout = ckpt.Duration(2 * time.Second)
	c.FleetPrincipals = NamesText(fmt.Sprintf(`{"uid:%d":"acme/build"}`, os.Getuid()))
	if keys := filepath.Join(folder, "keys"); exists(keys) {
		c.FleetKeys = keys
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	if err := (&Daemon{Config: c, Version: "test"}).Run(ctx); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// nemesisHost is a host of the test: a separate process behind its own relay.
type nemesisHost struct {
	t      *testing.T
	name   string
	folder string
	relay  *pgtest.Relay
	cmd    *exec.Cmd
	http   *http.Client
}

// newNemesisHost starts a host. keys, if given, is its key file.
func newNemesisHost(t *testing.T, name string, relay *pgtest.Relay, keys ...string) *nemesisHost {
	t.Helper()
	folder, err := os.MkdirTemp("/tmp", "fleet-nemesis-") // the path of a socket must be short
	if err != nil {
		t.Fatal(err)
	}
	h := &nemesisHost{t: t, name: name, folder: filepath.Join(folder, name), relay: relay}
	if err := os.Mkdir(h.folder, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := osfile.Write(filepath.Join(h.folder, "engine"), []byte(relay.URL("fleet")), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, path := range keys {
		text, err := os.ReadFile(path)
		if err == nil {
			err = osfile.Write(filepath.Join(h.folder, "keys"), text, 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	h.http = &http.Client{Timeout: 4 * time.Second, Transport: &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "unix", filepath.Join(h.folder, "s"))
	}}}
	h.start()
	t.Cleanup(func() {
		h.http.CloseIdleConnections()
		h.kill()
		_ = os.RemoveAll(folder)
	})
	return h
}

func (h *nemesisHost) start() {
	self, err := os.Executable()
	if err != nil {
		h.t.Fatal(err)
	}
	h.cmd = exec.Command(self)
	h.cmd.Env = append(os.Environ(), fleetHostEnv+"="+h.folder)
	h.cmd.Stderr = os.Stderr
	if err := h.cmd.Start(); err != nil {
		h.t.Fatal(err)
	}
}

func (h *nemesisHost) kill() {
	_ = h.cmd.Process.Signal(syscall.SIGCONT)
	_ = h.cmd.Process.Kill()
	_ = h.cmd.Wait()
}

// call sends a request to the host's daemon. The status is 0 if there is no
// answer.
func (h *nemesisHost) call(ctx context.Context, method, path string, body, into any) int {
	text, err := json.Marshal(body)
	if err != nil {
		h.t.Error(err)
	}
	r, err := http.NewRequestWithContext(ctx, method, "http://local"+path, bytes.NewReader(text))
	if err != nil {
		h.t.Error(err)
		return 0
	}
	r.Header.Set("Content-Type", "application/json")
	w, err := h.http.Do(r)
	if err != nil {
		return 0
	}
	defer w.Body.Close()
	answer, err := io.ReadAll(w.Body)
	if err != nil {
		return 0
	}
	_ = json.Unmarshal(answer, into)
	return w.StatusCode
}

// effect is one thing that an agent did to the outside world.
type effect struct {
	at   time.Duration // read from lease.Boottime
	term int64
	host string
}

// seen is what the agents of the test were told and what they did.
type seen struct {
	mu      sync.Mutex
	effects []effect
	acked   int64         // the greatest acknowledged number
	ackedAt time.Duration // the time of that acknowledgement
	acks    int

	answers map[string]string // the answer of each host to the last resume request

	claims, fenced, unknown, lost, strands int
	waits                                  []time.Duration // from the last acknowledgement to the claim
}

func (s *seen) do(f func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	f()
}

// interleaved counts effects of an older term that come after an effect of a
// newer term.
func (s *seen) interleaved() (n int) {
	var newest int64
	for _, e := range s.effects {
		if e.term < newest {
			n++
		}
		newest = max(newest, e.term)
	}
	return n
}

const nemesisRun = "/v1/agents/counter/runs/main"

// agent stands by on a host, and counts while that host owns the run.
func (s *seen) agent(ctx context.Context, h *nemesisHost) {
	for ctx.Err() == nil {
		if !s.counts(ctx, h) {
			_ = periodic.Wait(ctx, 200*time.Millisecond)
		}
	}
}

// counts resumes the run, and counts until a request is refused.
func (s *seen) counts(ctx context.Context, h *nemesisHost) (did bool) {
	var before int64
	s.do(func() { before = s.acked })
	var plan struct {
		Verdict string
		Claimed bool
		Epoch   int64
		Detail  string
		Fleet   *ckpt.PlanFleet

		Checkpoint          struct{ State struct{ N int64 } }
		UncertainOperations []struct{ Key string } `json:"uncertain_operations"`
	}
	status := h.call(ctx, "POST", nemesisRun+"/resume", map[string]any{"standby": before > 0, "pid": os.Getpid()}, &plan)
	s.do(func() { s.answers[h.name] = fmt.Sprint(status, " ", plan.Verdict, " ", plan.Detail) })
	if plan.Fleet != nil {
		s.do(func() { s.claims++; s.waits = append(s.waits, lease.Boottime()-s.ackedAt) })
	}
	switch {
	case status == http.StatusConflict && strings.Contains(plan.Detail, "exist only here"):
		s.settle(ctx, h)
		return false
	case status != http.StatusOK:
		return false
	case plan.Verdict == "ask":
		for _, o := range plan.UncertainOperations { // as if a person had looked
			h.call(ctx, "POST", nemesisRun+"/operations/"+o.Key+"/resolve", map[string]any{"choice": "it_did_not"}, nil)
		}
		return true
	case !plan.Claimed:
		return false
	}
	n := plan.Checkpoint.State.N
	if n < before {
		s.do(func() { s.lost++ })
		h.t.Errorf("host %s goes on from %d under term %d, and %d was acknowledged", h.name, n, plan.Epoch>>20, before)
	}
	for ctx.Err() == nil && s.count(ctx, h, n+1, plan.Epoch) {
		n++
	}
	return true
}

// count does one effect, and saves its number.
func (s *seen) count(ctx context.Context, h *nemesisHost, n, epoch int64) bool {
	var a struct{ Code, Durability string }
	key := fmt.Sprintf("pay-%d-%d", epoch, n)
	status := h.call(ctx, "POST", nemesisRun+"/operations", map[string]any{"key": key, "name": "pay", "epoch": epoch}, &a)
	if status != http.StatusCreated {
		s.refused(status, a.Code)
		return false
	}
	s.do(func() { s.effects = append(s.effects, effect{lease.Boottime(), epoch >> 20, h.name}) })
	h.call(ctx, "POST", nemesisRun+"/operations/"+key+"/succeed", map[string]any{"epoch": epoch}, nil)
	a.Code, a.Durability = "", ""
	status = h.call(ctx, "PUT", fmt.Sprintf("/v1/agents/counter/checkpoints/%s?kind=routine&epoch=%d", uuid.Must(uuid.NewV7()), epoch), map[string]int64{"n": n}, &a)
	if status != http.StatusCreated || a.Durability != "fleet" {
		s.refused(status, a.Code)
		return false
	}
	s.do(func() { s.acked, s.ackedAt, s.acks = max(s.acked, n), lease.Boottime(), s.acks+1 })
	return true
}

func (s *seen) refused(status int, code string) {
	s.do(func() {
		switch {
		case code == "fenced":
			s.fenced++
		case status == 0 || code == "not_replicated":
			s.unknown++
		}
	})
}

// settle deletes what only a host has of the run, as a person would who has exported it.
func (s *seen) settle(ctx context.Context, h *nemesisHost) {
	if h.call(ctx, "DELETE", nemesisRun+"?force=true", nil, nil) == http.StatusOK {
		s.do(func() { s.strands++ })
	}
}

// TestFleetNemesis is T2 and T6: three hosts count in one run, and begin other
// runs at the same moment. The owner of the run is killed, frozen or cut off, or
// gets an older copy of its database, or the engine fails over. Nothing that was
// acknowledged is lost, the effects of two owners never interleave, and a run has
// one owner from its birth.
func TestFleetNemesis(t *testing.T) {
	if testing.Short() {
		t.Skip("it takes a minute")
	}
	if os.Geteuid() != 0 {
		t.Skip("it settles strands as an administrator: run it as root")
	}
	primary := pgtest.Start(t)
	url := primary.Database("fleet")
	standby := primary.Standby()
	if _, _, err := host.Migrate(t.Context(), url); err != nil {
		t.Fatal(err)
	}
	hosts := map[string]*nemesisHost{}
	for _, name := range []string{"one", "two", "three"} {
		hosts[name] = newNemesisHost(t, name, primary.Relay())
	}
	s := &seen{answers: map[string]string{}}
	ctx, cancel := context.WithCancel(t.Context())
	for _, h := range hosts {
		h.setPolicies()
	}
	b := &births{codes: map[string]int{}}
	var agents sync.WaitGroup
	agents.Go(func() { s.agent(ctx, hosts["one"]) })
	s.progress(t, 3)
	for _, name := range []string{"two", "three"} {
		agents.Go(func() { s.agent(ctx, hosts[name]) })
	}
	agents.Go(func() { b.begin(ctx, hosts) })
	n := &nemesis{t: t, s: s, hosts: hosts, engine: primary, standby: standby}
	for began, round := time.Now(), 0; time.Since(began) < *nemesisFor; round++ {
		n.hit(round)
	}
	s.progress(t, 3)
	cancel()
	agents.Wait()
	got := n.engine.Rows("fleet", `SELECT seq FROM fleet_runs WHERE run = 'main'`)
	t.Logf("%d claims, %d acknowledged, %d refused as fenced, %d unknown, %d strands deleted, %d lost, %d interleaved; the engine has checkpoint %q",
		s.claims, s.acks, s.fenced, s.unknown, s.strands, s.lost, s.interleaved(), got)
	t.Logf("from the last acknowledgement to the claim: %v; lease and grace are %v", rounded(s.waits), nemesisLease+nemesisGrace)
	const bar = nemesisLease + nemesisGrace + time.Second
	if *nemesisFor > time.Minute && slices.Max(append(s.waits, 0)) > bar { // only in the long form: a machine can be slow
		t.Errorf("a claim came after %v, want at most %v", slices.Max(s.waits), bar)
	}
	if s.interleaved() > 0 || s.lost > 0 || s.claims < 2 {
		t.Error("acknowledged saves were lost, or effects interleaved, or nothing was claimed")
	}
	b.judge(t, hosts)
}

func rounded(list []time.Duration) (out []time.Duration) {
	for _, d := range list {
		out = append(out, d.Round(100*time.Millisecond))
	}
	return out
}

// progress waits until this many more saves are acknowledged.
func (s *seen) progress(t *testing.T, more int) {
	t.Helper()
	var was int
	s.do(func() { was = s.acks })
	s.until(t, "saves are acknowledged", func() bool { return s.acks >= was+more })
}

func (s *seen) until(t *testing.T, what string, is func() bool) {
	t.Helper()
	for deadline := time.Now().Add(5 * time.Minute); ; {
		var done bool
		s.do(func() { done = is() })
		if done {
			return
		}
		if time.Now().After(deadline) || periodic.Wait(t.Context(), 20*time.Millisecond) != nil {
			s.do(func() { t.Fatalf("waited too long: %s; the hosts last said: %q", what, s.answers) })
		}
	}
}

// nemesis attacks the host that owns the run.
type nemesis struct {
	t       *testing.T
	s       *seen
	hosts   map[string]*nemesisHost
	engine  *pgtest.Server
	standby *pgtest.Server // nil after it has become the engine
}

// hit attacks the owner once, and waits until another host continues.
func (n *nemesis) hit(round int) {
	n.s.progress(n.t, 15)
	rows := n.engine.Rows("fleet", `SELECT h.name FROM fleet_runs r JOIN fleet_hosts h ON h.db = r.host WHERE r.run = 'main'`)
	if len(rows) != 1 {
		n.t.Fatalf("the run has the owners %q", rows)
	}
	owner := n.hosts[rows[0]]
	var claims int
	n.s.do(func() { claims = n.s.claims })
	claimed := func() { n.s.until(n.t, "the run is claimed", func() bool { return n.s.claims > claims }) }
	switch kind := round % 5; {
	case kind == 4:
		n.goBack(owner, claimed)
	case kind == 0:
		n.t.Logf("%s is killed", owner.name)
		owner.kill()
		claimed()
		owner.start()
	case kind == 1:
		n.t.Logf("%s is stopped", owner.name)
		_ = owner.cmd.Process.Signal(syscall.SIGSTOP)
		claimed()
		_ = owner.cmd.Process.Signal(syscall.SIGCONT)
	case kind == 2:
		n.t.Logf("%s is cut off", owner.name)
		letGo := owner.relay.Hold(n.t)
		claimed()
		letGo()
	case n.standby != nil:
		n.t.Logf("the engine fails over")
		n.engine.Stop()
		n.standby.Promote()
		for _, h := range n.hosts {
			h.relay.Follow(n.standby)
		}
		n.engine, n.standby = n.standby, nil
	}
}
