package db_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	ckpt "github.com/ckptsidecar/ckptsidecar"
	"github.com/ckptsidecar/ckptsidecar/internal/db"
	"github.com/ckptsidecar/ckptsidecar/internal/drift/observer"
	"github.com/ckptsidecar/ckptsidecar/internal/resume"
)

// detector is a small drift detector whose results tests can predict. The same
// call with the same result is a warning at the third time and critical at the
// fifth, within one segment. A state with "bad": true is critical by itself.
type detector struct {
	mu     sync.Mutex
	panics bool     // every call panics
	bogus  bool     // the next finding cannot be stored
	goals  []string // goals that it was told
	made   int      // number of watches that it made
	begun  *float64 // the progress that the last watch started with
}

func (d *detector) flag(f func()) {
	d.mu.Lock()
	defer d.mu.Unlock()
	f()
}

func (d *detector) mayPanic() {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.panics {
		panic("the detector has a mistake")
	}
}

func short(parts ...string) string {
	sum := sha256.Sum256([]byte(strings.Join(parts, "\x00")))
	return hex.EncodeToString(sum[:16])
}

func (d *detector) Step(_ context.Context, p *ckpt.Policy, r observer.RuleRun, s *ckpt.Step) (observer.StepPrint, error) {
	d.mayPanic()
	print := observer.StepPrint{Key: s.Key, Tool: s.Name, Sig: short(s.Name, string(s.Args)), Failed: s.Status == ckpt.StepFailed, Measures: s.Measures}
	if len(s.Result) > 0 || s.Error != "" {
		print.Res = short(string(s.Result), string(s.Error))
	}
	print.Broken = d.rules(p, r, s.Name+" "+string(s.Args))
	return print, nil
}

// Evaluator, Score and Calibrate are not used in these tests. Those of the real
// detectors are tested in drift_evaluate_test.go.
func (d *detector) Evaluator() observer.Evaluator                             { panic("not asked for") }
func (d *detector) Score(*ckpt.Policy, *observer.RecordedRun) float64         { return 0 }
func (d *detector) Calibrate(*ckpt.Policy, []float64) (none ckpt.Calibration) { return none }

// rules evaluates rules of the form "has TEXT".
func (d *detector) rules(p *ckpt.Policy, r observer.RuleRun, text string) (broken []observer.Found) {
	for _, rule := range p.Rules {
		if what, ok := strings.CutPrefix(rule.When, "has "); ok && strings.Contains(text, what) {
			broken = append(broken, observer.Found{Rule: rule.Name, Severity: rule.Severity, About: ckpt.AboutState, Message: fmt.Sprintf("%s, goal %q, %v counted", rule.Message, r.Goal, r.Measures["steps"])})
		}
	}
	return broken
}

func (d *detector) State(_ context.Context, p *ckpt.Policy, r observer.RuleRun, state, previous []byte, _ string) (observer.StatePrint, error) {
	d.mayPanic()
	print := observer.StatePrint{Size: int64(len(state)), Keys: map[string]string{}, Broken: d.rules(p, r, string(state))}
	var top map[string]any
	if json.Unmarshal(state, &top) == nil {
		for key, value := range top {
			print.Keys[key] = fmt.Sprint(value)
		}
	}
	if p.Schema != nil && !bytes.Contains(state, []byte(`"ok"`)) {
		print.Broken = append(print.Broken, observer.Found{Rule: ckpt.RuleSchema, Severity: ckpt.SeverityCritical, About: ckpt.AboutState, Message: `There is no "ok".`, Evidence: ckpt.Evidence{Pointer: "/ok"}})
	}
	return print, nil
}

func (d *detector) Check(p *ckpt.Policy) error {
	for i, r := range p.Rules {
		if !strings.HasPrefix(r.When, "has ") {
			return ckpt.Errorf(ckpt.CodeInvalid, "rules[%d].when: it begins with has", i)
		}
	}
	return nil
}

func (d *detector) Rules(*ckpt.Policy) []observer.Rule { return nil }

func (d *detector) Watch(p *ckpt.Policy, past observer.RunPast) observer.RunWatch {
	d.flag(func() { d.made, d.begun = d.made+1, past.Progress })
	w := &detectorWatch{d: d, policy: p, pairs: map[string]int{}, since: map[string]int64{}, goal: past.Goal, routine: past.LastRoutine, started: past.StartedAt}
	forgotten := time.Time{}
	for _, at := range past.Dismissed {
		if at.After(forgotten) {
			forgotten = at
		}
	}
	for _, s := range past.Steps {
		if s.At.After(forgotten) {
			w.count(s)
		}
	}
	for _, s := range past.States {
		w.states = append(w.states, s.Size)
		w.keys = s.Keys
	}
	return w
}

func (w *detectorWatch) Spend(observer.StepPrint, bool) []observer.Found { return nil }

type detectorWatch struct {
	d       *detector
	policy  *ckpt.Policy
	pairs   map[string]int
	since   map[string]int64 // by pair: the newest checkpoint before the pair's first call
	total   int
	states  []int64
	keys    map[string]string // of the previous state
	goal    string
	started time.Time
	routine time.Time
	stale   bool
}

func (w *detectorWatch) count(s observer.StepPrint) (n int, since int64) {
	w.total++
	pair := s.Sig + s.Res
	if w.pairs[pair]++; w.pairs[pair] == 1 {
		w.since[pair] = s.AfterSeq
	}
	return w.pairs[pair], w.since[pair]
}

func (w *detectorWatch) Step(s observer.StepPrint) []observer.Found {
	w.d.mayPanic()
	n, since := w.count(s)
	found := s.Broken
	tier := map[int]ckpt.Severity{3: ckpt.SeverityWarn, 5: ckpt.SeverityCritical, 10: ckpt.SeverityCritical}[n]
	if tier == "" {
		return found
	}
	w.d.flag(func() {
		if w.d.bogus {
			tier, w.d.bogus = "bogus", false
		}
	})
	return append(found, observer.Found{Rule: "repeat", Severity: tier, About: ckpt.AboutWork, Message: fmt.Sprintf("%s was called %d times with the same result.", s.Tool, n),
		Advice: "Do something else.", Evidence: ckpt.Evidence{Tool: s.Tool, Steps: []string{s.Key}}, SinceSeq: since})
}

func (w *detectorWatch) State(s observer.StatePrint) []observer.Found {
	w.d.mayPanic()
	w.states = append(w.states, s.Size)
	found := s.Broken
	for i := range found {
		found[i].SinceSeq = s.Seq - 1
	}
	if s.Keys["bad"] == "true" {
		found = append(found, observer.Found{Rule: "bad_state", Severity: ckpt.SeverityCritical, About: ckpt.AboutState, Message: "The state is bad.", Advice: "Go back.", SinceSeq: s.Seq - 1})
	}
	if _, had := w.keys["was"]; had && s.Keys["was"] == "" {
		found = append(found, observer.Found{Rule: "lost_keys", Severity: ckpt.SeverityWarn, Message: "The key was is gone."})
	}
	if w.keys = s.Keys; s.Kind == ckpt.KindRoutine {
		w.routine, w.stale = s.At, false
	}
	return found
}

func (w *detectorWatch) Beat(now time.Time, _ *float64) []observer.Found {
	last := w.started
	if w.routine.After(last) {
		last = w.routine
	}
	if w.stale || now.Sub(last) < time.Duration(w.policy.CheckpointInterval) {
		return nil
	}
	w.stale = true
	return []observer.Found{{Rule: "stale_checkpoint", Severity: ckpt.SeverityWarn, Message: "No checkpoint for long."}}
}

func (w *detectorWatch) Goal(_ time.Time, goal string, updated bool) []observer.Found {
	w.d.flag(func() { w.d.goals = append(w.d.goals, fmt.Sprint(goal, " ", updated)) })
	if w.goal == "" || updated || w.goal == goal {
		w.goal = goal
		return nil
	}
	return []observer.Found{{Rule: "goal_changed", Severity: ckpt.SeverityWarn, About: ckpt.AboutWork, Message: "The goal was " + w.goal + ", now it is " + goal + "."}}
}

// Over: only a routine checkpoint that was missing ends a finding.
func (w *detectorWatch) Over(f *ckpt.Finding) bool { return f.Rule == "stale_checkpoint" && !w.stale }

func (w *detectorWatch) Enter(time.Time, string, map[string]int64) []observer.Found { return nil }

func (w *detectorWatch) Forget(string) { clear(w.pairs) }

func (w *detectorWatch) Back() (seq int64, ok bool) {
	for pair, n := range w.pairs {
		if n >= 2 && (!ok || w.since[pair] < seq) {
			seq, ok = w.since[pair], true
		}
	}
	return seq, ok
}

func (w *detectorWatch) Measures() map[string]float64 {
	return map[string]float64{"steps": float64(w.total), "states": float64(len(w.states))}
}

// drifty is a store that watches for drift, and can resume.
type drifty struct {
	*db.Store
	t        testing.TB
	clock    *clock
	detector *detector
	options  db.Options
	steps    int
	reader   *inspector // an auditor's connection, after the first inspect
}

func openDrifty(t testing.TB, change ...func(*db.Options)) *drifty {
	t.Helper()
	d := &drifty{t: t, clock: newClock(), detector: &detector{}}
	d.options = options(t.TempDir()+"/ckpt.db", d.clock)
	d.options.Resume, d.options.Processes, d.options.Drift = resume.Make, &processes{dead: map[int]bool{}}, d.detector
	for _, f := range change {
		f(&d.options)
	}
	d.Store = openWith(t, d.options)
	t.Cleanup(d.lookAway)
	return d
}

// inspect opens the database as an auditor does.
func (d *drifty) inspect() *inspector {
	d.t.Helper()
	if d.reader == nil {
		d.reader = auditor(d.t, d.options.Path)
	}
	return d.reader
}

// lookAway closes that connection.
func (d *drifty) lookAway() {
	if d.reader != nil {
		_ = d.reader.Close()
		d.reader = nil
	}
}

// reopen stops the daemon and starts another.
func (d *drifty) reopen() {
	d.t.Helper()
	d.lookAway()
	if err := d.Close(); err != nil {
		d.t.Fatal(err)
	}
	d.Store = openWith(d.t, d.options)
}

// crash continues with a copy of the files that was made while the store is
// open, as after a kill.
func (d *drifty) crash() {
	d.t.Helper()
	d.lookAway()
	left, old := d.Store, d.options.Path
	d.options.Path = filepath.Join(d.t.TempDir(), "ckpt.db")
	for _, suffix := range []string{"", "-wal"} {
		b, err := os.ReadFile(old + suffix)
		if err == nil {
			err = os.WriteFile(d.options.Path+suffix, b, 0o600)
		}
		if err != nil {
			d.t.Fatal(err)
		}
	}
	_ = left.Close()
	d.Store = openWith(d.t, d.options)
}

// record records one whole step of the main run.
func (d *drifty) record(tool, result string) *ckpt.Step {
	d.t.Helper()
	d.steps++
	step, _, err := d.BeginStep(d.t.Context(), ann, mainRun, ckpt.StepRequest{Key: fmt.Sprint("k", d.steps), Name: tool, Args: ckpt.JSON(`{"a":1}`),
		Status: ckpt.StepSucceeded, Result: ckpt.JSON(`"` + result + `"`)})
	if err != nil {
		d.t.Fatal(err)
	}
	return step
}

// put saves a routine state of the main run.
func (d *drifty) put(state string) *ckpt.Saved {
	d.t.Helper()
	return save(d.t, d.Store, ann, "a", ckpt.KindRoutine, state)
}

func (d *drifty) policy(change func(*ckpt.Policy)) {
	d.t.Helper()
	p := ckpt.DefaultPolicy()
	change(&p)
	if _, err := d.SetPolicy(d.t.Context(), ann, "a", p); err != nil {
		d.t.Fatal(err)
	}
}

// report returns the drift report of the main run.
func (d *drifty) report(all bool) *ckpt.DriftReport {
	d.t.Helper()
	r, err := d.Drift(d.t.Context(), ann, ckpt.DriftFilter{Agent: "a", All: all, Limit: ckpt.MaxLimit})
	if err != nil {
		d.t.Fatal(err)
	}
	return r
}

// noViolations runs the auditor's check, and checks the invariants of suspect
// checkpoints.
func (d *drifty) noViolations() {
	d.t.Helper()
	found, err := column(d.inspect(), `SELECT rule || ' ' || subject || ' ' || detail FROM audit_violations
		UNION ALL SELECT 'suspect for nothing ' || c.run || ' ' || c.seq FROM audit_checkpoints c WHERE c.suspect AND NOT EXISTS (SELECT 1 FROM audit_findings f
			WHERE f.agent = c.agent AND f.owner = c.owner AND f.run = c.run AND f.life = c.life AND f.dismissed_at IS NULL
			AND (f.severity = 'critical' OR f.severity = 'warn' AND f.about = 'state' AND (f.closed IS NOT NULL OR f.earlier <> '[]'))
			AND (c.seq > f.since_seq AND c.seq <= coalesce(f.until_seq, c.seq) OR EXISTS (SELECT 1 FROM json_each(f.earlier) e
				WHERE c.seq > e.value ->> 'since_seq' AND c.seq <= e.value ->> 'until_seq')))`)
	if err != nil || len(found) > 0 {
		d.t.Errorf("audit_violations: %v %v", err, strings.Join(found, "\n"))
	}
}

// marks lists the main run's checkpoints, oldest first: kind, seq, and ! for
// suspect.
func (d *drifty) marks() string {
	d.t.Helper()
	page, err := d.Checkpoints(d.t.Context(), ann, ckpt.CheckpointFilter{Agent: "a", Run: "main", Limit: ckpt.MaxLimit})
	if err != nil {
		d.t.Fatal(err)
	}
	var list []string
	for i := len(page.Checkpoints) - 1; i >= 0; i-- {
		c := &page.Checkpoints[i]
		mark := fmt.Sprintf("%c%d", c.Kind[1], c.Seq) // o: routine, e: recovery, r: pre_operation
		if c.Suspect {
			mark += "!"
		}
		list = append(list, mark)
	}
	return strings.Join(list, " ")
}

func (d *drifty) wantMarks(want string) {
	d.t.Helper()
	if got := d.marks(); got != want {
		d.t.Fatalf("there is %s, want %s", got, want)
	}
	d.noViolations()
}

func wantSeverity(t testing.TB, v *ckpt.DriftVerdict, want ckpt.Severity, rules ...string) {
	t.Helper()
	if v == nil {
		t.Fatal("no verdict")
	}
	got := []string{}
	for _, f := range v.Findings {
		got = append(got, f.Rule)
	}
	if v.Verdict != want || strings.Join(got, " ") != strings.Join(rules, " ") {
		t.Fatalf("verdict %s, found %v; want %s, %v", v.Verdict, got, want, rules)
	}
}
