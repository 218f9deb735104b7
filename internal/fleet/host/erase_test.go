package host

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	ckpt "github.com/ckptsidecar/ckptsidecar"
	"github.com/ckptsidecar/ckptsidecar/internal/fleet"
)

// filesHave returns the words that occur in the files of a database.
func filesHave(t *testing.T, path string, words []string) (list []string) {
	t.Helper()
	all, err := filepath.Glob(path + "*")
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range all {
		b, err := os.ReadFile(p)
		if err != nil {
			t.Fatal(err)
		}
		list = append(list, found(string(b), words)...)
	}
	return list
}

// again ships on a new connection, as after a while.
func again(t *testing.T, s *shipper) {
	t.Helper()
	s.learned = time.Time{}
	if err := s.once(t.Context()); err == nil {
		return
	}
	s.hangUp()
	if err := s.once(t.Context()); err != nil {
		t.Fatal(err)
	}
}

// TestFleetErase is T8: an agent is erased while another host with a copy of it is away, and then the engine goes
// back to an older state. In the end its words are in no table and on no host.
func TestFleetErase(t *testing.T) {
	t.Parallel()
	server, url := fleetEngine(t)
	pathA, pathB := filepath.Join(t.TempDir(), "a.db"), filepath.Join(t.TempDir(), "b.db")
	storeA, storeB := openFleetStore(t, pathA), openFleetStore(t, pathB)
	a, b := shipperOf(storeA, url, "a"), shipperOf(storeB, url, "b")
	defer a.hangUp()
	defer b.hangUp()
	words := canaries(t, storeA)
	if err := saveOne(storeA, t, "side", `{"other":"canary-side"}`); err != nil {
		t.Fatal(err)
	}
	words = append(words, "canary-side", "canary-strand")
	again(t, a)
	again(t, b)
	if _, err := claimantOf(storeB, url, "b").Claim(t.Context(), fleetAdmin, fleet.ClaimRequest{Agent: "a", Run: "main", Force: true}); err != nil {
		t.Fatal(err)
	}
	again(t, b)
	if err := saveOne(storeA, t, "main", `{"other":"canary-strand"}`); err != nil { // host a does not know about the claim
		t.Fatal(err)
	}
	back := server.Backup()
	a.hangUp()
	b.hangUp()
	again(t, b)

	if _, err := storeB.Erase(t.Context(), fleetUser, "a"); err != nil {
		t.Fatal(err)
	}
	again(t, b)
	again(t, b)
	view := newView(b, storeB)
	waits := func() (names []string) {
		s, err := view.FleetStatus(t.Context(), ckpt.Scope{Caller: ckpt.Caller{Owner: "uid:0", Admin: true}})
		if err != nil {
			t.Fatal(err)
		}
		for _, x := range s.Erasures {
			for _, h := range x.Waits {
				names = append(names, x.Agent+" "+h.Name)
			}
		}
		return names
	}
	if got := waits(); !slices.Equal(got, []string{"a a"}) {
		t.Errorf("the status waits for %q", got)
	}
	if f := view.Erased(); !slices.Equal(f.Waiting, []string{"a"}) {
		t.Errorf("who erases is told %+v", f)
	}
	runs := `SELECT count(*) FROM fleet_runs WHERE run = 'main'`
	if got := server.Rows("fleet", runs); got[0] != "0" {
		t.Errorf("the engine has %s runs that were erased", got[0])
	}

	back()
	if got := server.Rows("fleet", runs); got[0] != "1" {
		t.Fatalf("after it went back the engine has %s runs: this test sees nothing", got[0])
	}
	again(t, b)
	if b.told().wentBack != 1 {
		t.Errorf("it went back %d times", b.told().wentBack)
	}
	if got := server.Rows("fleet", runs); got[0] != "0" {
		t.Errorf("the erasure is not repeated: the engine has %s runs", got[0])
	}
	if got := filesHave(t, pathA, words); len(got) == 0 {
		t.Fatal("host a, which was away, has nothing: this test sees nothing")
	}
	again(t, a) // it is back, and would ship its strand
	again(t, a)
	again(t, b)
	if got := waits(); len(got) != 0 {
		t.Errorf("the status still waits for %q", got)
	}
	if got := found(server.Dump("fleet"), words); len(got) > 0 {
		t.Errorf("the engine has %q", got)
	}
	for _, path := range []string{pathA, pathB} {
		if got := filesHave(t, path, words); len(got) > 0 {
			t.Errorf("%s has %q", path, got)
		}
	}
	var reason string
	if err := storeA.RO.Get(&reason, `SELECT reason FROM audit_log WHERE action = 'erase' AND who = 'daemon'`); err != nil || !strings.Contains(reason, "erased on host b") {
		t.Errorf("the audit log says %q, %v", reason, err)
	}
	if err := saveOne(storeA, t, "main", `{"new":true}`); err != nil { // a new agent of the same name is not erased
		t.Fatal(err)
	}
	again(t, a)
	again(t, b)
	if got := server.Rows("fleet", runs); got[0] != "1" {
		t.Errorf("a new run has %s rows", got[0])
	}
}

// TestFleetErasePrincipal erases the agent of a principal on all hosts, and keeps agents of other principals with
// the same name.
func TestFleetErasePrincipal(t *testing.T) {
	t.Parallel()
	server, url := fleetEngine(t)
	a, b := newSeenHost(t, url, "a"), newSeenHost(t, url, "b")
	a.has("uid:1001", "x", "y")
	a.has("uid:1002", "x")
	b.has("uid:2001", "x")
	b.has("uid:1001", "x")
	a.mapped(map[string]string{"uid:1001": "acme/build"})
	b.mapped(map[string]string{"uid:2001": "acme/build"})
	if _, err := a.store.Erase(t.Context(), ckpt.Scope{Caller: ckpt.Caller{Owner: "uid:1001"}}, "x"); err != nil {
		t.Fatal(err)
	}
	again(t, a.ship)
	left := func() []string {
		return server.Rows("fleet", `SELECT h.name, r.owner, r.agent FROM fleet_runs r JOIN fleet_hosts h ON h.db = r.host ORDER BY 1, 2, 3`)
	}
	if got, want := left(), []string{"a uid:1001 y", "a uid:1002 x", "b uid:1001 x"}; !slices.Equal(got, want) {
		t.Errorf("the engine has %q, want %q", got, want)
	}
	b.has("uid:2001", "x") // before it learns of the erasure
	again(t, b.ship)
	again(t, b.ship)
	var owners []string
	if err := b.store.RO.Select(&owners, `SELECT owner FROM agents WHERE name = 'x'`); err != nil || !slices.Equal(owners, []string{"uid:1001"}) {
		t.Errorf("host b has the agents of %q, %v", owners, err)
	}
	if got := left(); len(got) != 3 {
		t.Errorf("the engine has %q", got)
	}
}

// TestForget: an erasure waits for a host that is gone until a person forgets the host. The host is a member again when it
// comes back, also over a connection that it still has: it erases its copies, and ships the runs that were deleted meanwhile.
func TestForget(t *testing.T) {
	t.Parallel()
	server, url := fleetEngine(t)
	a, b := newHealHost(t, url, "a"), newHealHost(t, url, "b")
	must := failsOn(t)
	must(a.saves(`{}`))
	must(b.saves(`{"keeps":true}`))
	for _, h := range []*healHost{a, b} {
		again(t, h.ship)
		again(t, h.ship)
	}
	forget := func(name string, deleteRuns bool) error {
		_, err := Forget(t.Context(), url, name, deleteRuns)
		return err
	}
	_, err := a.store.Erase(t.Context(), fleetUser, "a")
	must(err)
	again(t, a.ship)
	waits := func() (names []string) {
		again(t, a.ship)
		for _, x := range a.ship.told().erasures {
			for _, h := range x.Waits {
				names = append(names, h.Name)
			}
		}
		return names
	}
	if got := waits(); !slices.Equal(got, []string{"b"}) {
		t.Fatalf("the erasure waits for %q: this test sees nothing", got)
	}
	wantRefused(t, forget("c", true), ckpt.CodeNotFound, "no host c")
	wantRefused(t, forget("b", true), ckpt.CodeConflict, "host b is not gone")
	silent(server)
	wantRefused(t, forget("b", false), ckpt.CodeConflict, "fleet claim --host b --all")
	if got := waits(); !slices.Equal(got, []string{"b"}) {
		t.Errorf("after it was refused, the erasure waits for %q", got)
	}
	must(forget("b", true))
	if got := waits(); len(got) > 0 {
		t.Errorf("the erasure still waits for %q", got)
	}
	if got := server.Rows("fleet", `SELECT count(*) FROM fleet_runs`); got[0] != "0" {
		t.Errorf("the engine has %s runs of the host that was forgotten", got[0])
	}
	if f := newView(a.ship, a.store).Erased(); len(f.Waiting) > 0 {
		t.Errorf("an erasure waits for %q from its beginning", f.Waiting)
	}

	must(b.saves(`{"keeps":2}`))
	if err := b.ship.once(t.Context()); err == nil {
		t.Error("a host that was forgotten ships and does not register again")
	}
	again(t, b.ship)
	if got := server.Rows("fleet", `SELECT seq FROM fleet_runs`); len(got) != 1 || got[0] != "2" {
		t.Errorf("when the host is back the engine has the runs %q", got)
	}
	if n := b.ship.told().wentBack + b.ship.healer.wentBack(); n != 0 {
		t.Error("the host takes the engine for one that went back")
	}
	if got := waits(); len(got) > 0 {
		t.Errorf("when the host is back the erasure waits for %q", got)
	}
	again(t, b.ship)
	silent(server)
	must(forget("b", true))
	b.ship.beat = time.Time{}
	if err := b.ship.sayHello(t.Context()); err == nil {
		t.Error("a host that was forgotten, and has nothing to ship, does not register again")
	}
}
