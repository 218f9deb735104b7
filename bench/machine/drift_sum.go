package main

import (
	"fmt"
	"io"
	"slices"
	"strconv"

	ckpt "github.com/ckptsidecar/ckptsidecar"
	"github.com/ckptsidecar/ckptsidecar/internal/cli/term"
)

// driftRow is the answer for one source and outcome, one tier and one rule, or
// for the whole tier where rule is "".
type driftRow struct {
	Source  string        `json:"source"`
	Outcome string        `json:"outcome"`
	Runs    int           `json:"runs"`
	Tier    ckpt.Severity `json:"tier"`
	Rule    string        `json:"rule"`
	Fired   int           `json:"fired"`        // in so many runs
	Share   float64       `json:"share"`        // of the runs, 0 to 1
	Delay   *float64      `json:"median_delay"` // in steps, of the runs in which it fired; null where it never did
}

// driftSums counts by source and outcome.
type driftSums struct {
	runs   int
	groups []*driftGroup // in the order in which they came
	rules  map[string]bool
}

type driftGroup struct {
	source, outcome string
	runs            int
	delays          map[driftCell][]int // of every run in which it fired
}

type driftCell struct {
	tier ckpt.Severity
	rule string
}

var driftTiers = []ckpt.Severity{ckpt.SeverityWarn, ckpt.SeverityCritical}

func newDriftSums() *driftSums { return &driftSums{rules: map[string]bool{}} }

func (s *driftSums) add(t *trace, found map[int][]ckpt.Found) {
	g := s.group(t.Source, t.Outcome)
	g.runs++
	s.runs++
	onset := 0
	if t.Onset != nil {
		onset = *t.Onset
	}
	fired := map[driftCell]bool{}
	for i := onset; i < len(t.Steps); i++ {
		for _, f := range found[i] {
			s.rules[f.Rule] = true
			for _, tier := range driftTiers {
				if tier == f.Severity || tier == ckpt.SeverityWarn && f.Severity == ckpt.SeverityCritical {
					g.fire(fired, driftCell{tier, f.Rule}, i-onset)
					g.fire(fired, driftCell{tier, ""}, i-onset)
				}
			}
		}
	}
}

// fire counts a cell once a run.
func (g *driftGroup) fire(fired map[driftCell]bool, cell driftCell, delay int) {
	if !fired[cell] {
		fired[cell] = true
		g.delays[cell] = append(g.delays[cell], delay)
	}
}

func (s *driftSums) group(source, outcome string) *driftGroup {
	for _, g := range s.groups {
		if g.source == source && g.outcome == outcome {
			return g
		}
	}
	g := &driftGroup{source: source, outcome: outcome, delays: map[driftCell][]int{}}
	s.groups = append(s.groups, g)
	return g
}

// rows are the tiers of every group, then the rules that fired anywhere.
func (s *driftSums) rows() []driftRow {
	rules := []string{""}
	for rule := range s.rules {
		rules = append(rules, rule)
	}
	slices.Sort(rules)
	rows := []driftRow{}
	for _, g := range s.groups {
		for _, rule := range rules {
			for _, tier := range driftTiers {
				rows = append(rows, g.row(driftCell{tier, rule}))
			}
		}
	}
	return rows
}

func (g *driftGroup) row(cell driftCell) driftRow {
	delays := g.delays[cell]
	row := driftRow{Source: g.source, Outcome: g.outcome, Runs: g.runs, Tier: cell.tier, Rule: cell.rule, Fired: len(delays)}
	row.Share = float64(row.Fired) / float64(row.Runs)
	if len(delays) > 0 {
		middle := medianDelay(delays)
		row.Delay = &middle
	}
	return row
}

func medianDelay(delays []int) float64 {
	sorted := slices.Sorted(slices.Values(delays))
	n := len(sorted)
	return float64(sorted[(n-1)/2]+sorted[n/2]) / 2
}

// write is the table for people: the tiers, then what each rule adds.
func (s *driftSums) write(w io.Writer, style *term.Style) {
	t := term.NewTable("SOURCE", "OUTCOME", ">RUNS", ">WARN", ">DELAY", ">CRITICAL", ">DELAY")
	for _, g := range s.groups {
		t.Add(append([]string{g.source, g.outcome, strconv.Itoa(g.runs)}, g.cells("")...)...)
	}
	t.Write(w, style)
	if len(s.rules) == 0 {
		return
	}
	fmt.Fprintln(w)
	t = term.NewTable("RULE", "SOURCE", "OUTCOME", ">WARN", ">DELAY", ">CRITICAL", ">DELAY")
	rules := make([]string, 0, len(s.rules))
	for rule := range s.rules {
		rules = append(rules, rule)
	}
	slices.Sort(rules)
	for _, rule := range rules {
		for _, g := range s.groups {
			if len(g.delays[driftCell{ckpt.SeverityWarn, rule}]) > 0 {
				t.Add(append([]string{rule, g.source, g.outcome}, g.cells(rule)...)...)
			}
		}
	}
	t.Write(w, style)
}

// cells are the share and the delay of each tier.
func (g *driftGroup) cells(rule string) []string {
	var cells []string
	for _, tier := range driftTiers {
		row := g.row(driftCell{tier, rule})
		delay := ""
		if row.Delay != nil {
			delay = strconv.FormatFloat(*row.Delay, 'f', -1, 64)
		}
		cells = append(cells, fmt.Sprintf("%.1f %%", 100*row.Share), delay)
	}
	return cells
}
