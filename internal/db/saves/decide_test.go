package saves

import (
	"fmt"
	"strings"
	"testing"
	"time"

	ckpt "github.com/ckptsidecar/ckptsidecar"
	"github.com/ckptsidecar/ckptsidecar/internal/db/blob"
	"github.com/ckptsidecar/ckptsidecar/internal/db/ledger"
	"github.com/ckptsidecar/ckptsidecar/internal/retention"
)

// history reads checkpoints of a run, newest first, from words like "5r 4o* 3rs": seq and kind (r routine, o pre_operation, c recovery), then *
// for one whose operation succeeded, s suspect, p pinned, d damaged, - for a state that is not in its row.
func history(text string) (rows []ledger.HeldRow) {
	for word := range strings.FieldsSeq(text) {
		var row ledger.HeldRow
		var flags string
		fmt.Sscanf(word, "%d%s", &row.Seq, &flags)
		row.ID, row.N, row.Slot = fmt.Sprint("c", row.Seq), 10*row.Seq, ledger.Slot(7, row.Seq)
		row.Kind = map[byte]ckpt.Kind{'r': ckpt.KindRoutine, 'o': ckpt.KindPreOperation, 'c': ckpt.KindRecovery}[flags[0]]
		if row.Kind == ckpt.KindPreOperation {
			row.Operation = "pay"
		}
		row.Released, row.Suspect = strings.Contains(flags, "*"), strings.Contains(flags, "s")
		row.Pinned, row.Damaged, row.Inline = strings.Contains(flags, "p"), strings.Contains(flags, "d"), !strings.Contains(flags, "-")
		row.CreatedAt.Value = ckpt.At(time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC))
		rows = append(rows, row)
	}
	return rows
}

// TestDecide: what a save removes, whose row it takes, and what the next save must know.
func TestDecide(t *testing.T) {
	for name, c := range map[string]struct {
		rows  string // what a routine save can push out
		all   string // all checkpoints, if the save decides on all
		kind  ckpt.Kind
		keep  int
		needs ledger.Needs
		facts func(*facts)
		want  string // the checkpoints that go, then the seq whose row is taken, then those that stay
	}{
		"the first":                       {want: "goes [] takes 0 stays [6]"},
		"within the count":                {rows: "5r 4r", want: "goes [] takes 0 stays [6 5 4]"},
		"beyond the count":                {rows: "5r 4r 3r", want: "goes [c3] takes 3 stays [6 5 4]"},
		"far beyond the count":            {rows: "5r 4r 3r 2r", want: "goes [c3 c2] takes 2 stays [6 5 4]"},
		"all are kept":                    {rows: "5r 4r 3r", keep: -1, want: "goes [] takes 0 stays []"},
		"a pinned one":                    {rows: "5r 4r 3rp", want: "goes [] takes 0 stays [6 5 4 3]"},
		"one that an operation needs":     {rows: "5r 4r 3r", needs: ledger.Needs{By: map[string]string{"c3": "an open operation"}}, want: "goes [] takes 0 stays [6 5 4 3]"},
		"the head of before is no reason": {rows: "5r 4r 3r", needs: ledger.Needs{Head: "c3"}, want: "goes [c3] takes 3 stays [6 5 4]"},
		"the rollback target":             {rows: "5r 4r 3r", needs: ledger.Needs{Back: "c3"}, want: "goes [] takes 0 stays [6 5 4 3]"},
		"a damaged one counts for none":   {rows: "5rd 4r 3r", want: "goes [] takes 0 stays [6 5 4 3]"},
		"its operation has succeeded":     {rows: "5r 4o*", want: "goes [c4] takes 0 stays [6 5]"},
		"a large one gives no row":        {rows: "5r 4r 3r-", want: "goes [c3] takes 0 stays [6 5 4]"},
		"LangGraph's give no row":         {rows: "5r 4r 3r", facts: func(f *facts) { f.graph = true }, want: "goes [c3] takes 0 stays [6 5 4]"},
		"a large state takes no row":      {rows: "5r 4r 3r", facts: func(f *facts) { f.save.State.Body = nil }, want: "goes [c3] takes 0 stays [6 5 4]"},
		"before an operation":             {rows: "5r 4r 3r", kind: ckpt.KindPreOperation, want: "goes [] takes 0 stays [5 4 3]"},
		"before an operation, released":   {rows: "5r 4o*", all: "5r 4o* 3c", kind: ckpt.KindPreOperation, want: "goes [c4] takes 0 stays [6 5 3]"},
		"drifting": {rows: "5rs 4rs 3r", all: "5rs 4rs 3r 2o", facts: func(f *facts) { f.drifting = true },
			want: "goes [] takes 0 stays [6 5 4 3 2]"},
		"drifting, with an older clean one": {rows: "5rs 4rs 3r 2r", all: "5rs 4rs 3r 2r", facts: func(f *facts) { f.drifting = true },
			want: "goes [c2] takes 2 stays [6 5 4 3]"},
		"findings come first": {rows: "5r 4r 3r", facts: func(f *facts) { f.later = true }, want: "goes [] takes 0 stays []"},
	} {
		t.Run(name, func(t *testing.T) {
			kind, keep := c.kind, c.keep
			if kind == "" {
				kind = ckpt.KindRoutine
			}
			if keep == 0 {
				keep = 3
			}
			p := ckpt.DefaultPolicy()
			p.RoutineKeep = max(keep, 0)
			rows := history(c.rows)
			f := &facts{agent: &ledger.AgentRow{Settings: p}, run: &ledger.RunRow{ID: 7, Status: ckpt.RunRunning, LastSeq: 5, Head: "c5"}, id: "c6", n: 60,
				now: ckpt.At(time.Date(2026, 3, 1, 12, 0, 1, 0, time.UTC)), rows: rows, needs: c.needs, headN: 50,
				save: &Save{Request: &ckpt.SaveRequest{Kind: kind, ContentType: ckpt.ContentTypeJSON}, State: blob.Encoded{Body: []byte("1"), Size: 1}}}
			f.aged = f.now.Time
			if c.all != "" {
				f.all = history(c.all)
			}
			if c.keep < 0 {
				f.rows = nil // a policy that keeps all lets nothing be pushed out
			}
			if c.facts != nil {
				c.facts(f)
			}
			before := fmt.Sprint(f.rows, f.all, *f.run)
			d := decide(f, retention.Plan)
			takes, stays := int64(0), []int64{}
			if d.row.Takes != nil {
				takes = d.row.Takes.Seq
			}
			for _, row := range d.stay {
				stays = append(stays, row.Seq)
			}
			if got := fmt.Sprintf("goes %v takes %d stays %v", d.reply.Pruned, takes, stays); got != c.want {
				t.Errorf("%s, want %s", got, c.want)
			}
			if d.reply.Seq != 6 || d.reply.Parent != "c5" || d.parentN != 50 || d.row.Suspect != f.drifting || len(d.reasons) != len(d.gone) {
				t.Errorf("decided %+v", d)
			}
			if after := fmt.Sprint(f.rows, f.all, *f.run); after != before {
				t.Errorf("the facts were changed from %s to %s", before, after)
			}
		})
	}
}
