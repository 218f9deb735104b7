package db_test

import (
	"context"
	stdsql "database/sql"
	"flag"
	"fmt"
	"io"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	ckpt "github.com/ckptsidecar/ckptsidecar"
	"github.com/ckptsidecar/ckptsidecar/internal/db"
	"github.com/ckptsidecar/ckptsidecar/internal/db/audit"
	"github.com/ckptsidecar/ckptsidecar/internal/resume"
	"github.com/ckptsidecar/ckptsidecar/internal/retention"
	"github.com/ckptsidecar/ckptsidecar/internal/secrets"
	"github.com/ckptsidecar/ckptsidecar/internal/testenv"
)

// A failure prints the command that replays it. To look for new failures:
// go test ./internal/db -run 'TestModel$' -model.seed=1000 -model.databases=200 -timeout 1h.
var (
	modelSeed      = flag.Uint64("model.seed", 0, "begin the model tests at this seed; 0 means their usual ones")
	modelDatabases = flag.Uint64("model.databases", 1, "how many seeds to try from model.seed on")
	modelSteps     = flag.Int("model.steps", usualSteps(), "how many steps to make with each; -long makes more")
	long           = flag.Bool("long", false, "the long form of the tests that draw lots: make models")
	modelAcked     = flag.Int("model.acked", -1, "TestModelKilled: cut the step after so many, between any two of its transactions")
)

// moreOf returns the usual number, or a higher one with -long.
func moreOf(usual, more int) int {
	if *long {
		return more
	}
	return usual
}

// seeds returns the seeds of a model test: the usual ones, more in the long form, or those from the command line.
func seeds(first, usual, more uint64) (seeds []uint64) {
	n := usual
	switch {
	case *modelSeed != 0:
		first, n = *modelSeed, *modelDatabases
	case *long:
		n = more
	}
	for seed := first; seed < first+n; seed++ {
		seeds = append(seeds, seed)
	}
	return seeds
}

// usualSteps returns fewer steps under the race detector. A step takes ten times as long there, and here only one
// goroutine at a time uses the writer anyway.
func usualSteps() int {
	if testenv.RaceDetector() {
		return 150
	}
	return 400
}

// TestModel makes thousands of random steps on the real store, with the real plan, guard and worker. After every
// step it compares the store with a model that was written from section 8 of the design.
func TestModel(t *testing.T) {
	t.Parallel()
	if *long {
		*modelSteps = max(*modelSteps, 1250)
	}
	for _, seed := range seeds(1, 2, 32) {
		t.Run(fmt.Sprint("seed=", seed), func(t *testing.T) {
			t.Parallel()
			h := newHarness(t, seed, filepath.Join(t.TempDir(), "ckpt.db"))
			for range *modelSteps {
				h.step(h.next())
			}
			h.finish()
		})
	}
}

// operationByHand is what verify says of a checkpoint to which a step of the model has given an operation without the program.
func operationByHand(p audit.Problem) bool {
	return p.Rule == "audit_row" && strings.HasSuffix(p.Detail, "step, operation or program was changed")
}

// clocks are a wall clock that jumps and a monotonic clock that does not.
type clocks struct {
	mu   sync.Mutex
	wall time.Time
	mono time.Duration
}

func (c *clocks) pass(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.wall, c.mono = c.wall.Add(d), c.mono+d
}

func (c *clocks) jump(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.wall = c.wall.Add(d)
}

func (c *clocks) Wall() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.wall
}

func (c *clocks) Monotonic() time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.mono
}

// guarded is a store with the real plan, guard and worker, and clocks that tests move.
type guarded struct {
	clocks *clocks
	guard  *retention.Guard
	path   string
	store  *db.Store
	begins func() // called before each transaction
}

func (s *guarded) open(ctx context.Context) (err error) {
	s.guard = retention.NewGuard(retention.GuardSettings{Wall: s.clocks.Wall, Monotonic: s.clocks.Monotonic})
	s.store, err = db.Open(ctx, db.Options{Path: s.path, Retention: retention.Plan, Now: s.clocks.Wall, Trusted: s.trustedNow, Secrets: secrets.Scan{},
		Resume: resume.Make, MaxOwnerBytes: modelQuota, Version: "test"})
	return err
}

// trustedNow is called once at the beginning of each transaction.
func (s *guarded) trustedNow() time.Time {
	if s.begins != nil {
		s.begins()
	}
	return s.guard.Trusted()
}

func (s *guarded) worker() *retention.Worker {
	return &retention.Worker{Store: s.store, Guard: s.guard, Pause: time.Nanosecond}
}

// openGuarded opens a store whose clock is trusted.
func openGuarded(t testing.TB) *guarded {
	t.Helper()
	s := &guarded{clocks: &clocks{wall: newClock().now}, path: filepath.Join(t.TempDir(), "ckpt.db")}
	if err := s.open(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { shut(t, s.store) })
	s.clocks.pass(retention.DefaultHold)
	return s
}

// harness makes the steps of a generator on the real store.
type harness struct {
	*generator
	guarded
	t      testing.TB
	ctx    context.Context
	seed   uint64
	n      int        // the number of the step
	logged int64      // the last checked row of the audit log
	recent []string   // the last steps
	checks []func()   // checks to make after the model has settled
	acks   io.Writer  // if the steps can be cut off: gets every step that is done
	reader *inspector // an auditor's connection
	replay string     // the command that replays the same steps
}

func newHarness(t testing.TB, seed uint64, path string) *harness {
	h := &harness{generator: newGenerator(seed), t: t, ctx: context.Background(), seed: seed}
	h.replay = fmt.Sprintf("-run 'TestModel$' -model.seed=%d -model.steps=%d", seed, *modelSteps)
	h.path, h.clocks = path, &clocks{wall: h.wall}
	h.start()
	h.newRows() // the rows of the start
	t.Cleanup(func() {
		_ = h.reader.Close()
		shut(t, h.store)
	})
	return h
}

func (h *harness) start() {
	h.t.Helper()
	if err := h.open(h.ctx); err != nil {
		h.fail("open: %v", err)
	}
	h.reader = auditor(h.t, h.path)
}

// inspector is the connection of another process that only reads, and repeats the same queries.
type inspector struct {
	*stdsql.DB
	kept map[string]*stdsql.Stmt
}

// ask is Query with a statement that is compiled once.
func (r *inspector) ask(query string, args ...any) (*stdsql.Rows, error) {
	if r.kept[query] == nil {
		statement, err := r.Prepare(query)
		if err != nil {
			return nil, err
		}
		r.kept[query] = statement
	}
	return r.kept[query].Query(args...)
}

// auditor opens an inspector.
func auditor(t testing.TB, path string) *inspector {
	t.Helper()
	reader, err := stdsql.Open("sqlite", "file:"+path+"?mode=ro&_pragma=busy_timeout(2000)")
	if err != nil {
		t.Fatal(err)
	}
	reader.SetMaxOpenConns(1)
	return &inspector{reader, map[string]*stdsql.Stmt{}}
}

func (h *harness) fail(format string, args ...any) {
	h.t.Helper()
	h.t.Fatalf("step %d: %s\nthe last steps:\n  %s\nreplay: go test ./internal/db %s\n",
		h.n, fmt.Sprintf(format, args...), strings.Join(h.recent, "\n  "), h.replay)
}

// answered takes an answer and fails if its error is not the expected one. It reports whether there is an answer to
// check.
func answered[T any](got T, err error) func(h *harness, code ckpt.Code) (T, bool) {
	return func(h *harness, code ckpt.Code) (T, bool) {
		h.t.Helper()
		if is := ckpt.CodeOf(err); is != code {
			h.fail("answered %q (%v), expected %q", is, err, code)
		}
		return got, code == ""
	}
}

// after adds a check that runs when the model knows what was removed.
func (h *harness) after(check func()) { h.checks = append(h.checks, check) }

// same compares ids without their order, and fails if they differ.
func (h *harness) same(what string, got, want []string) bool {
	h.t.Helper()
	if a, b := slices.Sorted(slices.Values(got)), slices.Sorted(slices.Values(want)); !slices.Equal(a, b) {
		h.fail("%s: the store says %v, the model %v", what, a, b)
	}
	return true
}

func (h *harness) step(s *step) {
	h.t.Helper()
	h.n++
	h.recent = append(h.recent, fmt.Sprintf("%d %s: %s %s", h.n, h.wall.Format(ckpt.TimeLayout), s.what, s.code))
	h.recent = h.recent[max(0, len(h.recent)-25):]
	h.checks = nil
	var o outcome
	if s.code == "" {
		o = s.change()
	}
	s.do(h)
	before := h.checkpoints()
	removed := h.settle(o, h.ids())
	h.audited(s, before, removed)
	for _, check := range h.checks {
		check()
	}
	if h.acks == nil {
		fresh(h.t, h.store)
	}
	if h.n%10 == 0 {
		h.same("checkpoints", rows(h.t, h.reader), h.rows())
	}
	if h.n%50 == 0 {
		h.noViolations()
	}
	if h.n%100 == 0 {
		h.store.CopyWAL()
	}
	if h.acks != nil {
		fmt.Fprintln(h.acks, "ack", h.n, strings.Join(removed, " "))
	}
}

// audited compares the rows that a step has added to the audit log with the expected ones: its own, one for each
// removal, and no other.
func (h *harness) audited(s *step, before []*mCheckpoint, removed []string) {
	h.t.Helper()
	var want []mAudit
	if s.audit != nil {
		want = s.audit()
	}
	by := s.by
	if by.Owner == "" {
		by.Owner = "daemon"
	}
	for _, c := range before {
		if slices.Contains(removed, c.id) {
			want = append(want, c.run.agent.row(by, "remove", c.run.name, c.id, ""))
		}
	}
	got := h.newRows()
	for i := range got {
		if slices.ContainsFunc(want, func(w mAudit) bool { return w.subject == anything && w.action == got[i].action }) {
			got[i].subject = anything
		}
	}
	text := func(rows []mAudit) (list []string) {
		for _, r := range rows {
			list = append(list, fmt.Sprintf("%+v", r))
		}
		return list
	}
	h.same("audit rows", text(got), text(want))
}

// newRows returns the rows of the audit log that were not checked yet.
func (h *harness) newRows() (rows []mAudit) {
	h.t.Helper()
	found, err := h.reader.ask(`SELECT n, who, action, coalesce(owner, ''), coalesce(agent, ''), coalesce(run, ''), coalesce(subject, ''), outcome
		FROM audit_log WHERE n > ?1 AND action <> 'remove'
		UNION ALL SELECT n, who, 'remove', owner, agent, run, id, 'done' FROM audit_removals WHERE n > ?1 ORDER BY n`, h.logged)
	if err != nil {
		h.fail("%v", err)
	}
	defer found.Close()
	for found.Next() {
		var r mAudit
		if err := found.Scan(&h.logged, &r.who, &r.action, &r.owner, &r.agent, &r.run, &r.subject, &r.outcome); err != nil {
			h.fail("%v", err)
		}
		rows = append(rows, r)
	}
	if err := found.Err(); err != nil {
		h.fail("%v", err)
	}
	return rows
}

// settle compares the existing ids with the model, and removes from the model what the store has removed. It
// returns the removed ids.
func (h *harness) settle(o outcome, there map[string]bool) (removed []string) {
	h.t.Helper()
	for _, c := range h.checkpoints() {
		switch {
		case there[c.id] && o.must[c.id] != staysYet:
			h.fail("%+v must have gone by %s", *c, o.must[c.id])
		case !there[c.id] && o.may[c.id] == staysYet:
			h.fail("%+v of %s is gone, and no rule lets it go", *c, c.run.name)
		case !there[c.id]:
			removed = append(removed, c.id)
		}
		delete(there, c.id)
	}
	if len(there) > 0 {
		h.fail("the model does not have %v", slices.Collect(maps.Keys(there)))
	}
	h.apply(o, removed)
	return removed
}

// apply removes from the model what a step has removed.
func (m *model) apply(o outcome, removed []string) {
	for _, id := range removed {
		m.remove(id, o.may[id])
	}
	if o.settled != nil {
		o.settled(removed)
	}
}

func (h *harness) ids() map[string]bool {
	h.t.Helper()
	list, err := column(h.reader, `SELECT id FROM checkpoints`)
	if err != nil {
		h.fail("%v", err)
	}
	there := map[string]bool{}
	for _, id := range list {
		there[id] = true
	}
	return there
}

// column reads the first column of every row.
func column(reader *inspector, query string) (list []string, err error) {
	found, err := reader.ask(query)
	if err != nil {
		return nil, err
	}
	defer found.Close()
	for found.Next() {
		var s string
		if err := found.Scan(&s); err != nil {
			return nil, err
		}
		list = append(list, s)
	}
	return list, found.Err()
}

// rows returns what the database has, one line per checkpoint.
func rows(t testing.TB, reader *inspector) []string {
	t.Helper()
	list, err := column(reader, `SELECT concat_ws(' ', id, owner, agent, run, seq, kind, created_at, coalesce(parent, '-'),
		coalesce(operation, '-'), pinned, suspect) FROM audit_checkpoints`)
	if err != nil {
		t.Fatal(err)
	}
	return list
}

// rows returns what the model has, in the same form.
func (m *model) rows() (list []string) {
	orDash := func(s string) string {
		if s == "" {
			return "-"
		}
		return s
	}
	bit := map[bool]int{true: 1}
	for _, c := range m.checkpoints() {
		a := c.run.agent
		list = append(list, fmt.Sprint(c.id, " ", a.scope.Caller.Owner, " ", a.name, " ", c.run.name, " ", c.seq, " ", c.kind, " ", ckpt.At(c.at), " ",
			orDash(c.parent), " ", orDash(c.operation), " ", bit[c.pinned], " ", bit[c.suspect]))
	}
	return list
}

// noViolations runs the auditor's check. Two things wait for a round of the worker, which makes one per minute:
// what a hook of this test has changed past the store, and the record of when ages were judged, if the clock was
// set back since then.
func (h *harness) noViolations() {
	h.t.Helper()
	query := `SELECT concat_ws(' ', rule, subject, detail) FROM audit_violations`
	if h.judged.After(h.wall) || h.unjudged {
		query += ` WHERE rule NOT IN ('recovery_expired', 'pre_operation_expired')`
	}
	if h.dirty {
		query = `SELECT concat_ws(' ', rule, subject, detail) FROM audit_violations
			WHERE rule NOT IN ('recovery_expired', 'pre_operation_expired', 'routine_excess', 'operation_succeeded')`
	}
	list, err := column(h.reader, query)
	if err != nil || len(list) > 0 {
		h.fail("audit_violations: %v %s", err, strings.Join(list, "\n"))
	}
}

// hook changes the database from inside the writer.
func (h *harness) hook(statements ...statement) {
	h.t.Helper()
	err := h.store.Write("daemon", 0, func(exec func(string, ...any) error) error {
		for _, s := range statements {
			if err := exec(s.query, s.args...); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		h.fail("%v", err)
	}
}

func (h *harness) round(dry bool, slice int) retention.Result {
	h.t.Helper()
	w := h.worker()
	w.DryRun, w.Slice = dry, slice
	result, err := w.Once(h.ctx)
	if err != nil {
		h.fail("the worker: %v", err)
	}
	return result
}

func (h *harness) reopen() {
	h.t.Helper()
	_ = h.reader.Close()
	if err := h.store.Close(); err != nil {
		h.fail("close: %v", err)
	}
	h.start()
}

// crash continues with a copy of the files, made while the store is open. In a child, the parent does the crashing.
func (h *harness) crash() {
	h.t.Helper()
	if h.acks != nil {
		h.reopen()
		return
	}
	left, old := h.store, h.path
	_ = h.reader.Close()
	h.path = copyFiles(h.t, old)
	_ = left.Close()
	h.start()
}

// finish lets the hold pass and checks the database from the file up.
func (h *harness) finish() {
	h.t.Helper()
	h.step(&step{what: "the hold passes", still: true, change: func() outcome { h.pass(time.Hour); return outcome{} },
		do: func(h *harness) { h.clocks.pass(time.Hour) }})
	h.step(h.generator.round())
	h.noViolations()
	h.same("checkpoints", rows(h.t, h.reader), h.rows())
	h.oneAuditRowEach()
	sound(h.t, h.path, operationByHand)
}

// oneAuditRowEach: each removal has exactly one row, with the reason.
func (h *harness) oneAuditRowEach() {
	h.t.Helper()
	list, err := column(h.reader, `SELECT id || ' done ' || coalesce(reason, '') FROM audit_removals ORDER BY n`)
	if err != nil {
		h.fail("%v", err)
	}
	left := maps.Clone(h.removed)
	for _, row := range list {
		id, said, _ := strings.Cut(row, " ")
		causes := left[id]
		if len(causes) == 0 {
			h.fail("an audit row too many: %s", row)
		}
		if why := reasons[causes[0]]; !strings.HasPrefix(said, "done ") || !strings.Contains(said, why) {
			h.fail("the audit row says %q, the rule was %s", row, causes[0])
		}
		left[id] = causes[1:]
	}
	for id, causes := range left {
		if len(causes) > 0 {
			h.fail("no audit row for the removal of %s by %v", id, causes)
		}
	}
}
