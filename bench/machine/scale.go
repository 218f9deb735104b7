package main

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/ckptsidecar/ckptsidecar/internal/cli"
	"github.com/ckptsidecar/ckptsidecar/internal/cli/measure"
	"github.com/ckptsidecar/ckptsidecar/internal/cli/term"
	"github.com/ckptsidecar/ckptsidecar/internal/daemon"
)

type scaleCmd struct {
	measure.Flags `embed:""`
	Rows          []string      `default:"10k,100k" help:"${rows} Default: ${default}."`
	Size          string        `default:"2KiB" help:"How large the states are. Default: ${default}."`
	Clients       int           `default:"64" help:"How many clients fill the database at once. Default: ${default}."`
	Rounds        int           `default:"3" help:"How often each is measured, the databases in turns; the median counts. Default: ${default}."`
	Duration      time.Duration `default:"300ms" help:"How long each is measured in a round. Default: ${default}."`
}

// scaleReport is the output of --json.
type scaleReport struct {
	measure.Head
	Rounds     int              `json:"rounds"`
	Duration   float64          `json:"duration_seconds"`
	Size       int64            `json:"size"`
	Databases  []scaleDatabase  `json:"databases"`
	Operations []scaleOperation `json:"operations"`
	Fill       []fillPoint      `json:"fill"`
}

// scaleDatabase is one database with a certain number of checkpoints.
type scaleDatabase struct {
	Rows    int64   `json:"rows"`
	Bytes   int64   `json:"database_bytes"`
	Seconds float64 `json:"fill_seconds"` // since the database before
	Rate    float64 `json:"fill_per_second"`

	daemon *measure.Daemon
	ids    []string // of some of its checkpoints, of every age
}

// scaleOperation is one operation on every database.
type scaleOperation struct {
	Operation string      `json:"operation"`
	What      string      `json:"what"`
	Cells     []scaleCell `json:"cells"`
}

// scaleCell is an operation on one database: medians over the rounds.
type scaleCell struct {
	Rows int64 `json:"rows"`
	measure.Figures
	Times float64 `json:"times_first"` // its p50 divided by that of the first database, within a round

	rounds []measure.Figures
}

// fillPoint is how fast a database was filled at a point.
type fillPoint struct {
	Rows int64   `json:"rows"`
	Rate float64 `json:"per_second"`
}

func (c *scaleCmd) Run(ctx context.Context, a *measure.Env) error {
	rows, size, err := c.check()
	if err != nil {
		return err
	}
	return a.Measure(ctx, "scale", c.Flags, c.need(rows, size), func(b *measure.Bench) error {
		r := &scaleReport{Rounds: c.Rounds, Duration: c.Duration.Seconds(), Size: size}
		f := &filling{b: b, clients: c.Clients, pool: measure.NewStates(c.Seed, size), total: rows[len(rows)-1]}
		if r.Databases, err = f.databases(ctx, rows); err != nil {
			return err
		}
		r.Fill = f.points
		if err := c.measure(ctx, b, r, f.pool); err != nil {
			return err
		}
		return b.Report(&r.Head, r, func(a *measure.Env) { r.text(a) })
	})
}

func (c *scaleCmd) check() (rows []int64, size int64, err error) {
	for _, text := range c.Rows {
		n, err := parseCount(text)
		if err != nil || n < 100 || n > 100_000_000 {
			return nil, 0, cli.Usagef("--rows has %q: say numbers like 10k or 1m, from 100 to 100m", text)
		}
		if len(rows) > 0 && n <= rows[len(rows)-1] {
			return nil, 0, cli.Usagef("--rows has %s after %s: each must be more than the one before", text, c.Rows[len(rows)-1])
		}
		rows = append(rows, n)
	}
	if len(rows) == 0 {
		return nil, 0, cli.Usagef("--rows names nothing to measure")
	}
	sizes, err := measure.ParseSizes("--size", []string{c.Size}, measure.LeastState, 1<<20)
	if err != nil {
		return nil, 0, err
	}
	if err := measure.CheckClients([]int{c.Clients}); err != nil {
		return nil, 0, err
	}
	return rows, sizes[0], measure.CheckRounds(c.Rounds, c.Duration)
}

// need returns about how many bytes all databases take together. A row has its state, and its
// entries in the audit log, the keys and the indexes.
func (c *scaleCmd) need(rows []int64, size int64) (bytes int64) {
	for _, n := range rows {
		bytes += n * (size + size/4 + 1500)
	}
	return bytes + 256<<20
}

// parseCount reads a number like 10000, 10k or 1m.
func parseCount(text string) (int64, error) {
	factor := int64(1)
	lower := strings.ToLower(strings.TrimSpace(text))
	for suffix, f := range map[string]int64{"k": 1000, "m": 1_000_000} {
		if number, found := strings.CutSuffix(lower, suffix); found {
			lower, factor = number, f
		}
	}
	n, err := strconv.ParseInt(lower, 10, 64)
	if err != nil || n < 0 || n > 1<<40 {
		return 0, fmt.Errorf("%q is not a number like 10000, 10k or 1m", text)
	}
	return n * factor, nil
}

// countText formats a number for people: 1,000,000.
func countText(n int64) string {
	text := strconv.FormatInt(n, 10)
	for at := len(text) - 3; at > 0; at -= 3 {
		text = text[:at] + "," + text[at:]
	}
	return text
}

func (r *scaleReport) text(a *measure.Env) {
	heads := []string{"OPERATION"}
	for i, d := range r.Databases {
		heads = append(heads, ">"+countText(d.Rows))
		if i > 0 {
			heads = append(heads, ">")
		}
	}
	t := term.NewTable(heads...)
	for _, o := range r.Operations {
		t.Add(o.row()...)
	}
	t.Add(r.fileRow("database", func(d scaleDatabase) float64 { return float64(d.Bytes) }, func(v float64) string { return term.Bytes(int64(v)) })...)
	t.Write(a.Stdout, a.Out)
	fmt.Fprintln(a.Stdout)
	r.bars().Write(a.Stdout, a.Out)
	if len(r.Fill) > 1 {
		fmt.Fprintln(a.Stdout)
		r.fillChart().write(a.Stdout, a.Out)
	}
	a.Tell("\nMedians of p50 over %s of %gs; × is to the first column, within one round. States of %s; half of the "+
		"checkpoints are of 16 agents with one long\n"+
		"run each, all kept, half of 16 agents with many runs of 3. One client measures. A start is a new process until it answers that it is ready.",
		term.Count(r.Rounds, "round"), r.Duration, daemon.Size(r.Size))
}

func (o *scaleOperation) row() []string {
	cells := []string{o.What}
	for i, c := range o.Cells {
		cells = append(cells, term.Millis(c.P50))
		if i > 0 {
			cells = append(cells, measure.Times(c.Times))
		}
	}
	return cells
}

func (r *scaleReport) fileRow(name string, get func(scaleDatabase) float64, text func(float64) string) []string {
	cells := []string{name}
	for i, d := range r.Databases {
		cells = append(cells, text(get(d)))
		if i > 0 {
			cells = append(cells, measure.Times(measure.Ratio(get(d), get(r.Databases[0]))))
		}
	}
	return cells
}

// bars shows the databases side by side, operation by operation.
func (r *scaleReport) bars() *measure.Bars {
	p := &measure.Bars{Title: "p50 by the number of checkpoints"}
	for _, o := range r.Operations {
		if !slices.Contains([]string{"save", "latest", "list", "resume_plan", "start"}, o.Operation) {
			continue
		}
		for _, c := range o.Cells {
			p.Join(o.What, measure.Bar{Name: countText(c.Rows), Value: c.P50, Text: term.Millis(c.P50)})
		}
	}
	return p
}

func (r *scaleReport) fillChart() *chart {
	c := &chart{title: "saves a second while filling", first: "row 1", last: countText(r.Fill[len(r.Fill)-1].Rows), label: measure.Rate}
	values := make([]float64, len(r.Fill))
	for i, p := range r.Fill {
		values[i] = p.Rate
	}
	c.add("", values)
	return c
}
