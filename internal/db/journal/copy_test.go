package journal_test

import (
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/jmoiron/sqlx"

	ckpt "github.com/ckptsidecar/ckptsidecar"
	"github.com/ckptsidecar/ckptsidecar/internal/db"
	"github.com/ckptsidecar/ckptsidecar/internal/db/copy"
	"github.com/ckptsidecar/ckptsidecar/internal/db/journal"
	"github.com/ckptsidecar/ckptsidecar/internal/fleet"
	"github.com/ckptsidecar/ckptsidecar/internal/fleet/pg"
	"github.com/ckptsidecar/ckptsidecar/internal/fleet/pgtest"
	"github.com/ckptsidecar/ckptsidecar/internal/resume"
	"github.com/ckptsidecar/ckptsidecar/internal/retention"
)

var ann = ckpt.Scope{Caller: ckpt.Caller{Owner: "uid:1001", PID: 11}}

// segments are the segments that the engine is known to have, by run, and the runs that have none there.
type segments struct {
	of   map[string]bool
	none map[string]bool
}

func (s *segments) Has(run string, id int64) bool { return s.of[fmt.Sprint(run, id)] }
func (s *segments) HasNone(run string) bool       { return s.none[run] }

// note records what a batch contained.
func (s *segments) note(r *fleet.Run) {
	for _, p := range r.Pieces {
		s.of[fmt.Sprint(r.UID, p.ID)] = true
	}
	s.none[r.UID] = len(r.Pieces) == 0 && (s.none[r.UID] || r.Trim && len(r.Segments) == 0)
}

func (s *segments) forget() { s.of, s.none = map[string]bool{}, map[string]bool{} }

// world is a store, an engine, and what the engine is known to have.
type world struct {
	t      *testing.T
	store  *db.Store
	engine *pg.Engine
	server *pgtest.Server
	reader *journal.Journal
	choice journal.Choice
	mark   fleet.Mark
	has    segments
	lots   *rand.Rand
	saved  map[string]string // the newest checkpoint of each agent
	folder string
	url    string
	late   atomic.Int64 // how far the store's clock is ahead, a time.Duration
}

func newWorld(t *testing.T, seed uint64) *world {
	t.Helper()
	server := pgtest.Start(t)
	w := &world{t: t, server: server, lots: rand.New(rand.NewPCG(seed, 7)), saved: map[string]string{}, folder: t.TempDir(), url: server.Database("fleet")}
	t.Cleanup(w.stop)
	w.start()
	return w
}

// start starts the host: it opens the store and registers with the engine.
func (w *world) start() {
	w.t.Helper()
	e, err := pg.Dial(w.t.Context(), w.url)
	if err != nil {
		w.t.Fatal(err)
	}
	w.engine = e
	if _, err := e.Migrate(w.t.Context(), "engine"); err != nil {
		w.t.Fatal(err)
	}
	now := func() time.Time { return time.Now().Add(time.Duration(w.late.Load())) }
	w.store, err = db.Open(w.t.Context(), db.Options{Path: filepath.Join(w.folder, "ckpt.db"), Retention: retention.Plan, Resume: resume.Make, Version: "test", Now: now})
	if err != nil {
		w.t.Fatal(err)
	}
	if _, w.mark, err = e.Register(w.t.Context(), fleet.Host{DB: w.store.ID, Name: "host"}); err != nil {
		w.t.Fatal(err)
	}
	w.reader = journal.New(w.store.Core)
	w.has.forget()
}

func (w *world) stop() {
	_ = w.store.Close()
	w.engine.Close()
}

// disturb lets time pass, and sometimes restarts the host or archives its log.
func (w *world) disturb() {
	w.t.Helper()
	switch w.lots.IntN(5) {
	case 0:
		w.stop()
		w.start()
	case 1:
		w.late.Add(int64(40 * 24 * time.Hour))
		w.store.ArchiveInto(w.folder, 0o700)
		if _, err := w.store.ArchiveOld(w.t.Context(), 30*24*time.Hour); err != nil {
			w.t.Fatal(err)
		}
	}
}

// ship ships until nothing is left, and counts the actions that it has seen.
func (w *world) ship(rows int) {
	w.t.Helper()
	for {
		c, err := w.reader.Since(w.t.Context(), w.mark, fleet.Limits{Rows: rows, Bytes: []int64{8 << 20, 2000}[w.lots.IntN(2)]}, w.choice, &w.has)
		if err != nil {
			w.t.Fatal(err)
		}
		if c.Empty() {
			return
		}
		fenced, err := w.engine.Ship(w.t.Context(), w.store.ID, c)
		if err != nil || len(fenced) > 0 {
			w.t.Fatalf("fenced are %q: %v", fenced, err)
		}
		for i := range c.Runs {
			w.has.note(&c.Runs[i])
		}
		w.mark = c.To
	}
}

// state returns a state that is mostly equal to the previous one, so that it is stored as pieces.
func (w *world) state() []byte {
	if w.lots.IntN(3) == 0 {
		return fmt.Appendf(nil, `{"n":%d}`, w.lots.IntN(1000))
	}
	return fmt.Appendf(nil, `{"history":"%s","n":%d}`, bytes.Repeat([]byte("0123456789abcdef"), 1200), w.lots.IntN(1_000_000))
}

// act makes one call. A refusal is part of the history too.
func (w *world) act() {
	ctx, s := w.t.Context(), w.store
	agent := string(rune('a' + w.lots.IntN(3)))
	ref := ckpt.RunRef{Agent: agent, Run: []string{"main", "other"}[w.lots.IntN(2)]}
	key := fmt.Sprint("k", w.lots.IntN(5))
	w.late.Add(int64(w.lots.IntN(3)) * int64(time.Hour))
	switch w.lots.IntN(26) {
	case 0, 1, 2, 3, 4, 5:
		kind := []ckpt.Kind{ckpt.KindRoutine, ckpt.KindRoutine, ckpt.KindRecovery}[w.lots.IntN(3)]
		c, err := s.Save(ctx, ann, &ckpt.SaveRequest{Agent: agent, Run: ref.Run, Kind: kind, ContentType: ckpt.ContentTypeJSON, State: w.state()})
		if err == nil {
			w.saved[agent] = c.ID
		}
	case 6, 7:
		_, _, _ = s.BeginStep(ctx, ann, ref, ckpt.StepRequest{Key: key, Name: "search", Args: ckpt.JSON(`{"q":"\u0000"}`)})
	case 8:
		_, _, _ = s.FinishStep(ctx, ann, ref, ckpt.StepRequest{Key: key, Name: "search", Status: ckpt.StepSucceeded, Result: ckpt.JSON(`"found"`)})
	case 9, 10:
		_, _, _ = s.BeginOperation(ctx, ann, ref, ckpt.OperationRequest{Key: key, Name: "pay", State: w.state()})
	case 11:
		_, _, _ = s.EndOperation(ctx, ann, ref, ckpt.OperationEnd{Key: key, Status: ckpt.OperationSucceeded})
	case 12, 24, 25:
		_, _, _ = s.Append(ctx, ann, ref, []ckpt.NewEvent{{Type: "x", Payload: ckpt.JSON(`{"a":1}`)}, {Type: "y", Payload: ckpt.JSON(`[]`)}}, "")
	case 13:
		since := int64(1)
		_, _, _ = s.PostFinding(ctx, ann, agent, ckpt.FindingRequest{Run: ref.Run, Rule: "own", Severity: ckpt.SeverityCritical, Message: "It went wrong.", SinceSeq: &since})
	case 14:
		pinned := w.lots.IntN(4) == 0
		_, _ = s.Patch(ctx, ann, w.saved[agent], ckpt.CheckpointPatch{Labels: &ckpt.Labels{"a": key}, Pinned: &pinned})
	case 15:
		_, _, _ = s.StartRun(ctx, ann, ckpt.RunRequest{Agent: agent, Run: ref.Run, Goal: "go on"})
	case 16:
		_, _, _ = s.EndRun(ctx, ann, ref, ckpt.EndRequest{Status: ckpt.RunSuspended})
	case 17:
		_, _, _ = s.Resume(ctx, ann, ckpt.ResumeRequest{Agent: agent, Run: ref.Run})
	case 18:
		_, _, _ = s.AskQuestion(ctx, ann, ckpt.QuestionRequest{Agent: agent, Run: ref.Run, Key: key, Question: "Deploy?"})
	case 19:
		_, _, _ = s.Restore(ctx, ann, ckpt.RestoreRequest{Agent: agent, Run: ref.Run, Reason: "back"})
	case 20:
		durable := []string{"local", "fleet"}[w.lots.IntN(2)]
		_, _ = s.SetOwnPolicy(ctx, ann, agent, fmt.Appendf(nil, `{"routine_keep":2,"max_events":%d,"durability":%q}`, 2+w.lots.IntN(8), durable))
	case 21:
		_, _, _ = s.Prune(ctx, ann, ckpt.PruneRequest{Agent: agent}, "")
	case 22:
		_ = w.graph([]string{"one", "two"}[w.lots.IntN(2)], fmt.Sprintf("1ef0a4d5-0000-6000-8000-%012d", w.lots.IntN(20)))
	case 23:
		w.rare(agent, ref)
	}
}

func (w *world) rare(agent string, ref ckpt.RunRef) {
	switch w.lots.IntN(7) {
	case 6:
		_, _ = w.store.GraphPrune(w.t.Context(), ann, ckpt.GraphPrune{Agent: "g", Threads: []string{"one"}, Strategy: ckpt.GraphKeepLatest})
	case 5:
		w.copyAgent(agent)
	case 4:
		to := []string{ann.Caller.Owner, "uid:1002"}
		if w.lots.IntN(3) == 0 {
			to[0], to[1] = to[1], to[0]
		}
		root := ckpt.Scope{Caller: ckpt.Caller{Owner: "uid:0", Admin: true}}
		_, _, _ = w.store.Chown(w.t.Context(), root, ckpt.ChownRequest{From: to[0], To: to[1], Agent: agent, Force: true, Reason: "moved"}, "")
	case 0:
		_, _ = w.store.Erase(w.t.Context(), ckpt.Scope{Caller: ckpt.Caller{Owner: []string{"uid:1001", "uid:1002"}[w.lots.IntN(2)]}}, agent)
	case 1:
		_, _ = w.store.DeleteRun(w.t.Context(), ann, ref, false)
	case 2:
		_, _ = w.store.ClearRun(w.t.Context(), ann, ref)
	case 3:
		_, _ = w.store.Delete(w.t.Context(), ann, w.saved[agent])
	}
}

// copyAgent imports an agent under another name, without the checkpoints that are already there.
func (w *world) copyAgent(agent string) {
	text := &strings.Builder{}
	if err := w.store.Export(w.t.Context(), ann, agent, text); err == nil {
		_, _ = w.store.Import(w.t.Context(), ann, ckpt.ImportRequest{Agent: agent + "2"}, strings.NewReader(text.String()))
	}
}

// here describes everything that the store has.
func (w *world) here() (list []string) {
	w.t.Helper()
	err := w.store.Reading(w.t.Context(), func(q *sqlx.Tx) error {
		var err error
		list, err = words(w.t.Context(), q, w.choice.ByPolicy)
		return err
	})
	if err != nil {
		w.t.Fatal(err)
	}
	slices.Sort(list)
	return list
}

func words(ctx context.Context, q *sqlx.Tx, byPolicy bool) (list []string, err error) {
	chosen, reason := "1", "coalesce(reason, '')"
	if byPolicy { // the engine does not have the reasons of agents that are not shipped
		chosen, reason = `json_extract(a.policy, '$.durability') = 'fleet'`, "''"
	}
	type run struct {
		ID  int64
		UID string
	}
	var runs []run
	rows, err := q.QueryxContext(ctx, `SELECT r.id, r.uid, `+copy.RunColumns+` FROM runs r JOIN agents a ON a.id = r.agent_id WHERE `+chosen)
	if err != nil {
		return nil, err
	}
	for rows.Next() {
		var r run
		text, err := copy.ScanRuns(&r.ID, &r.UID).Scan(rows)
		if err != nil {
			return nil, err
		}
		runs, list = append(runs, r), append(list, "run "+r.UID+" "+text)
	}
	if err := rows.Err(); err != nil {
		return nil, err
	}
	for _, r := range runs {
		rows, err := copy.RowsOf(ctx, q, r.ID, nil)
		if err != nil {
			return nil, err
		}
		for _, row := range rows {
			list = append(list, fmt.Sprint(row.Kind, " ", r.UID, " ", row.Key, " ", row.Text))
		}
	}
	var agents []copy.Agent
	if err := q.SelectContext(ctx, &agents, `SELECT owner, name, created_at AS createdat, policy_at AS policyat, policy FROM agents a WHERE `+chosen); err != nil {
		return nil, err
	}
	for i := range agents {
		text, err := agents[i].Line()
		if err != nil {
			return nil, err
		}
		list = append(list, "agent "+text)
	}
	for _, query := range []string{
		`SELECT 'agent ' || uid || ' ' || name FROM agents a WHERE ` + chosen,
		`SELECT 'segment ' || r.uid || ' ' || s.id || ' ' || s.size || ' ' || lower(hex(s.data)) FROM segments s JOIN runs r ON r.id = s.run_id
			JOIN agents a ON a.id = r.agent_id WHERE ` + chosen,
		`SELECT 'state ' || r.uid || ' ' || c.n || ' ' || c.id || ' ' || c.suspect || ' ' || c.sha256 || ' ' || coalesce(c.pieces, '') || ' ' ||
			lower(hex(coalesce(c.body, x''))) FROM checkpoints c JOIN runs r ON r.id = c.run_id JOIN agents a ON a.id = r.agent_id WHERE ` + chosen,
		`SELECT 'log ' || n || ' ' || action || ' ' || hash || ' ' || CASE action WHEN 'remove' THEN '' ELSE ` + reason + ` END FROM audit_log
			WHERE n > (SELECT coalesce(max(to_n), 0) FROM audit_archives)`,
	} {
		var more []string
		if err := q.SelectContext(ctx, &more, query); err != nil {
			return nil, err
		}
		list = append(list, more...)
	}
	return list, nil
}

// there describes everything that the engine has, in the same form.
func (w *world) there() (list []string) {
	w.t.Helper()
	n, err := w.reader.Archived(w.t.Context())
	if err != nil {
		w.t.Fatal(err)
	}
	archived, reason := fmt.Sprint(n), "coalesce(texts::json->>'reason', '')"
	if w.choice.ByPolicy {
		reason = "''"
	}
	for _, query := range []string{
		`SELECT 'run ' || uid || ' ' || doc FROM fleet_runs`,
		`SELECT kind || ' ' || run_uid || ' ' || key || ' ' || doc FROM fleet_rows`,
		`SELECT 'agent ' || uid || ' ' || agent FROM fleet_agents`,
		`SELECT 'agent ' || doc FROM fleet_agents`,
		`SELECT 'segment ' || run_uid || ' ' || id || ' ' || size || ' ' || encode(data, 'hex') FROM fleet_segments`,
		`SELECT 'state ' || run_uid || ' ' || n || ' ' || id || ' ' || suspect || ' ' || sha || ' ' || coalesce(pieces, '') || ' ' || encode(coalesce(body, ''), 'hex') FROM fleet_checkpoints`,
		`SELECT 'log ' || n || ' ' || action || ' ' || hash || ' ' || CASE action WHEN 'remove' THEN '' ELSE ` + reason + ` END FROM fleet_audit WHERE n > ` + archived,
	} {
		list = append(list, w.server.Rows("fleet", query)...)
	}
	slices.Sort(list)
	return list
}

// TestCopy is T1: after any history and a quiet moment the engine has what the store has. The shipper may keep up
// or be far behind, the host restarts, checkpoints age, and the log is archived.
func TestCopy(t *testing.T) { copies(t, journal.Choice{}) }

// TestCopyByPolicy checks the same for agents whose policies request the fleet. For the others the engine has only
// the rows of the audit log, without names and texts.
func TestCopyByPolicy(t *testing.T) {
	copies(t, journal.Choice{ByPolicy: true})
}

// seeds are the seeds of the random histories; only one with -short.
func seeds() []uint64 {
	if testing.Short() {
		return []uint64{1}
	}
	return []uint64{1, 2, 3}
}

func copies(t *testing.T, choice journal.Choice) {
	for _, seed := range seeds() {
		t.Run(fmt.Sprint("seed=", seed), func(t *testing.T) {
			w := newWorld(t, seed)
			w.choice = choice
			for round := range 25 {
				for range 1 + w.lots.IntN(16) {
					w.act()
				}
				w.ship([]int{4000, 4000, 5}[w.lots.IntN(3)])
				if diff := cmp.Diff(w.here(), w.there()); diff != "" {
					t.Fatalf("round %d: the copy (+) is not as the original (-):\n%.6000s", round, diff)
				}
				w.disturb()
			}
			t.Log(len(w.there()), "rows, actions:", w.server.Rows("fleet", `SELECT action, count(*) FROM fleet_audit GROUP BY 1 ORDER BY 1`))
		})
	}
}
