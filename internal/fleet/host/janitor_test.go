package host

import (
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	ckpt "github.com/ckptsidecar/ckptsidecar"
	"github.com/ckptsidecar/ckptsidecar/internal/db"
	"github.com/ckptsidecar/ckptsidecar/internal/fleet"
	"github.com/ckptsidecar/ckptsidecar/internal/fleet/pg"
	"github.com/ckptsidecar/ckptsidecar/internal/fleet/pgtest"
	"github.com/ckptsidecar/ckptsidecar/internal/resume"
	"github.com/ckptsidecar/ckptsidecar/internal/retention"
)

// lostHost is a host that will be lost. It has its own clock.
type lostHost struct {
	t     *testing.T
	store *db.Store
	ship  *shipper
	now   atomic.Int64
	path  string
}

func newLostHost(t *testing.T, url string) *lostHost {
	t.Helper()
	h := &lostHost{t: t, path: filepath.Join(t.TempDir(), "lost.db")}
	h.now.Store(time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC).UnixMilli())
	s, err := db.Open(t.Context(), db.Options{
		Path: h.path, Retention: retention.Plan, Resume: resume.Make, Version: "test",
		Now: func() time.Time { return time.UnixMilli(h.now.Load()) }})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	h.store, h.ship = s, shipperOf(s, url, "lost")
	t.Cleanup(h.ship.hangUp)
	return h
}

func (h *lostHost) pass(d time.Duration) { h.now.Add(d.Milliseconds()) }

// saves saves a state, and returns its id.
func (h *lostHost) saves(run string, kind ckpt.Kind, state string) string {
	h.t.Helper()
	saved, err := h.store.Save(h.t.Context(), fleetUser, &ckpt.SaveRequest{
		Agent: "a", Run: run, Kind: kind, ContentType: ckpt.ContentTypeJSON, State: []byte(state)})
	if err != nil {
		h.t.Fatal(err)
	}
	return saved.ID
}

func (h *lostHost) ends(run string) {
	h.t.Helper()
	_, _, err := h.store.EndRun(h.t.Context(), fleetUser, ckpt.RunRef{Agent: "a", Run: run},
		ckpt.EndRequest{Status: ckpt.RunCompleted})
	if err != nil {
		h.t.Fatal(err)
	}
}

// same checks that the engine has exactly the checkpoints of this host.
func (h *lostHost) same(s *pgtest.Server, when string) {
	h.t.Helper()
	var here []string
	if err := h.store.RO.Select(&here, `SELECT id FROM checkpoints ORDER BY id`); err != nil {
		h.t.Fatal(err)
	}
	got := s.Rows("fleet", `SELECT id FROM fleet_checkpoints WHERE db = '`+h.store.ID+`' ORDER BY id`)
	if !slices.Equal(got, here) {
		h.t.Errorf("%s the engine has %q, and the host %q", when, got, here)
	}
}

// janitorOf makes a janitor that trusts the engine's clock at once.
func janitorOf(t *testing.T, s *db.Store, url, name string) *janitor {
	t.Helper()
	j := &janitor{
		after: time.Minute, line: line{url: func() (string, error) { return url, nil }}, host: fleet.Host{DB: s.ID, Name: name},
		incarnation: func() int64 { return 1 }, log: slog.New(slog.DiscardHandler)}
	j.note = (&Member{store: s}).noteCleaning
	j.guard = retention.NewGuard(retention.GuardSettings{Hold: -1, Wall: j.clock.now})
	t.Cleanup(j.hangUp)
	return j
}

func (j *janitor) works(t *testing.T, runs int64, when string) {
	t.Helper()
	was := j.runs.Load()
	if err := j.round(t.Context()); err != nil {
		t.Fatalf("%s: %v", when, err)
	}
	if got := j.runs.Load() - was; got != runs {
		t.Errorf("%s %d runs are cleaned, want %d", when, got, runs)
	}
}

// cleanRows returns the rows of the audit log that say what the janitor has removed.
func cleanRows(t *testing.T, s *db.Store) (rows []string) {
	t.Helper()
	if err := s.RO.Select(&rows, `SELECT detail || ' ' || reason FROM audit_log
		WHERE action = 'clean_fleet' AND who = 'daemon' AND outcome = 'done' ORDER BY n`); err != nil {
		t.Fatal(err)
	}
	return rows
}

// aged makes runs of all kinds on the host, lets nine days pass, and ships them.
func (h *lostHost) aged() (ids map[string]string) {
	h.t.Helper()
	ids = h.makes()
	h.pass(9 * ckpt.Day)
	ids["young"] = h.saves("goes-on", ckpt.KindRecovery, history(9))
	again(h.t, h.ship)
	return ids
}

// history returns a state that shares pieces with others.
func history(n int) string {
	return fmt.Sprintf(`{"history":"%s","n":%d}`, strings.Repeat("0123456789abcdef", 1200+n), n)
}

// makes makes runs of all kinds.
func (h *lostHost) makes() (ids map[string]string) {
	h.t.Helper()
	set := []byte(`{"recovery_keep":"7d","ended_keep":"2d"}`)
	if _, err := h.store.SetOwnPolicy(h.t.Context(), fleetUser, "a", set); err != nil {
		h.t.Fatal(err)
	}
	ids = map[string]string{}
	for n := range 3 {
		ids[fmt.Sprint("old-", n)] = h.saves("goes-on", ckpt.KindRecovery, history(n))
	}
	ids["only"] = h.saves("one-way-back", ckpt.KindRecovery, `{"only":1}`)
	h.saves("over", ckpt.KindRecovery, `{}`)
	h.ends("over")
	ids["pinned"] = h.saves("over-and-pinned", ckpt.KindRecovery, `{"pinned":1}`)
	h.saves("over-and-pinned", ckpt.KindRecovery, `{"pinned":2}`)
	yes := true
	_, err := h.store.Patch(h.t.Context(), fleetUser, ids["pinned"], ckpt.CheckpointPatch{Pinned: &yes})
	if err != nil {
		h.t.Fatal(err)
	}
	h.ends("over-and-pinned")
	ids["hurt-1"] = h.saves("hurt", ckpt.KindRecovery, `{"hurt":1}`)
	ids["hurt-2"] = h.saves("hurt", ckpt.KindRecovery, `{"hurt":2}`)
	ids["hurt-3"] = h.saves("hurt", ckpt.KindRecovery, `{"hurt":3}`)
	if _, _, err := h.store.BeginOperation(h.t.Context(), fleetUser, ckpt.RunRef{Agent: "a", Run: "pays"},
		ckpt.OperationRequest{Key: "pay-1", Name: "pay", State: []byte(`{"due":5}`)}); err != nil {
		h.t.Fatal(err)
	}
	return ids
}

// remains returns the checkpoints that the engine has of a run.
func remains(s *pgtest.Server, run string) []string {
	return s.Rows("fleet", `SELECT c.id FROM fleet_checkpoints c JOIN fleet_runs r ON r.uid = c.run_uid
		WHERE r.run = '`+run+`' ORDER BY c.seq`)
}

// TestJanitor: a host is lost, the janitor cleans up after it, and the host comes back. The host was only paused,
// so it does not know about the cleaning.
func TestJanitor(t *testing.T) {
	t.Parallel()
	server, url := fleetEngine(t)
	here := openFleetStore(t, filepath.Join(t.TempDir(), "here.db"))
	ship := shipperOf(here, url, "here")
	defer ship.hangUp()
	again(t, ship)
	lost := newLostHost(t, url)
	ids := lost.aged()
	lost.same(server, "before")
	j := janitorOf(t, here, url, "here")
	j.spares(t, server, lost)
	segments := server.Rows("fleet", `SELECT count(*) FROM fleet_segments`)[0]
	server.Exec("fleet", `UPDATE fleet_checkpoints SET body = '\x00' WHERE id = '`+ids["hurt-3"]+`'`)

	j.works(t, 4, "after the host is lost")
	for run, want := range map[string][]string{
		"goes-on": {ids["young"]}, "one-way-back": {ids["only"]}, "over": nil, "over-and-pinned": {ids["pinned"]},
		"hurt": {ids["hurt-2"], ids["hurt-3"]}, // the newest is damaged: the rollback target is the one before
	} {
		if got := remains(server, run); !slices.Equal(got, want) {
			t.Errorf("run %s has the checkpoints %q, want %q", run, got, want)
		}
	}
	if got := len(remains(server, "pays")); got != 1 {
		t.Errorf("the run with an open operation has %d checkpoints", got)
	}
	if got := server.Rows("fleet", `SELECT run FROM fleet_runs WHERE run = 'over'`); len(got) != 0 {
		t.Error("the run that was over is still there")
	}
	if after := server.Rows("fleet", `SELECT count(*) FROM fleet_segments`)[0]; after == segments {
		t.Errorf("%s segments are there as before", after)
	}
	j.same(t, server, here, url, lost)
	lost.comesBack(server, url, ids)
}

// spares checks that the janitor does not touch a host that is alive or has been silent only for a while.
func (j *janitor) spares(t *testing.T, server *pgtest.Server, lost *lostHost) {
	t.Helper()
	j.works(t, 0, "while the host is alive")
	server.Exec("fleet", `UPDATE fleet_hosts SET lease_until = clock_timestamp() - interval '1 hour' WHERE db = '`+lost.store.ID+`'`)
	j.works(t, 0, "while the engine hears of the host")
	server.Exec("fleet", `UPDATE fleet_hosts SET lease_until = clock_timestamp() WHERE db = '`+lost.store.ID+`'`)
	server.Exec("fleet", `UPDATE fleet_marks SET seen_at = seen_at - interval '1 hour' WHERE db = '`+lost.store.ID+`'`)
	j.works(t, 0, "just after the lease is over")
	server.Exec("fleet", `UPDATE fleet_hosts SET lease_until = clock_timestamp() - interval '1 hour' WHERE db = '`+lost.store.ID+`'`)
	server.Exec("fleet", `INSERT INTO fleet_heals (db, noticed_at, horizon, until)
		SELECT 'other', clock_timestamp(), clock_timestamp() - interval '1 day', clock_timestamp() + interval '1 hour'`)
	j.works(t, 0, "while the engine is healed")
	server.Exec("fleet", `DELETE FROM fleet_heals`)
	lost.same(server, "while nothing may go")
}

// same checks that a second round cleans nothing, that the engine is intact, and that the audit log has its rows.
func (j *janitor) same(t *testing.T, server *pgtest.Server, here *db.Store, url string, lost *lostHost) {
	t.Helper()
	j.works(t, 0, "again")
	rows := cleanRows(t, here)
	if len(rows) != 4 || !strings.Contains(strings.Join(rows, "\n"), "its 7d as a recovery checkpoint are over") {
		t.Errorf("the audit log says %q", rows)
	}
	for _, says := range []string{`"run":"over"`, `"dropped":true`, `"host":"lost"`, lost.store.ID, "host lost is lost",
		"the run has ended and its time is over"} {
		if !strings.Contains(strings.Join(rows, "\n"), says) {
			t.Errorf("the audit log does not say %q: %q", says, rows)
		}
	}
	server.Exec("fleet", `UPDATE fleet_checkpoints SET body = (SELECT body FROM fleet_checkpoints WHERE id = 'none') WHERE body = '\x00'`)
	v, err := Verify(t.Context(), url, configOf(lost.path, "lost", ""), func(_, _ int64) {})
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range v.Problems {
		if p.Rule != "checkpoint" || !strings.Contains(p.Subject, "hurt") { // damaged by this test
			t.Errorf("after the cleaning: %v", &p)
		}
	}
}

// comesBack continues a host that was only paused: its connection still works, and it remembers segments that have
// been removed.
func (h *lostHost) comesBack(server *pgtest.Server, url string, ids map[string]string) {
	t := h.t
	h.saves("goes-on", ckpt.KindRoutine, history(10))
	if err := h.ship.once(t.Context()); !errors.Is(err, pg.ErrMoved) {
		t.Fatalf("a host that was paused ships on: %v", err)
	}
	h.ship.hangUp()
	again(t, h.ship)
	h.same(server, "when the host is back")
	if got := server.Rows("fleet", `SELECT run FROM fleet_runs WHERE run = 'over'`); len(got) != 1 {
		t.Error("the run that the host still has is not there")
	}
	v, err := Verify(t.Context(), url, configOf(h.path, "lost", ""), func(_, _ int64) {})
	if err != nil || len(v.Problems) != 0 || v.Compared == 0 {
		t.Errorf("when the host is back the engine has %+v, %v", v, err)
	}
	clock := func() time.Time { return time.UnixMilli(h.now.Load()) }
	w := retention.Worker{Store: h.store, Guard: retention.NewGuard(retention.GuardSettings{Hold: -1, Wall: clock})}
	if r, err := w.Once(t.Context()); err != nil || r.Removed < 4 || r.Dropped != 1 {
		t.Errorf("the host's own retention does %+v, %v", r, err)
	}
	again(t, h.ship)
	h.same(server, "after the host's own retention")
	h.ship.hangUp()
	again(t, h.ship)
	h.same(server, "after the next connection")
	if got := server.Rows("fleet", `SELECT count(*) FROM fleet_cleanings WHERE answered IS NULL`); got[0] != "0" {
		t.Errorf("%s cleanings are not answered", got[0])
	}
	if got := remains(server, "goes-on"); !slices.Contains(got, ids["young"]) || slices.Contains(got, ids["old-0"]) {
		t.Errorf("in the end run goes-on has the checkpoints %q", got)
	}
}

// lostWorld is a host that is lost, and two other hosts.
func lostWorld(t *testing.T) (server *pgtest.Server, url string, lost *lostHost, one, two *db.Store, ids map[string]string) {
	t.Helper()
	server, url = fleetEngine(t)
	one, two = openFleetStore(t, filepath.Join(t.TempDir(), "one.db")), openFleetStore(t, filepath.Join(t.TempDir(), "two.db"))
	for name, s := range map[string]*db.Store{"one": one, "two": two} {
		ship := shipperOf(s, url, name)
		t.Cleanup(ship.hangUp)
		again(t, ship)
	}
	lost = newLostHost(t, url)
	ids = lost.aged()
	lost.ship.hangUp()
	return server, url, lost, one, two, ids
}

// TestJanitorsTakeTurns: two hosts never both clean, even if one of them is late.
func TestJanitorsTakeTurns(t *testing.T) {
	t.Parallel()
	server, url, lost, one, two, _ := lostWorld(t)
	a, b := janitorOf(t, one, url, "one"), janitorOf(t, two, url, "two")
	a.works(t, 0, "while the host is alive")
	silent(server)
	b.works(t, 0, "while the other host is the janitor")
	if !a.holds.Load() || b.holds.Load() {
		t.Error("the first host is not the janitor")
	}
	server.Exec("fleet", `UPDATE fleet_janitor SET until = clock_timestamp() - interval '1 second'`)
	server.Exec("fleet", `UPDATE fleet_marks SET seen_at = clock_timestamp() WHERE db = '`+one.ID+`'`) // this host is alive
	b.works(t, 4, "when the janitor was silent")
	if late := a.judged(t, lost); len(late) != 0 {
		t.Errorf("a late janitor finds work: %v", late)
	}
	if got := len(cleanRows(t, one)) + len(cleanRows(t, two)); got != 4 || len(cleanRows(t, two)) != 4 {
		t.Errorf("the audit logs have %d rows", got)
	}
}

// TestJanitorIsLate: the janitor removes nothing if, after it has judged, the host is heard of again, the run is
// claimed, or another host has become the janitor. Nothing changes then.
func TestJanitorIsLate(t *testing.T) {
	t.Parallel()
	server, url, lost, one, two, _ := lostWorld(t)
	silent(server)
	j := janitorOf(t, one, url, "one")
	if err := j.dial(t.Context()); err != nil {
		t.Fatal(err)
	}
	if holds, err := j.engine.HoldJanitor(t.Context(), j.as()); !holds || err != nil {
		t.Fatalf("the host is the janitor: %v, %v", holds, err)
	}
	judged := j.judged(t, lost)
	if len(judged) != 4 {
		t.Fatalf("%d runs are to be cleaned", len(judged))
	}
	db := ` WHERE db = '` + lost.store.ID + `'`
	before := server.Rows("fleet", `SELECT run_uid || n FROM fleet_checkpoints ORDER BY 1`)
	marks, hosts := `UPDATE fleet_marks SET `, `UPDATE fleet_hosts SET `
	mine := ` WHERE db = '` + one.ID + `'`
	for what, statements := range map[string][2]string{
		"the host is heard of": {marks + `seen_at = seen_at + interval '1 hour'` + db,
			marks + `seen_at = seen_at - interval '1 hour'` + db},
		"the lease is renewed": {hosts + `lease_until = clock_timestamp()` + db, hosts + `lease_until = NULL` + db},
		"the host has shipped": {marks + `mark_n = mark_n + 1` + db, marks + `mark_n = mark_n - 1` + db},
		"another host is the janitor": {`UPDATE fleet_janitor SET db = '` + two.ID + `'`,
			`UPDATE fleet_janitor SET db = '` + one.ID + `'`},
		"the janitor's lease is another daemon's": {hosts + `incarnation = 2` + mine, hosts + `incarnation = 1` + mine},
		"the runs have another owner":             {`UPDATE fleet_runs SET term = term + 1`, `UPDATE fleet_runs SET term = term - 1`},
	} {
		server.Exec("fleet", statements[0])
		if err := j.dial(t.Context()); err != nil {
			t.Fatal(err)
		}
		for i := range judged {
			if err := j.engine.Clean(t.Context(), j.as(), &judged[i]); !errors.Is(err, pg.ErrNotQuiet) {
				t.Errorf("%s, and the janitor answers %v", what, err)
			}
			j.hangUp()
			if err := j.dial(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		server.Exec("fleet", statements[1])
	}
	after := server.Rows("fleet", `SELECT run_uid || n FROM fleet_checkpoints ORDER BY 1`)
	if got := server.Rows("fleet", `SELECT count(*) FROM fleet_cleanings`); !slices.Equal(after, before) || got[0] != "0" {
		t.Errorf("the janitor was late, and has removed something: %s cleanings", got[0])
	}
	for i := range judged {
		if err := j.engine.Clean(t.Context(), j.as(), &judged[i]); err != nil {
			t.Errorf("when nothing has happened: %v; this test sees nothing", err)
		}
	}
}

// judged returns what the janitor would remove of a lost host.
func (j *janitor) judged(t *testing.T, of *lostHost) (all []fleet.Cleaning) {
	t.Helper()
	hosts, err := j.engine.QuietHosts(t.Context(), j.as())
	for i := range hosts {
		if hosts[i].DB == of.store.ID && err == nil {
			err = j.judgeHost(t.Context(), &hosts[i], func(c *fleet.Cleaning) error {
				all = append(all, *c)
				return nil
			})
		}
	}
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// TestJanitorIsKilled: a janitor that dies after a removal, before it has recorded it, records it when it is back.
// What it was about to remove is removed the next time.
func TestJanitorIsKilled(t *testing.T) {
	t.Parallel()
	server, url, _, one, _, _ := lostWorld(t)
	silent(server)
	j := janitorOf(t, one, url, "one")
	died := errors.New("killed")
	j.note = func(*fleet.CleaningNoted) error { return died }
	if err := j.round(t.Context()); !errors.Is(err, died) {
		t.Fatalf("the janitor dies with %v", err)
	}
	if got := server.Rows("fleet", `SELECT count(*) FROM fleet_cleanings WHERE noted IS NULL`); got[0] != "4" || len(cleanRows(t, one)) != 0 {
		t.Fatalf("%s cleanings are not noted, and the audit log has %d", got[0], len(cleanRows(t, one)))
	}
	j.hangUp()
	next := janitorOf(t, one, url, "one")
	next.works(t, 0, "after the death of the janitor")
	next.works(t, 0, "later")
	if got := len(cleanRows(t, one)); got != 4 {
		t.Errorf("the audit log has %d rows of 4 cleanings", got)
	}
}

// TestJanitorWithARole cleans up with the rights of examples/fleet/rights.sql. A host that is not the janitor must
// not.
func TestJanitorWithARole(t *testing.T) {
	t.Parallel()
	server, url, lost, one, two, _ := lostWorld(t)
	server.Exec("fleet", rights(t))
	as := func(role, db string) string {
		server.Exec("fleet", `CREATE ROLE `+role+` LOGIN IN ROLE ckpt_hosts`)
		server.Exec("fleet", `INSERT INTO fleet_roles (role, db) VALUES ('`+role+`', '`+db+`')`)
		return strings.Replace(url, "postgres@", role+"@", 1)
	}
	urlOne, urlTwo, urlLost := as("ckpt_one", one.ID), as("ckpt_two", two.ID), as("ckpt_lost", lost.store.ID)
	tries := func(when string) {
		t.Helper()
		for _, do := range []string{`DELETE FROM fleet_checkpoints WHERE db = '` + lost.store.ID + `'`,
			`DELETE FROM fleet_runs WHERE host = '` + lost.store.ID + `'`} {
			n, err := server.Try(urlTwo, do)
			if err == nil && n > 0 {
				t.Errorf("%s another host may %s: %d rows", when, do, n)
			}
		}
	}
	tries("while the host is alive")
	silent(server)
	server.Exec("fleet", `UPDATE fleet_marks SET seen_at = clock_timestamp() WHERE db <> '`+lost.store.ID+`'`)
	janitorOf(t, one, urlOne, "one").works(t, 4, "with a role of its own")
	tries("which is not the janitor")
	for _, do := range []string{`UPDATE fleet_janitor SET until = until + interval '1 year'`,
		`DELETE FROM fleet_janitor`, `DELETE FROM fleet_cleanings`, `UPDATE fleet_cleanings SET why = 'x'`} {
		if n, err := server.Try(urlTwo, do); err == nil && n > 0 {
			t.Errorf("another host may %s: %d rows", do, n)
		}
	}
	lost.ship.url = func() (string, error) { return urlLost, nil }
	again(t, lost.ship)
	lost.same(server, "with a role of its own, when the host is back")
}

// TestJanitorKeepsClaimedRuns: a run that another host owned before can have a strand there. Its checkpoints are
// removed, but the run stays, so that its former owner still learns of the claim.
func TestJanitorKeepsClaimedRuns(t *testing.T) {
	t.Parallel()
	server, url, lost, one, _, _ := lostWorld(t)
	silent(server)
	server.Exec("fleet", `INSERT INTO fleet_claims (run_uid, term, from_db, to_db, at, how)
		SELECT uid, term, 'former', host, clock_timestamp(), 'claimed' FROM fleet_runs WHERE run = 'over' AND host = '`+lost.store.ID+`'`)
	j := janitorOf(t, one, url, "one")
	j.works(t, 4, "with a run that was claimed")
	if got := server.Rows("fleet", `SELECT status FROM fleet_runs WHERE run = 'over'`); len(got) != 1 || len(remains(server, "over")) != 0 {
		t.Errorf("the run that was claimed is %q, with the checkpoints %q", got, remains(server, "over"))
	}
	j.works(t, 0, "again")
}

// TestJanitorNeedsTheKey: a host without the key leaves sealed runs alone, and a host with the key cleans them.
func TestJanitorNeedsTheKey(t *testing.T) {
	t.Parallel()
	server, url := fleetEngine(t)
	keys := keyFile(t)
	one := openFleetStore(t, filepath.Join(t.TempDir(), "one.db"))
	ship := shipperOf(one, url, "one")
	defer ship.hangUp()
	again(t, ship)
	lost := newLostHost(t, url)
	lost.ship.keys = keysIn(keys)
	ids := lost.aged()
	lost.ship.hangUp()
	silent(server)
	j := janitorOf(t, one, url, "one")
	j.works(t, 0, "without the key")
	lost.same(server, "without the key")
	j.keys = keysIn(keys)
	j.works(t, 4, "with the key")
	if got := remains(server, "goes-on"); !slices.Equal(got, []string{ids["young"]}) {
		t.Errorf("with the key %q remain", got)
	}
}

// TestJanitorJudgesByTheHostsClock: the clock of a host is months behind. By that clock, the host made everything
// just now, so nothing is old after it has been lost for an hour.
func TestJanitorJudgesByTheHostsClock(t *testing.T) {
	t.Parallel()
	server, url := fleetEngine(t)
	one := openFleetStore(t, filepath.Join(t.TempDir(), "one.db"))
	ship := shipperOf(one, url, "one")
	defer ship.hangUp()
	again(t, ship)
	lost := newLostHost(t, url)
	lost.now.Store(time.Now().Add(-200 * ckpt.Day).UnixMilli())
	lost.makes()
	again(t, lost.ship)
	silent(server)
	j := janitorOf(t, one, url, "one")
	j.works(t, 0, "an hour after a host with a late clock is lost")
	back := 8 * ckpt.Day
	server.Exec("fleet", fmt.Sprintf(`UPDATE fleet_marks SET seen_at = seen_at - interval '%d seconds' WHERE db = '%s'`,
		int(back.Seconds()), lost.store.ID))
	j.works(t, 4, "eight days later")
}

// TestJanitorDistrustsAClock: nothing is removed for its age just after the start, or after a jump of the engine's
// clock.
func TestJanitorDistrustsAClock(t *testing.T) {
	t.Parallel()
	server, url, _, one, _, _ := lostWorld(t)
	silent(server)
	j := janitorOf(t, one, url, "one")
	var mono atomic.Int64
	clock := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC).UnixMilli()
	var wall atomic.Int64
	wall.Store(clock)
	j.guard = retention.NewGuard(retention.GuardSettings{Hold: 10 * time.Minute, Tolerance: clockTolerance,
		Wall: func() time.Time { return time.UnixMilli(wall.Load()) }, Monotonic: func() time.Duration { return time.Duration(mono.Load()) }})
	pass := func(d, jump time.Duration) {
		mono.Add(int64(d))
		wall.Add((d + jump).Milliseconds())
	}
	j.works(t, 0, "just after the start")
	pass(11*time.Minute, ckpt.Day)
	j.works(t, 0, "after a jump")
	pass(11*time.Minute, 0)
	j.works(t, 4, "when the clock is trusted again")
}

// TestAgesOnly: the janitor does not apply a policy that keeps one routine checkpoint, because only the owner may.
// A checkpoint saved for an operation stays with its run.
func TestAgesOnly(t *testing.T) {
	t.Parallel()
	p := ckpt.DefaultPolicy()
	p.RoutineKeep = 1
	now := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	h := retention.History{Status: ckpt.RunRunning}
	for seq, kind := range []ckpt.Kind{ckpt.KindRoutine, ckpt.KindPreOperation, ckpt.KindRecovery, ckpt.KindRoutine} {
		h.Checkpoints = append(h.Checkpoints,
			retention.Held{ID: string(kind), Seq: int64(10 - seq), Kind: kind, CreatedAt: now.Add(-400 * ckpt.Day)})
	}
	for _, v := range retention.Plan(h, agesOnly(p), now) {
		if v.Remove != (v.ID == string(ckpt.KindRecovery)) {
			t.Errorf("a %s checkpoint: %+v", v.ID, v)
		}
	}
}
