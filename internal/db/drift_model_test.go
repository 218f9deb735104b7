package db_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	ckpt "github.com/ckptsidecar/ckptsidecar"
	"github.com/ckptsidecar/ckptsidecar/internal/retention"
)

// driftModel takes random steps on a run that drifts, is dismissed, resumed,
// restored, ended and started again, and checks the invariants against the
// store. Replay: go test ./internal/db -run TestDriftModel -model.seed=N.
type driftModel struct {
	*drifty
	r       *rand.Rand
	did     []string
	before  []ckpt.Checkpoint // oldest first
	deleted map[string]bool   // deleted by a call
	second  map[string]bool   // by tool: whether a clean checkpoint existed when a call was made a second time
	calls   map[string]int
	stretch string
	life    string // of the run
}

func TestDriftModel(t *testing.T) {
	t.Parallel()
	usual := uint64(2)
	if testing.Short() {
		usual = 1
	}
	for i, seed := range seeds(1, usual, 12) {
		t.Run(fmt.Sprint("seed=", seed), func(t *testing.T) {
			t.Parallel()
			m := &driftModel{drifty: openDrifty(t), r: rand.New(rand.NewPCG(seed, 7)), deleted: map[string]bool{}, second: map[string]bool{}, calls: map[string]int{}}
			start(t, m.Store, 1)
			for range 250 {
				m.step()
				fresh(t, m.Store)
			}
			if st, err := m.Status(t.Context(), root); err != nil {
				t.Fatal(err)
			} else if i == 0 {
				t.Logf("%+v", st.Drift.Findings)
			}
			sound(t, m.options.Path)
		})
	}
}

func (m *driftModel) fail(format string, args ...any) {
	m.t.Helper()
	m.t.Fatalf("%s\nthe last steps:\n  %s\nthere is %s", fmt.Sprintf(format, args...), strings.Join(m.did[max(0, len(m.did)-25):], "\n  "), m.marks())
}

// must fails the test for an error that is not an allowed refusal.
func (m *driftModel) must(what string, err error, allowed ...ckpt.Code) bool {
	m.t.Helper()
	m.did = append(m.did, what)
	if err == nil {
		return true
	}
	if !slices.Contains(allowed, ckpt.CodeOf(err)) {
		m.fail("%s: %v", what, err)
	}
	return false
}

func (m *driftModel) step() {
	m.t.Helper()
	m.before = m.there()
	ctx, run := m.t.Context(), ckpt.RunRef{Agent: "a"}
	m.clock.add(time.Second + time.Duration(m.r.IntN(3))*time.Minute)
	switch n := m.r.IntN(100); {
	case n < 30:
		kind := []ckpt.Kind{ckpt.KindRoutine, ckpt.KindRoutine, ckpt.KindRoutine, ckpt.KindRecovery, ckpt.KindPreOperation}[m.r.IntN(5)]
		state := fmt.Sprintf(`{"n":%d,"bad":%t,"text":"%s"}`, m.r.IntN(5), m.r.IntN(25) == 0, strings.Repeat("x", m.r.IntN(2)*6000))
		_, err := m.Save(ctx, as(1), request("a", kind, state))
		m.must(fmt.Sprint("save ", kind, " bad ", strings.Contains(state, "true")), err)
	case n < 62:
		m.call(fmt.Sprint("tool", m.r.IntN(4)))
	case n < 66:
		all := m.report(true).Findings
		if len(all) > 0 {
			f := all[m.r.IntN(len(all))]
			_, _, err := m.Dismiss(ctx, ann, ckpt.DismissRequest{ID: f.ID})
			if m.must("dismiss "+f.Rule+" "+string(f.Severity)+" "+string(f.Closed), err); f.Closed == "" {
				clear(m.calls) // the detector of this test forgets them
			}
		}
	case n < 71:
		plan, _, err := m.Resume(ctx, as(1), ckpt.ResumeRequest{Agent: "a", PID: 1})
		if m.must("resume", err); plan.Verdict == ckpt.VerdictAsk {
			choice := []ckpt.PromptChoice{ckpt.ChoiceResume, ckpt.ChoiceReinitialize, ckpt.ChoiceAbandon}[m.r.IntN(3)]
			_, _, err = m.AnswerPrompt(ctx, ann, ckpt.PromptAnswer{ID: plan.Prompt.ID, Choice: choice})
			m.must("answer "+string(choice), err)
			_, _, err = m.Resume(ctx, as(1), ckpt.ResumeRequest{Agent: "a", PID: 1})
			m.must("resume after the answer", err)
		}
	case n < 75 && len(m.before) > 0:
		c := m.before[m.r.IntN(len(m.before))]
		_, _, err := m.Restore(ctx, ann, ckpt.RestoreRequest{Agent: "a", Checkpoint: c.ID})
		m.must(fmt.Sprint("restore ", c.Seq), err)
	case n < 78:
		_, _, err := m.Restore(ctx, ann, ckpt.RestoreRequest{Agent: "a", Clean: true})
		m.must("restore clean", err, ckpt.CodeNotFound)
	case n < 81:
		_, _, err := m.PostFinding(ctx, as(1), "a", ckpt.FindingRequest{Rule: "own", Severity: ckpt.SeverityCritical, Message: "m"})
		m.must("post", err)
	case n < 83:
		_, _, err := m.EndRun(ctx, as(1), run, ckpt.EndRequest{Status: ckpt.RunCompleted})
		m.must("end", err)
		_, _, err = m.StartRun(ctx, as(1), ckpt.RunRequest{Agent: "a", PID: 1})
		m.must("begin anew", err)
	case n < 86:
		keep := m.r.IntN(4)
		m.policy(func(p *ckpt.Policy) { p.RoutineKeep = keep })
		m.did = append(m.did, fmt.Sprint("keep ", keep))
	case n < 88:
		m.reopen()
		m.did = append(m.did, "reopen")
	case n < 89:
		m.crash()
		m.did = append(m.did, "crash")
	case n < 92 && len(m.before) > 0:
		c := m.before[m.r.IntN(len(m.before))]
		pin := !c.Pinned
		_, err := m.Patch(ctx, ann, c.ID, ckpt.CheckpointPatch{Pinned: &pin})
		m.must(fmt.Sprint("pin ", c.Seq, pin), err)
	case n < 94 && len(m.before) > 0:
		c := m.before[m.r.IntN(len(m.before))]
		_, err := m.Delete(ctx, ann, c.ID)
		if m.must(fmt.Sprint("delete ", c.Seq), err, ckpt.CodeConflict) {
			m.deleted[c.ID] = true
		}
	case n < 97:
		key := fmt.Sprint("o", m.r.IntN(1000))
		_, _, err := m.BeginOperation(ctx, as(1), run, ckpt.OperationRequest{Key: key, Name: "risk"})
		m.must("begin an operation", err)
		_, _, err = m.EndOperation(ctx, as(1), run, ckpt.OperationEnd{Key: key, Status: ckpt.OperationSucceeded})
		m.must("end it", err)
	default:
		d := time.Duration(m.r.IntN(4)) * ckpt.Day
		m.clock.add(d)
		guard := retention.NewGuard(retention.GuardSettings{Wall: m.clock.Now, Monotonic: func() time.Duration { return 0 }})
		_, err := (&retention.Worker{Store: m.Store, Guard: guard, Pause: time.Nanosecond}).Once(ctx)
		m.must("a round after "+d.String(), err)
	}
	m.check()
}

// call records one of a few calls, so that they repeat.
func (m *driftModel) call(tool string) {
	m.t.Helper()
	if m.calls[tool]++; m.calls[tool] == 2 {
		m.second[tool] = newestClean(m.before) != nil
	}
	was := m.calls[tool]
	step := m.record(tool, "the same")
	m.did = append(m.did, fmt.Sprintf("call %s, time %d: %s", tool, was, step.Drift.Verdict))
	critical := slices.ContainsFunc(step.Drift.Findings, func(f ckpt.Finding) bool { return f.Severity == ckpt.SeverityCritical })
	if want := was == 5 || was == 10; critical != want {
		m.fail("critical %t at time %d", critical, was)
	}
	if critical && was == 5 && m.second[tool] && newestClean(m.before) != nil && step.Drift.Clean == "" {
		m.fail("nothing to go back to, though there was a clean checkpoint at the second call")
	}
}

func (m *driftModel) there() []ckpt.Checkpoint {
	m.t.Helper()
	page, err := m.Checkpoints(m.t.Context(), ann, ckpt.CheckpointFilter{Agent: "a", Run: "main", Limit: ckpt.MaxLimit})
	if ckpt.CodeOf(err) == ckpt.CodeNotFound {
		return nil
	}
	if err != nil {
		m.t.Fatal(err)
	}
	slices.Reverse(page.Checkpoints)
	return page.Checkpoints
}

func newestClean(list []ckpt.Checkpoint) *ckpt.Checkpoint {
	for i := len(list) - 1; i >= 0; i-- {
		if !list[i].Suspect {
			return &list[i]
		}
	}
	return nil
}

// check checks the invariants after each step.
func (m *driftModel) check() {
	m.t.Helper()
	m.did[len(m.did)-1] += ": " + m.marks()
	if m.noViolations(); m.t.Failed() {
		m.fail("violations")
	}
	life, err := column(m.inspect(), `SELECT life FROM runs WHERE name = 'main'`)
	if err != nil {
		m.t.Fatal(err)
	}
	if life[0] != m.life { // the run was begun anew, and its checkpoints are in the life before
		m.before, m.life = nil, life[0]
	}
	after := m.there()
	all := slices.DeleteFunc(m.report(true).Findings, func(f ckpt.Finding) bool { return f.Run != "main" })
	covered := func(seq int64) bool {
		return slices.ContainsFunc(all, func(f ckpt.Finding) bool {
			return f.Severity == ckpt.SeverityCritical && f.SinceSeq != nil && f.DismissedAt.IsZero() && seq > *f.SinceSeq && (f.UntilSeq == nil || seq <= *f.UntilSeq)
		})
	}
	for i := range after {
		if after[i].Suspect != covered(after[i].Seq) {
			m.fail("checkpoint %d is suspect: %t", after[i].Seq, after[i].Suspect)
		}
	}
	// Retention never removes the last clean checkpoint, however many are
	// suspect.
	if newestClean(after) == nil {
		for i := range m.before {
			c := &m.before[i]
			if gone := !slices.ContainsFunc(after, func(o ckpt.Checkpoint) bool { return o.ID == c.ID }); gone && !m.deleted[c.ID] && !covered(c.Seq) {
				m.fail("checkpoint %d was clean and is gone, and no clean one is left", c.Seq)
			}
		}
	}
	reader := m.inspect()
	stretch, err := column(reader, `SELECT life || ' ' || stretch || ' ' || epoch FROM runs WHERE name = 'main'`)
	if err != nil {
		m.t.Fatal(err)
	}
	if stretch[0] != m.stretch {
		clear(m.calls)
	}
	m.stretch = stretch[0]
	open := m.report(false)
	want := ckpt.Ref("")
	if c := newestClean(after); open.Verdict == ckpt.SeverityCritical && c != nil {
		want = ckpt.Ref(c.ID)
	}
	if open.Clean != want {
		m.fail("to go back to is %q, it must be %q", open.Clean, want)
	}
}
