package journal

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	ckpt "github.com/ckptsidecar/ckptsidecar"
	"github.com/ckptsidecar/ckptsidecar/internal/fleet"
	"github.com/ckptsidecar/ckptsidecar/internal/retention"
)

func lostID(seq int) string { return fmt.Sprintf("019cad25-8e6c-7a5f-9d0e-3f2f6d3c1a%02d", seq) }

// lostRun is a run whose checkpoints are all old recovery checkpoints.
func lostRun(n int, row string) *fleet.LostRun {
	r := &fleet.LostRun{Doc: fmt.Sprintf(`{"status":"running","last_seq":%d,"head":%q%s}`, n, lostID(n), row)}
	for seq := 1; seq <= n; seq++ {
		r.Checkpoints = append(r.Checkpoints, fleet.Checkpoint{ID: lostID(seq), N: int64(seq), Seq: int64(seq), Kind: "recovery",
			Doc: fmt.Sprintf(`{"id":%q,"seq":%d,"kind":"recovery","created_at":"2026-03-01T12:00:00.000Z","size":2,"sha256":"x"}`, lostID(seq), seq)})
	}
	return r
}

// TestLostHistory checks which checkpoints of a lost run are removed when all of them are old. A checkpoint that
// the run needs to continue, or that something else needs, is never removed.
func TestLostHistory(t *testing.T) {
	suspect := func(r *fleet.LostRun, seqs ...int) {
		for _, seq := range seqs {
			r.Checkpoints[seq-1].Suspect = true
		}
	}
	for name, c := range map[string]struct {
		row    string
		change func(*fleet.LostRun)
		stays  []int
	}{
		"the newest is the way back": {stays: []int{5}},
		"the newest are suspect":     {change: func(r *fleet.LostRun) { suspect(r, 4, 5) }, stays: []int{3, 5}},
		"the way back is damaged":    {change: func(r *fleet.LostRun) { suspect(r, 4, 5); r.Checkpoints[2].Damage = "x" }, stays: []int{2, 5}},
		"drift may be beginning":     {row: `,"back_seq":2`, stays: []int{2, 5}},
		"a restore went back": {change: func(r *fleet.LostRun) {
			r.Doc = strings.Replace(r.Doc, lostID(5), lostID(2), 1)
		}, stays: []int{2, 5}},
		"an operation is open":       {change: withRow("operation", `{"status":"open","checkpoint":"`+lostID(1)+`"}`), stays: []int{1, 5}},
		"an operation is uncertain":  {change: withRow("operation", `{"status":"uncertain","checkpoint":"`+lostID(1)+`"}`), stays: []int{1, 5}},
		"an operation has succeeded": {change: withRow("operation", `{"status":"succeeded","checkpoint":"`+lostID(1)+`"}`), stays: []int{5}},
		"a prompt waits":             {change: withRow("prompt", `{"checkpoint":"`+lostID(1)+`"}`), stays: []int{1, 5}},
		"a prompt is answered": {change: withRow("prompt",
			`{"checkpoint":"`+lostID(1)+`","answered_at":"2026-03-01T12:00:00.000Z"}`), stays: []int{5}},
		"somebody has pinned it": {change: func(r *fleet.LostRun) {
			r.Checkpoints[0].Doc = strings.Replace(r.Checkpoints[0].Doc, `{`, `{"pinned":true,`, 1)
		}, stays: []int{1, 5}},
		"a fork needs it":                 {change: func(r *fleet.LostRun) { r.Name = "forked" }, stays: []int{3, 5}},
		"it ended, not long ago":          {row: `,"ended_at":"2026-03-09T12:00:00.000Z"`, change: completed, stays: []int{5}},
		"it ended, and its time is over":  {row: `,"ended_at":"2026-03-02T12:00:00.000Z"`, change: completed},
		"it says that it ended, and runs": {row: `,"ended_at":"2026-03-02T12:00:00.000Z"`, stays: []int{5}},
	} {
		r := lostRun(5, c.row)
		if c.change != nil {
			c.change(r)
		}
		h, err := LostHistory(r, map[string]bool{lostID(3): r.Name == "forked"})
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		var stays []int
		for _, v := range retention.Plan(h, lostPolicyOf(t), time.Date(2026, 3, 10, 12, 0, 0, 0, time.UTC)) {
			if !v.Remove {
				stays = append(stays, slices.IndexFunc(r.Checkpoints, func(c fleet.Checkpoint) bool { return c.ID == v.ID })+1)
			}
		}
		slices.Sort(stays)
		if !slices.Equal(stays, c.stays) {
			t.Errorf("%s: %v stay, want %v", name, stays, c.stays)
		}
	}
}

func withRow(kind, doc string) func(*fleet.LostRun) {
	return func(r *fleet.LostRun) { r.Rows = append(r.Rows, fleet.Row{Kind: kind, Key: "k", Doc: doc}) }
}

func completed(r *fleet.LostRun) { r.Doc = strings.Replace(r.Doc, "running", "completed", 1) }

// lostPolicyOf returns a policy that keeps recovery checkpoints for 7 days and ended runs for 2 days.
func lostPolicyOf(t *testing.T) ckpt.Policy {
	t.Helper()
	p, err := LostPolicy(&fleet.LostAgent{Doc: `{"type":"agent","policy":{"recovery_keep":"7d","ended_keep":"2d"}}`})
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// TestLostUnreadable: unreadable data is an error, so nothing of that run is removed.
func TestLostUnreadable(t *testing.T) {
	for name, change := range map[string]func(*fleet.LostRun){
		"the run":             func(r *fleet.LostRun) { r.Doc = `sealed` },
		"the seal of the run": func(r *fleet.LostRun) { r.Damage = "its key is missing" },
		"a row":               func(r *fleet.LostRun) { r.Unread = []fleet.Unread{{Kind: "operation", Key: "k", Reason: "x"}} },
		"an operation":        withRow("operation", `sealed`),
		"a checkpoint":        func(r *fleet.LostRun) { r.Checkpoints[2].Doc = `sealed` },
	} {
		r := lostRun(5, "")
		change(r)
		if _, err := LostHistory(r, nil); err == nil {
			t.Errorf("%s cannot be read, and the run is judged", name)
		}
	}
	for _, doc := range []string{``, `{}`, `{"policy":7}`} {
		if p, err := LostPolicy(&fleet.LostAgent{Name: "a", Doc: doc}); err == nil {
			t.Errorf("%q is the policy %+v", doc, p)
		}
	}
	broken := []fleet.LostAgent{{Runs: []fleet.LostRun{{Doc: `sealed`}}}}
	if forks, err := LostForks(broken); err == nil {
		t.Errorf("the forks of a run that cannot be read are %v", forks)
	}
	forked := []fleet.LostAgent{{Runs: []fleet.LostRun{{Doc: `{"forked_from":"c1","last_seq":0}`}, {Doc: `{"forked_from":"c2","last_seq":3}`}}}}
	if forks, err := LostForks(forked); err != nil || !forks["c1"] || forks["c2"] {
		t.Errorf("the forks are %v, %v", forks, err)
	}
}
