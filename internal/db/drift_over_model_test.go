package db_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	ckpt "github.com/ckptsidecar/ckptsidecar"
)

// TestDriftThatEndsModel makes random faults and mends them, with the real detectors and restarts. After each event:
// no finding is open whose rule does not hold any more (loops, errors, keys, types, a rule of the user, the budget);
// a save while a critical finding about checkpoints is open is suspect, and any other is clean; a resume goes on from
// the newest checkpoint that is neither suspect nor in doubt; going back to a clean one ends nothing that is older.
func TestDriftThatEndsModel(t *testing.T) {
	t.Parallel()
	for _, seed := range seeds(1, 2, 12) {
		t.Run(fmt.Sprint("seed=", seed), func(t *testing.T) {
			t.Parallel()
			r, d := rand.New(rand.NewPCG(seed, 46)), openReal(t)
			steps := 100 + r.Int64N(200)
			d.policy(func(p *ckpt.Policy) {
				p.RoutineKeep, p.Budget.Steps = 3+r.IntN(5), steps
				p.Rules = []ckpt.Rule{{Name: "mine", When: "state.bad == true", Severity: ckpt.SeverityCritical, Message: "It is bad."}}
			})
			start(t, d.Store, 1)
			d.put(`{"n":0,"mode":"fast","bad":false,"plan":"p"}`)
			key, text, bad, back := true, true, false, false // back: a state that was wrong may be the one that counts
			quiet, good, n := 0, 0, 0                        // steps that were all different, steps without an error, and saves
			for range 60 {
				switch r.IntN(10) {
				case 0:
					for range 5 {
						d.record("search", "nothing")
					}
					quiet, good = 0, good+5
				case 1, 2, 3:
					k := 1 + r.IntN(12)
					d.fresh(k)
					quiet, good = quiet+k, good+k
				case 4:
					key = !key
				case 5:
					d.reopen()
				case 6:
					for range 3 + r.IntN(4) {
						d.fail("read")
						quiet++
					}
					good = 0
				case 7:
					text = !text
				case 8:
					bad = !bad
				case 9:
					back = d.goBack() || back
				}
				n++
				plan, mode := "", `"fast"`
				if key {
					plan = `,"plan":"p"`
				}
				if !text {
					mode = "7"
				}
				saved := d.put(fmt.Sprintf(`{"n":%d,"mode":%s,"bad":%t%s}`, n, mode, bad, plan))
				open := d.report(false)
				marks := slices.ContainsFunc(open.Findings, func(f ckpt.Finding) bool { return f.Marks() })
				if saved.Suspect != marks {
					t.Fatalf("save %d is suspect %t, open: %+v", n, saved.Suspect, open.Findings)
				}
				sound, worst := saved.Seq, ckpt.SeverityNone
				for i := range open.Findings {
					f := &open.Findings[i]
					if over := map[string]bool{
						"repeat": quiet >= 20, "cycle": quiet >= 20, "stale": quiet >= 20,
						"error_streak": good >= 10, "error_rate": good >= 10, "repeated_error": good >= 10,
						"lost_keys": key, "type_changed": text && !back, "mine": !bad, "budget": int64(d.steps)*10 < steps*6,
					}[f.Rule]; over {
						t.Fatalf("%s is open after %d other steps and %d good ones, key %t, text %t, bad %t, %d of %d steps %+v\n%s", f.Rule, quiet, good, key, text, bad, d.steps, steps, f, d.marks())
					}
					if f.Severity.Rank() > worst.Rank() {
						worst = f.Severity
					}
					if f.Doubts() {
						sound = min(sound, *f.SinceSeq)
					}
					if f.Rule == "budget" && f.SinceSeq != nil {
						t.Fatalf("the budget puts checkpoints in doubt: %+v", f)
					}
				}
				if open.Verdict != worst {
					t.Fatalf("the verdict is %s, the worst open finding is %s: %+v", open.Verdict, worst, open.Findings)
				}
				want := int64(0)
				page, err := d.Checkpoints(t.Context(), ann, ckpt.CheckpointFilter{Agent: "a", Run: "main", Limit: ckpt.MaxLimit})
				if err != nil {
					t.Fatal(err)
				}
				for _, c := range page.Checkpoints {
					if !c.Suspect && c.Seq <= sound {
						want = max(want, c.Seq)
					}
				}
				p, _, err := d.Resume(t.Context(), as(1), ckpt.ResumeRequest{Agent: "a", PID: 1, DryRun: true})
				if err != nil || want > 0 && p.Checkpoint.Seq != want {
					t.Fatalf("resumes from %+v, the newest clean one is %d (%v)", p.Checkpoint, want, err)
				}
				d.noViolations()
			}
		})
	}
}

// goBack restores the newest clean checkpoint, and reports whether there was one. A finding whose evidence is older stays open.
func (d *drifty) goBack() bool {
	d.t.Helper()
	before := d.report(false).Findings
	c, _, err := d.Restore(d.t.Context(), ann, ckpt.RestoreRequest{Agent: "a", Clean: true})
	if ckpt.CodeOf(err) == ckpt.CodeNotFound {
		return false
	}
	if err != nil {
		d.t.Fatal(err)
	}
	after := map[string]bool{}
	for _, f := range d.report(false).Findings {
		after[f.ID] = true
	}
	for _, f := range before {
		if f.SinceSeq != nil && *f.SinceSeq < c.Seq && !after[f.ID] {
			d.t.Fatalf("going back to %d closed %s, whose evidence begins after %d", c.Seq, f.Rule, *f.SinceSeq)
		}
	}
	return true
}

// TestAWarningThatIsOverLeavesItsCheckpointsSuspect: a key was lost, and came back. The checkpoints without it are no way back, also
// when the newest one has lost it again.
func TestAWarningThatIsOverLeavesItsCheckpointsSuspect(t *testing.T) {
	t.Parallel()
	d := openReal(t)
	d.policy(func(p *ckpt.Policy) { p.RoutineKeep = 20 })
	start(t, d.Store, 1)
	n := 0
	put := func(times int, plan string) {
		for range times {
			n++
			d.put(fmt.Sprintf(`{"n":%d%s}`, n, plan))
		}
	}
	put(4, `,"plan":"p"`)
	put(3, ``)
	d.wantMarks("o1 o2 o3 o4 o5 o6 o7")
	put(1, `,"plan":"p"`)
	d.wantMarks("o1 o2 o3 o4 o5! o6! o7! o8")
	d.noViolations()
	put(2, `,"plan":"p"`)
	put(1, ``)
	c, _, err := d.Restore(t.Context(), ann, ckpt.RestoreRequest{Agent: "a", Clean: true})
	if err != nil || c.Seq != 10 {
		t.Fatalf("went back to %+v, %v; the newest state with the key is 10", c, err)
	}
	put(1, `,"plan":"p"`)
	d.wantMarks("o1 o2 o3 o4 o5! o6! o7! o8 o9 o10 o11! o12")
	d.noViolations()
}
