package db_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	ckpt "github.com/ckptsidecar/ckptsidecar"
)

// TestDriftThatEndsModel makes random faults and mends them, with the real detectors and restarts. After each event:
// no finding of a loop is open when the last 20 steps were all different, no finding about a key when the key is there;
// a save while a critical finding about checkpoints is open is suspect, and any other is clean; a resume goes on from
// the newest checkpoint that is neither suspect nor in doubt.
func TestDriftThatEndsModel(t *testing.T) {
	t.Parallel()
	for _, seed := range seeds(1, 2, 12) {
		t.Run(fmt.Sprint("seed=", seed), func(t *testing.T) {
			t.Parallel()
			r, d := rand.New(rand.NewPCG(seed, 46)), openReal(t)
			d.policy(func(p *ckpt.Policy) { p.RoutineKeep = 3 + r.IntN(5) })
			start(t, d.Store, 1)
			quiet, key, n := 0, true, 0
			for range 60 {
				switch r.IntN(6) {
				case 0:
					for range 5 {
						d.record("search", "nothing")
					}
					quiet = 0
				case 1, 2:
					k := 1 + r.IntN(12)
					d.fresh(k)
					quiet += k
				case 3:
					key = !key
				case 4:
					d.reopen()
				}
				n++
				plan := ""
				if key {
					plan = `,"plan":"p"`
				}
				saved := d.put(fmt.Sprintf(`{"n":%d%s}`, n, plan))
				open := d.report(false)
				marks := slices.ContainsFunc(open.Findings, func(f ckpt.Finding) bool { return f.Marks() })
				if saved.Suspect != marks {
					t.Fatalf("save %d is suspect %t, open: %+v", n, saved.Suspect, open.Findings)
				}
				sound := saved.Seq
				for i := range open.Findings {
					f := &open.Findings[i]
					if f.Rule == "repeat" && quiet >= 20 || f.Rule == "lost_keys" && key {
						t.Fatalf("%s is open after %d other steps, key %t", f.Rule, quiet, key)
					}
					if f.Doubts() {
						sound = min(sound, *f.SinceSeq)
					}
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
