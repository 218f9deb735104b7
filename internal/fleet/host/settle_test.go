package host

import (
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	ckpt "github.com/ckptsidecar/ckptsidecar"
	"github.com/ckptsidecar/ckptsidecar/internal/db"
	"github.com/ckptsidecar/ckptsidecar/internal/fleet"
	"github.com/ckptsidecar/ckptsidecar/internal/fleet/pgtest"
	"github.com/ckptsidecar/ckptsidecar/internal/resume"
	"github.com/ckptsidecar/ckptsidecar/internal/retention"
)

// choosing is a host whose choice of what it ships changes.
type choosing struct {
	t      *testing.T
	server *pgtest.Server
	store  *db.Store
	url    string
	s      *shipper
}

// starts simulates a daemon that starts with a setting.
func (w *choosing) starts(byPolicy bool) {
	w.t.Helper()
	w.s.hangUp()
	w.s = shipperOf(w.store, w.url, "here")
	w.s.choice.ByPolicy = byPolicy
	w.ships()
}

func (w *choosing) ships() {
	w.t.Helper()
	if err := w.s.once(w.t.Context()); err != nil {
		w.t.Fatal(err)
	}
}

// has checks which agents the engine holds, and that each one is complete.
func (w *choosing) has(what string, agents ...string) {
	w.t.Helper()
	if got := w.server.Rows("fleet", `SELECT DISTINCT agent FROM fleet_agents ORDER BY 1`); !slices.Equal(got, agents) {
		w.t.Errorf("%s: the engine has the agents %q, and %q are expected", what, got, agents)
	}
	if got := w.server.Rows("fleet", `SELECT DISTINCT agent FROM fleet_runs ORDER BY 1`); !slices.Equal(got, agents) {
		w.t.Errorf("%s: the engine has runs of %q", what, got)
	}
	runs, _, err := w.s.reader.Here(w.t.Context(), w.s.choice)
	if err != nil {
		w.t.Fatal(err)
	}
	var here []string
	for _, n := range runs {
		page, err := w.store.Checkpoints(w.t.Context(), ckpt.Scope{Caller: ckpt.Caller{Owner: n.Owner}}, ckpt.CheckpointFilter{Agent: n.Agent, Run: n.Run, Limit: 100})
		if err != nil {
			w.t.Fatal(err)
		}
		for _, c := range page.Checkpoints {
			here = append(here, n.UID+" "+c.ID)
		}
	}
	slices.Sort(here)
	if diff := cmp.Diff(here, w.server.Rows("fleet", `SELECT run_uid || ' ' || id FROM fleet_checkpoints ORDER BY 1`)); diff != "" {
		w.t.Errorf("%s: the engine's checkpoints (+) are not those of the store (-):\n%s", what, diff)
	}
}

func (w *choosing) policy(agent, set string) {
	w.t.Helper()
	if _, err := w.store.SetOwnPolicy(w.t.Context(), fleetUser, agent, []byte(set)); err != nil {
		w.t.Fatal(err)
	}
}

func saveAs(s *db.Store, t *testing.T, agent string) error {
	t.Helper()
	_, err := s.Save(t.Context(), fleetUser, &ckpt.SaveRequest{Agent: agent, Kind: ckpt.KindRoutine, ContentType: ckpt.ContentTypeJSON, State: []byte(`{"n":1}`)})
	return err
}

// TestFleetShipsByPolicy: only agents whose policies request it are shipped. The engine has no text that was
// entered for another agent, and not its name.
func TestFleetShipsByPolicy(t *testing.T) {
	t.Parallel()
	server, url := fleetEngine(t)
	store := openFleetStore(t, filepath.Join(t.TempDir(), "ckpt.db"))
	w := &choosing{t: t, server: server, store: store, url: url, s: shipperOf(store, url, "here")}
	defer func() { w.s.hangUp() }()
	words := canaries(t, store) // these are of the agent a
	must := failsOn(t)
	must(saveAs(store, t, "shared"))
	words = append(words, "canary-erased", "canary-why", "canary-busy")
	must(saveAs(store, t, "canary-erased"))
	erases := fleetUser
	erases.Reason = "canary-why"
	_, err := store.Erase(t.Context(), erases, "canary-erased")
	must(err)
	w.policy("shared", `{"durability":"fleet"}`)
	_, _, err = store.BeginOperation(t.Context(), fleetUser, ckpt.RunRef{Agent: "canary-busy"}, ckpt.OperationRequest{Key: "o", Name: "pay"})
	must(err)
	w.starts(true)
	if _, err := store.DeleteRun(t.Context(), erases, ckpt.RunRef{Agent: "canary-busy"}, false); ckpt.CodeOf(err) != ckpt.CodeUncertainOperation {
		t.Fatalf("a run with an open operation is deleted: %v", err)
	}
	w.ships()
	w.has("by policy", "shared")
	if got := found(server.Dump("fleet"), words); len(got) > 0 {
		t.Errorf("the engine has %q of an agent that stays here", got)
	}
	if got := server.Rows("fleet", `SELECT DISTINCT agent FROM fleet_audit ORDER BY 1`); !slices.Equal(got, []string{"", "shared"}) {
		t.Errorf("the engine's audit log names %q", got)
	}
	w.policy("a", `{"takeover":"auto","routine_keep":10}`)
	w.ships()
	w.has("after a policy that asks for the fleet", "a", "shared")
	w.policy("a", `{"routine_keep":10}`)
	w.ships()
	w.has("after a policy that no longer does", "shared")
	w.starts(false)
	w.has("with fleet.ship all", "a", "canary-busy", "shared")
	w.starts(true)
	w.has("with fleet.ship policy", "shared")
	if w.s.strays {
		t.Error("it settles for ever")
	}
	problems, err := Verify(t.Context(), url, configOf(filepath.Join(t.TempDir(), "none.db"), "here", ""), func(int64, int64) {})
	if err != nil || len(problems.Problems) > 0 {
		t.Errorf("verify says %+v, %v", problems, err)
	}
}

// TestFleetShipsWhatIsArchived: runs are shipped even if their rows of the audit log were archived before, either
// before the host joined a fleet or while the engine was away.
func TestFleetShipsWhatIsArchived(t *testing.T) {
	t.Parallel()
	server, url := fleetEngine(t)
	now := time.Now().Add(-90 * 24 * time.Hour)
	store, err := db.Open(t.Context(), db.Options{Path: filepath.Join(t.TempDir(), "ckpt.db"), Retention: retention.Plan, Resume: resume.Make, Version: "test",
		Now: func() time.Time { return now }})
	if err != nil {
		t.Fatal(err)
	}
	defer store.Close()
	w := &choosing{t: t, server: server, store: store, url: url, s: shipperOf(store, url, "here")}
	defer func() { w.s.hangUp() }()
	archive := func() {
		t.Helper()
		now = now.Add(30 * 24 * time.Hour)
		store.ArchiveInto(t.TempDir(), 0o700)
		if done, err := store.ArchiveOld(t.Context(), 10*24*time.Hour); err != nil || done.Removed == 0 {
			t.Fatalf("%+v, %v", done, err)
		}
	}
	rows := func(kind string) string {
		return strings.Join(server.Rows("fleet", `SELECT key FROM fleet_rows WHERE kind = '`+kind+`' ORDER BY ord, key`), " ")
	}
	work(t, store)
	archive()
	w.ships()
	w.has("from the beginning", "a")
	if rows("step") != "k1" || rows("operation") != "1 pay-1" || !strings.HasSuffix(rows("event"), "2") {
		t.Errorf("the engine has the steps %q, the operations %q and the events %q", rows("step"), rows("operation"), rows("event"))
	}
	w.s.hangUp()
	ref := ckpt.RunRef{Agent: "a", Run: "main"}
	if _, _, err := store.BeginStep(t.Context(), fleetUser, ref, ckpt.StepRequest{Key: "k2", Name: "search"}); err != nil {
		t.Fatal(err)
	}
	other := ckpt.Scope{Caller: ckpt.Caller{Owner: "uid:1002", PID: 12}}
	if _, err := store.DeleteRun(t.Context(), other, ref, false); err != nil {
		t.Fatal(err)
	}
	archive()
	w.ships()
	w.has("while the engine was away", "a")
	if rows("step") != "k1 k2" {
		t.Errorf("the engine has the steps %q", rows("step"))
	}
	if got := server.Rows("fleet", `SELECT owner FROM fleet_runs`); !slices.Equal(got, []string{fleetUser.Owner}) {
		t.Errorf("the engine has runs of %q, and one of them was deleted", got)
	}
	verified := func(path string) *fleet.Verified {
		t.Helper()
		v, err := Verify(t.Context(), url, configOf(path, "here", ""), func(int64, int64) {})
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
	for _, path := range []string{store.Opt.Path, filepath.Join(t.TempDir(), "another.db")} {
		if v := verified(path); len(v.Problems) > 0 || v.Archived == 0 {
			t.Errorf("rows that were archived before they were shipped: %+v", v)
		}
	}
	for _, key := range []string{"k3", "k4"} {
		if _, _, err := store.BeginStep(t.Context(), fleetUser, ref, ckpt.StepRequest{Key: key, Name: "search"}); err != nil {
			t.Fatal(err)
		}
	}
	w.ships()
	server.Exec("fleet", `DELETE FROM fleet_audit WHERE n = (SELECT max(a.n) - 1 FROM fleet_audit a)`)
	if v := verified(store.Opt.Path); len(v.Problems) != 1 || !strings.Contains(v.Problems[0].What, "are missing before it") {
		t.Errorf("a row that somebody has removed: %+v", v.Problems)
	}
}

// TestFleetShipsWhatIsArchivedLater: rows of the audit log were archived while the engine was
// away, and the engine fails before it has all runs whole. The daemon goes on with that when
// the engine is back, also after a restart. What the engine has whole is not sent again, and
// a run that the engine does not take holds up no other.
func TestFleetShipsWhatIsArchivedLater(t *testing.T) {
	t.Parallel()
	server, url := fleetEngine(t)
	now := time.Now().Add(-90 * 24 * time.Hour)
	path := filepath.Join(t.TempDir(), "ckpt.db")
	store, err := db.Open(t.Context(), db.Options{Path: path, Retention: retention.Plan, Resume: resume.Make, Version: "test",
		Now: func() time.Time { return now }})
	if err != nil {
		t.Fatal(err)
	}
	defer store.Close()
	runs := []string{"one", "two", "three"}
	var s *shipper
	starts := func() {
		if s != nil {
			s.hangUp()
		}
		s = shipperOf(store, url, "here")
		s.wordFile = path + wordSuffix
		s.keepHealer()
	}
	defer func() { s.hangUp() }()
	steps := func(key string) {
		t.Helper()
		for _, run := range runs {
			if _, _, err := store.BeginStep(t.Context(), fleetUser, ckpt.RunRef{Agent: "a", Run: run}, ckpt.StepRequest{Key: key + run, Name: "search"}); err != nil {
				t.Fatal(err)
			}
		}
	}
	starts()
	for _, run := range runs {
		if err := saveOne(store, t, run, `{}`); err != nil {
			t.Fatal(err)
		}
	}
	again(t, s)
	for n, restarts := range []bool{false, true} {
		key := string(rune('a' + n))
		s.hangUp()
		steps(key)
		now = now.Add(30 * 24 * time.Hour)
		if err := saveOne(store, t, "late", `{}`); err != nil {
			t.Fatal(err)
		}
		store.ArchiveInto(t.TempDir(), 0o700)
		if done, err := store.ArchiveOld(t.Context(), 10*24*time.Hour); err != nil || done.Removed == 0 {
			t.Fatalf("%+v, %v", done, err)
		}
		server.Exec("fleet", `ALTER TABLE fleet_rows ADD CONSTRAINT broken CHECK (key <> '`+key+`two') NOT VALID`)
		fails := func() {
			t.Helper()
			if err := s.once(t.Context()); err == nil {
				t.Fatal("an engine that takes not all is taken for one that has all")
			}
			s.hangUp()
		}
		back := server.Backup()
		fails()
		back() // the engine has lost what was sent
		fails()
		one := server.Rows("fleet", `SELECT xmin FROM fleet_runs WHERE run = 'one'`)
		fails()
		if got := server.Rows("fleet", `SELECT xmin FROM fleet_runs WHERE run = 'one'`); !slices.Equal(got, one) {
			t.Error("a run that the engine has whole is sent again")
		}
		if got := strings.Join(server.Rows("fleet", `SELECT key FROM fleet_rows WHERE key LIKE '`+key+`%' ORDER BY key`), " "); got != key+"one "+key+"three" {
			t.Errorf("while the engine does not take one run, it has the steps %q", got)
		}
		if mark, archived := s.told().mark.N, store.Committed(); mark < archived {
			t.Fatalf("the engine has %d of %d rows: this test sees nothing", mark, archived)
		}
		server.Exec("fleet", `ALTER TABLE fleet_rows DROP CONSTRAINT broken`)
		if restarts {
			starts()
		}
		again(t, s)
		for _, run := range runs {
			if got := server.Rows("fleet", `SELECT count(*) FROM fleet_rows WHERE key = '`+key+run+`'`); got[0] != "1" {
				t.Errorf("restarted %v: the engine has %s steps %s", restarts, got[0], key+run)
			}
		}
		if w, err := readWordFile(s.wordFile); err != nil || w.Gap {
			t.Errorf("when all is shipped the file says %+v, %v", w, err)
		}
	}
}
