package host

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	ckpt "github.com/ckptsidecar/ckptsidecar"
	"github.com/ckptsidecar/ckptsidecar/internal/db"
	"github.com/ckptsidecar/ckptsidecar/internal/fleet"
	"github.com/ckptsidecar/ckptsidecar/internal/fleet/lease"
	"github.com/ckptsidecar/ckptsidecar/internal/fleet/pg"
	"github.com/ckptsidecar/ckptsidecar/internal/fleet/pgtest"
)

// failsOn returns a function that ends the test on an error.
func failsOn(t *testing.T) func(error) {
	return func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
}

// healHost is a host that notices that the engine went back.
type healHost struct {
	t     *testing.T
	store *db.Store
	ship  *shipper
}

func newHealHost(t *testing.T, url, name string) *healHost {
	t.Helper()
	path := filepath.Join(t.TempDir(), name+".db")
	h := &healHost{t: t, store: openFleetStore(t, path)}
	h.ship = shipperOf(h.store, url, name)
	h.ship.wordFile = path + wordSuffix
	h.ship.keepHealer()
	t.Cleanup(func() { h.ship.hangUp() })
	return h
}

// restarted simulates a restart of the host's daemon.
func (h *healHost) restarted() {
	h.t.Helper()
	h.ship.keepWord(true)
	h.ship.hangUp()
	was := h.ship
	h.ship = shipperOf(h.store, "", was.host.Name)
	h.ship.url, h.ship.wordFile = was.url, was.wordFile
	w, err := readWordFile(was.wordFile)
	if err != nil {
		h.t.Fatal(err)
	}
	h.ship.taken = w.Taken
	h.ship.keepHealer()
}

// claims claims the run main of user 1001.
func (h *healHost) claims(force bool) error {
	h.t.Helper()
	c := claimantFor(&seenHost{t: h.t, store: h.store, ship: h.ship})
	c.grace, c.healer = time.Second, h.ship.healer
	c.learn = h.ship.owns
	_, err := c.Claim(h.t.Context(), fleetAdmin, fleet.ClaimRequest{Agent: "a", Run: "main", Owner: "uid:1001", Force: force})
	return err
}

func (h *healHost) saves(state string) error { return saveOne(h.store, h.t, "main", state) }

// strand returns how many checkpoints of the run main only this host has.
func (h *healHost) strand() (n int64) {
	h.t.Helper()
	all, err := h.ship.strands(h.t.Context())
	if err != nil {
		h.t.Fatal(err)
	}
	for _, s := range all {
		n += s.Checkpoints
	}
	return n
}

// owner returns the host of the run main in the engine, with its term.
func owner(s *pgtest.Server) string {
	return strings.Join(s.Rows("fleet", `SELECT h.name, r.term FROM fleet_runs r JOIN fleet_hosts h ON h.db = r.host WHERE r.run = 'main'`), ", ")
}

// healWorld makes a run of host a that host b has claimed after a copy of the engine was made. back starts the
// copy.
func healWorld(t *testing.T) (server *pgtest.Server, a, b, c *healHost, back func()) {
	t.Helper()
	server, url := fleetEngine(t)
	a, b, c = newHealHost(t, url, "a"), newHealHost(t, url, "b"), newHealHost(t, url, "c")
	must := failsOn(t)
	must(a.saves(`{"n":1}`))
	for _, h := range []*healHost{a, b, c} {
		again(t, h.ship)
	}
	started := server.Backup()
	must(b.claims(true))
	again(t, b.ship)
	must(b.saves(`{"n":2}`))
	must(a.saves(`{"n":"strand"}`)) // it does not know about the claim yet
	for _, h := range []*healHost{a, b, c} {
		again(t, h.ship)
		again(t, h.ship)
	}
	wantRefused(t, a.saves(`{}`), ckpt.CodeFenced, "has claimed run main")
	if got := owner(server); got != "b 1" {
		t.Fatalf("the owner is %s", got)
	}
	return server, a, b, c, func() {
		t.Helper()
		started()
		if got := owner(server); got != "a 0" {
			t.Fatalf("after the engine went back the owner is %s: this test sees nothing", got)
		}
		silent(server)
	}
}

// TestTermsAreAssertedAgain: the engine loses a claim. The former owner stays fenced, no host claims on its own,
// and the claimant is the owner again when it is back.
func TestTermsAreAssertedAgain(t *testing.T) {
	t.Parallel()
	server, a, b, c, back := healWorld(t)
	back()
	a.restarted()
	again(t, a.ship)
	again(t, a.ship)
	wantRefused(t, a.saves(`{"n":"lost"}`), ckpt.CodeFenced, "has claimed run main")
	again(t, c.ship)
	silent(server)
	err := c.claims(false)
	wantRefused(t, err, ckpt.CodeConflict, "the fleet's engine went back")
	if !strings.Contains(err.Error(), "as these hosts noticed: a, c;") {
		t.Errorf("the claim does not say who has noticed: %v", err)
	}
	if st := c.status(); !slices.Equal(st.Noticed, []string{"a", "c"}) {
		t.Errorf("the status says that %q have noticed, want the hosts a and c", st.Noticed)
	}
	said := func(want string) {
		t.Helper()
		if r, err := Check(t.Context(), c.engineURL()); err != nil || !strings.Contains(strings.Join(r.Notes, "\n"), want) {
			t.Errorf("the check says %+v, %v, want %q", r, err, want)
		}
	}
	said("wait for these hosts, which have not registered since: b")
	b.restarted()
	again(t, b.ship)
	said("as these hosts noticed: a, b, c; no host claims by itself")
	if got := owner(server); got != "b 1" {
		t.Errorf("the owner is %s, want the host that had claimed the run", got)
	}
	if err := b.saves(`{"n":3}`); err != nil {
		t.Errorf("the owner may not write: %v", err)
	}
	again(t, b.ship)
	again(t, a.ship)
	wantRefused(t, a.saves(`{}`), ckpt.CodeFenced, "has claimed run main")
	if got := a.strand(); got != 1 {
		t.Errorf("the strand of host a has %d checkpoints, want the one that it had after the claim", got)
	}
	if v, err := Verify(t.Context(), b.engineURL(), Config{}, func(int64, int64) {}); err != nil || len(v.Problems) != 0 {
		t.Errorf("the engine has the problems %v, %v", v, err)
	}
	silent(server)
	wantRefused(t, c.claims(false), ckpt.CodeConflict, "fleet check --accept")
	if err := AcceptBack(t.Context(), c.engineURL()); err != nil {
		t.Fatal(err)
	}
	if st := c.status(); len(st.Noticed) > 0 {
		t.Errorf("after a person has accepted that the engine went back, the status says that %q have noticed", st.Noticed)
	}
	silent(server)
	if err := c.claims(false); err != nil {
		t.Errorf("after a person has accepted that the engine went back, a claim is refused: %v", err)
	}
	if got := owner(server); got != "c 2" {
		t.Errorf("the owner is %s, want host c under the next term", got)
	}
	latest, err := c.store.Latest(t.Context(), fleetUser, ckpt.CheckpointFilter{Agent: "a", Run: "main"}, true)
	if err != nil || string(latest.State) != `{"n":3}` {
		t.Errorf("the run goes on from %v, %v", latest, err)
	}
}

// TestStartWithoutTheEngine: a daemon that starts while the engine is away keeps what the
// engine has acknowledged before. So it still notices that the engine went back.
func TestStartWithoutTheEngine(t *testing.T) {
	t.Parallel()
	server, a, _, _, back := healWorld(t)
	a.restarted()
	said, err := readWordFile(a.ship.wordFile)
	if err != nil || said.Engine == "" || said.Mark.N == 0 || len(said.Taken) != 1 {
		t.Fatalf("the file says %+v, %v", said, err)
	}
	server.Stop()
	if err := a.ship.once(t.Context()); err == nil {
		t.Fatal("it ships to an engine that is away")
	}
	a.ship.keepWord(false)
	a.restarted()
	if says, err := readWordFile(a.ship.wordFile); err != nil || says.Engine != said.Engine || says.Mark != said.Mark || says.Beats != said.Beats {
		t.Errorf("after a start without the engine the file says %+v, %v, and it said %+v before", says, err, said)
	}
	server.Again()
	back()
	again(t, a.ship)
	again(t, a.ship)
	wantRefused(t, a.saves(`{"n":"lost"}`), ckpt.CodeFenced, "has claimed run main")
}

// status returns the host's status right after a renewal of its lease.
func (h *healHost) status() *fleet.Status {
	h.t.Helper()
	quiet := func(_ context.Context, _ *pg.Engine, renew func(context.Context) ([]fleet.Taken, error)) error {
		_, err := renew(h.t.Context())
		return err
	}
	k := &keeper{asked: make(chan struct{}), line: line{url: h.ship.url}, host: h.ship.host, lease: lease.New(lease.Boottime, time.Minute), log: h.ship.log,
		heed: quiet, renewed: func() {}, hindered: func() error { return nil }}
	defer k.hangUp()
	if err := k.renew(h.t.Context()); err != nil {
		h.t.Fatal(err)
	}
	st := &fleet.Status{}
	k.tell(st)
	return st
}

func (h *healHost) engineURL() string {
	h.t.Helper()
	url, err := h.ship.url()
	if err != nil {
		h.t.Fatal(err)
	}
	return url
}

// TestClaimAfterTheEngineWentBack: a person forces a claim while the engine lacks an earlier claim. The host of the
// earlier claim is fenced, and its work becomes a strand.
func TestClaimAfterTheEngineWentBack(t *testing.T) {
	t.Parallel()
	server, a, b, c, back := healWorld(t)
	back()
	again(t, a.ship)
	again(t, c.ship)
	if err := c.claims(true); err != nil {
		t.Fatal(err)
	}
	again(t, c.ship)
	again(t, b.ship)
	again(t, b.ship)
	if got := owner(server); got != "c 1" {
		t.Errorf("the owner is %s", got)
	}
	wantRefused(t, b.saves(`{"n":3}`), ckpt.CodeFenced, "host c of the fleet has claimed run main")
	if got := b.strand(); got != 2 {
		t.Errorf("the strand of host b has %d checkpoints, want all that it has", got)
	}
}

// TestClaimsWaitForAPerson: a host that does not come back blocks claims until a person has accepted that the engine went
// back. Then the former owner believes the engine.
func TestClaimsWaitForAPerson(t *testing.T) {
	t.Parallel()
	server, a, _, c, back := healWorld(t)
	back()
	again(t, a.ship)
	again(t, c.ship)
	silent(server)
	wantRefused(t, c.claims(false), ckpt.CodeConflict, "the fleet's engine went back")
	e, err := claimantFor(&seenHost{t: t, store: c.store, ship: c.ship}).dial(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer e.Close()
	found, err := e.Find(t.Context(), fleet.ClaimRequest{Agent: "a"})
	if err != nil || len(found) != 1 {
		t.Fatalf("found %+v, %v", found, err)
	}
	server.Exec("fleet", `UPDATE fleet_hosts SET lease_until = clock_timestamp() - interval '1 hour'`)
	if _, err := e.Claim(t.Context(), fleet.Claim{Run: &found[0], To: c.store.ID, Ground: fleet.GroundLease, Grace: time.Second}); !errors.Is(err, pg.ErrTaken) {
		t.Errorf("the engine itself answers the claim with %v", err)
	}
	if err := AcceptBack(t.Context(), a.engineURL()); err != nil {
		t.Fatal(err)
	}
	silent(server)
	if err := c.claims(false); err != nil {
		t.Errorf("after a person has accepted that the engine went back, a claim is refused: %v", err)
	}
	a.ship.hangUp()
	again(t, a.ship)
	wantRefused(t, a.saves(`{}`), ckpt.CodeFenced, "host c of the fleet has claimed run main")
}

func TestGivenAndRemember(t *testing.T) {
	t.Parallel()
	given := []fleet.RunTerm{{UID: "none", Term: 0}, {UID: "mine", Term: 3}, {UID: "lost", Term: 3}, {UID: "here", Term: 1}}
	said := []fleet.Taken{{UID: "mine", Term: 2}, {UID: "lost", Term: 4, From: 7}, {UID: "gone", Term: 1}, {UID: "here", Term: 2, From: 5}}
	if got := fleet.Given(given, said); !slices.Equal(got, []fleet.RunTerm{{UID: "mine", Term: 3}}) {
		t.Errorf("given are %+v", got)
	}
	says := []fleet.Taken{{UID: "here", Term: 2, How: fleet.HowReasserted}}
	if got := fleet.Remember(says, said, given); !slices.Equal(got, []fleet.Taken{said[3], said[1]}) {
		t.Errorf("remembered is %+v", got)
	}
}

// TestRegisteringBesideBatches: a claim registers this host while its batches continue. The engine then has a newer
// count of the host than the claim has read. The host must not conclude that the engine went back.
func TestRegisteringBesideBatches(t *testing.T) {
	t.Parallel()
	server, url := fleetEngine(t)
	h := newHealHost(t, url, "a")
	again(t, h.ship)
	c := claimantFor(&seenHost{t: t, store: h.store, ship: h.ship})
	c.healer = h.ship.healer
	dialed := make(chan error, 1)
	go func() {
		for range 50 {
			e, err := c.dial(t.Context())
			if err != nil {
				dialed <- err
				return
			}
			e.Close()
		}
		dialed <- nil
	}()
	for n := 0; ; n++ {
		select {
		case err := <-dialed:
			if err != nil {
				t.Fatal(err)
			}
			if got := server.Rows("fleet", `SELECT db FROM fleet_hosts WHERE went_back IS NOT NULL`); len(got) > 0 {
				t.Errorf("after %d batches the host takes the engine for one that went back", n)
			}
			return
		default:
		}
		if err := h.saves(fmt.Sprintf(`{"n":%d}`, n)); err != nil {
			t.Fatal(err)
		}
		again(t, h.ship)
	}
}
