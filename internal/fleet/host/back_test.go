package host

import (
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/ckptsidecar/ckptsidecar/internal/db"
	"github.com/ckptsidecar/ckptsidecar/internal/fleet/pgtest"
)

// TestFleetWentBack is T5: the engine loses data that it had acknowledged,
// because an older copy of it was started, or a standby that lagged was
// promoted. Each host notices this and ships its data again. Nothing is lost.
func TestFleetWentBack(t *testing.T) {
	t.Parallel()
	t.Run("an older copy is started", func(t *testing.T) {
		server, url := fleetEngine(t)
		w := newBackWorld(t, url)
		back := server.Backup()
		w.work()
		back()
		w.whole(server, url)
	})
	t.Run("a standby that was behind is promoted", func(t *testing.T) {
		server, url := fleetEngine(t)
		w := newBackWorld(t, url)
		standby := server.Follower()
		server.Wait("the standby has all", `SELECT count(*) = 1 FROM pg_stat_replication WHERE replay_lsn = pg_current_wal_lsn()`)
		standby.Stop()
		w.work()
		server.Stop()
		standby.Again()
		standby.Promote()
		w.whole(standby, standby.URL("fleet"))
	})
}

// backWorld is two hosts that ship to an engine.
type backWorld struct {
	t      *testing.T
	stores []*db.Store
	ships  []*shipper
	url    string
}

func newBackWorld(t *testing.T, url string) *backWorld {
	w := &backWorld{t: t, url: url}
	for _, name := range []string{"one", "two"} {
		path := filepath.Join(t.TempDir(), name+".db")
		s := openFleetStore(t, path)
		ship := shipperOf(s, url, name)
		ship.url = func() (string, error) { return w.url, nil }
		ship.wordFile, ship.inAudit = path+wordSuffix, s.NoteWentBack
		t.Cleanup(ship.hangUp)
		w.stores, w.ships = append(w.stores, s), append(w.ships, ship)
	}
	w.work()
	return w
}

// work does some work on both hosts and ships it.
func (w *backWorld) work() {
	w.t.Helper()
	for i, s := range w.stores {
		work(w.t, s)
		again(w.t, w.ships[i])
	}
}

// whole connects both hosts to the engine in its present state, and checks that
// it gets everything that they have.
func (w *backWorld) whole(server *pgtest.Server, url string) {
	w.t.Helper()
	w.url = url
	for i, s := range w.stores {
		var here []string
		if err := s.RO.Select(&here, `SELECT id FROM checkpoints ORDER BY id`); err != nil {
			w.t.Fatal(err)
		}
		ask := `SELECT id FROM fleet_checkpoints WHERE db = '` + s.ID + `' ORDER BY id`
		if there := server.Rows("fleet", ask); slices.Equal(here, there) {
			w.t.Fatal("the engine has lost nothing: this test sees nothing")
		}
		again(w.t, w.ships[i])
		if there := server.Rows("fleet", ask); !slices.Equal(here, there) {
			w.t.Errorf("the engine has %d checkpoints of a host that has %d", len(there), len(here))
		}
		var noted int
		if err := s.RO.Get(&noted, `SELECT count(*) FROM audit_log WHERE action = 'engine_went_back' AND who = 'daemon'`); err != nil || noted != 1 {
			w.t.Errorf("the audit log notes it %d times, %v", noted, err)
		}
		if got := w.ships[i].Problem(); !strings.Contains(got, "went back") {
			w.t.Errorf("the status says %q", got)
		}
		if got := w.ships[i].told().wentBack; got != 1 {
			w.t.Errorf("the host has noticed %d times that the engine went back", got)
		}
	}
	v, err := Verify(w.t.Context(), url, configOf(w.stores[0].Opt.Path, "", ""), func(int64, int64) {})
	if err != nil || len(v.Problems) != 0 || v.Hosts != 2 {
		w.t.Errorf("the engine answers %+v, %v", v, err)
	}
}
