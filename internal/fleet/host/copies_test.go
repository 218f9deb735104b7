package host

import (
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/jmoiron/sqlx"

	ckpt "github.com/ckptsidecar/ckptsidecar"
	"github.com/ckptsidecar/ckptsidecar/internal/db"
	"github.com/ckptsidecar/ckptsidecar/internal/db/copy"
	"github.com/ckptsidecar/ckptsidecar/internal/fleet"
	"github.com/ckptsidecar/ckptsidecar/internal/fleet/pgtest"
)

// copied is a host whose copy in the engine is compared with its database.
type copied struct {
	t      *testing.T
	server *pgtest.Server
	lots   *rand.Rand
	folder string
	url    string
	store  *db.Store
	ship   *shipper
	claims *claimant
	done   map[string]int // how often each action was done
}

func newCopied(t *testing.T, server *pgtest.Server, url, name string, lots *rand.Rand, done map[string]int) *copied {
	t.Helper()
	h := &copied{t: t, server: server, lots: lots, folder: t.TempDir(), url: url, done: done}
	h.store = openFleetStore(t, filepath.Join(h.folder, "ckpt.db"))
	h.claims = claimantOf(h.store, url, name)
	h.restart()
	t.Cleanup(func() { h.ship.hangUp() })
	return h
}

// restart forgets what the shipper knows about the engine.
func (h *copied) restart() {
	if h.ship != nil {
		h.ship.hangUp()
	}
	h.ship = shipperOf(h.store, h.url, h.claims.host.Name)
	h.ship.bytes = []int64{1 << 20, 3000}[h.lots.IntN(2)]
	h.claims.learn = h.ship.owns
}

// state returns a state that is often stored as pieces.
func (h *copied) state() []byte {
	return fmt.Appendf(nil, `{"history":"%s","n":%d}`, strings.Repeat("0123456789abcdef", h.lots.IntN(2)*1200), h.lots.IntN(1000))
}

// act makes one call, and counts it if it succeeded.
func (h *copied) act() {
	ctx, s := h.t.Context(), h.store
	agent, key := string(rune('a'+h.lots.IntN(3))), fmt.Sprint("k", h.lots.IntN(4))
	ref := ckpt.RunRef{Agent: agent, Run: []string{"main", "other"}[h.lots.IntN(2)]}
	what, err := "", error(nil)
	switch h.lots.IntN(16) {
	case 0, 1, 2, 3, 4, 5:
		what = "save"
		_, err = s.Save(ctx, fleetUser, &ckpt.SaveRequest{Agent: agent, Run: ref.Run, Kind: ckpt.KindRoutine, ContentType: ckpt.ContentTypeJSON, State: h.state()})
	case 6:
		what = "operation"
		_, _, err = s.BeginOperation(ctx, fleetUser, ref, ckpt.OperationRequest{Key: key, Name: "pay", State: h.state()})
	case 7:
		what = "end of an operation"
		_, _, err = s.EndOperation(ctx, fleetUser, ref, ckpt.OperationEnd{Key: key, Status: ckpt.OperationSucceeded})
	case 8:
		what = "events"
		_, _, err = s.Append(ctx, fleetUser, ref, []ckpt.NewEvent{{Type: "x", Payload: ckpt.JSON(`{"a":1}`)}}, "")
	case 9:
		what = "step"
		_, _, err = s.BeginStep(ctx, fleetUser, ref, ckpt.StepRequest{Key: key, Name: "search"})
	case 10:
		what = "policy"
		_, err = s.SetOwnPolicy(ctx, fleetUser, agent, fmt.Appendf(nil, `{"routine_keep":%d}`, 1+h.lots.IntN(3)))
	case 11:
		what = "deleted run"
		_, err = s.DeleteRun(ctx, fleetUser, ref, false)
	case 12:
		if what = "erased agent"; h.lots.IntN(3) > 0 {
			return
		}
		_, err = s.Erase(ctx, fleetUser, agent)
	case 13, 14, 15:
		what = "claim"
		_, err = h.claims.Claim(ctx, fleetAdmin, fleet.ClaimRequest{Agent: agent, Run: ref.Run, Owner: "uid:1001", Force: true})
	}
	if err == nil {
		h.done[what]++
	}
}

// quiet ships everything, and learns what other hosts have claimed and erased.
func (h *copied) quiet() {
	h.t.Helper()
	h.ship.learned = time.Time{}
	if err := h.ship.once(h.t.Context()); err != nil {
		h.t.Fatal(err)
	}
	if err := h.ship.learnTaken(h.t.Context()); err != nil {
		h.t.Fatal(err)
	}
}

// here describes what the host has of the runs that it owns.
func (h *copied) here() (list []string) {
	h.t.Helper()
	err := h.store.Reading(h.t.Context(), func(q *sqlx.Tx) error {
		uids, err := h.ownRuns(q, &list)
		if err != nil {
			return err
		}
		for id, uid := range uids {
			rows, err := copy.RowsOf(h.t.Context(), q, id, nil)
			if err != nil {
				return err
			}
			for _, r := range rows {
				list = append(list, fmt.Sprint(r.Kind, " ", uid, " ", r.Key, " ", r.Text))
			}
			var stored []string
			if err := q.SelectContext(h.t.Context(), &stored, `SELECT 'state ' || ?2 || ' ' || n || ' ' || sha256 || ' ' || coalesce(pieces, '') || ' ' ||
				lower(hex(coalesce(body, x''))) FROM checkpoints WHERE run_id = ?1
				UNION ALL SELECT 'segment ' || ?2 || ' ' || id || ' ' || lower(hex(data)) FROM segments WHERE run_id = ?1`, id, uid); err != nil {
				return err
			}
			list = append(list, stored...)
		}
		return nil
	})
	if err != nil {
		h.t.Fatal(err)
	}
	slices.Sort(list)
	return list
}

// ownRuns lists the runs that the host owns, and returns their uids.
func (h *copied) ownRuns(q *sqlx.Tx, list *[]string) (map[int64]string, error) {
	var id int64
	var uid string
	uids := map[int64]string{}
	rows, err := q.QueryxContext(h.t.Context(), `SELECT r.id, r.uid, `+copy.RunColumns+` FROM runs r`)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	for rows.Next() {
		text, err := copy.ScanRuns(&id, &uid).Scan(rows)
		if err != nil {
			return nil, err
		}
		if !slices.ContainsFunc(h.ship.takenNow(), func(t fleet.Taken) bool { return t.UID == uid }) {
			uids[id], *list = uid, append(*list, "run "+uid+" "+text)
		}
	}
	return uids, rows.Err()
}

// there describes what the engine has of the same runs, in the same form.
func (h *copied) there() (list []string) {
	h.t.Helper()
	mine := ` JOIN fleet_runs r ON r.uid = x.run_uid WHERE r.host = '` + h.store.ID + `'`
	for _, query := range []string{
		`SELECT 'run ' || uid || ' ' || doc FROM fleet_runs WHERE host = '` + h.store.ID + `'`,
		`SELECT x.kind || ' ' || x.run_uid || ' ' || x.key || ' ' || x.doc FROM fleet_rows x` + mine,
		`SELECT 'segment ' || x.run_uid || ' ' || x.id || ' ' || encode(x.data, 'hex') FROM fleet_segments x` + mine,
		`SELECT 'state ' || x.run_uid || ' ' || x.n || ' ' || x.sha || ' ' || coalesce(x.pieces, '') || ' ' || encode(coalesce(x.body, ''), 'hex')
			FROM fleet_checkpoints x` + mine,
	} {
		list = append(list, h.server.Rows("fleet", query)...)
	}
	slices.Sort(list)
	return list
}

// TestCopiesOfTwoHosts: two hosts claim runs from each other, erase agents and restart, in random order. After a
// quiet moment, the engine has the same data of each run as its owner.
func TestCopiesOfTwoHosts(t *testing.T) {
	t.Parallel()
	pgtest.Need(t)
	if testing.Short() {
		t.Skip("three histories take a while; make fleet draws them")
	}
	done := map[string]int{}
	for _, seed := range []uint64{1, 2, 3} {
		t.Run(fmt.Sprint("seed=", seed), func(t *testing.T) {
			server, url := fleetEngine(t)
			lots := rand.New(rand.NewPCG(seed, 7))
			hosts := []*copied{newCopied(t, server, url, "one", lots, done), newCopied(t, server, url, "two", lots, done)}
			for round := range 20 {
				for range 1 + lots.IntN(12) {
					hosts[lots.IntN(2)].act()
				}
				if h := hosts[lots.IntN(2)]; lots.IntN(4) == 0 {
					done["restart"]++
					h.restart()
				}
				for range 2 { // each host learns what the other has reported
					hosts[0].quiet()
					hosts[1].quiet()
				}
				for _, h := range hosts {
					if diff := cmp.Diff(h.here(), h.there()); diff != "" {
						t.Fatalf("round %d: the copy (+) of host %s is not as the original (-):\n%.6000s", round, h.claims.host.Name, diff)
					}
				}
			}
		})
	}
	for _, what := range []string{"save", "operation", "events", "step", "policy", "deleted run", "erased agent", "claim", "restart"} {
		if done[what] == 0 {
			t.Errorf("nothing of this kind has happened: %s", what)
		}
	}
	t.Log(done)
}
