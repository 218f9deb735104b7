package main

import (
	"fmt"
	"io"
	"strings"
	"unicode/utf8"

	"github.com/ckptsidecar/ckptsidecar/bench/internal/figures"
)

// write writes the report for people.
func (r *report) write(w io.Writer) {
	fmt.Fprintf(w, "Durable saves a second against what people would use instead, on %d CPUs (%s) and %s, shared by servers and clients.\n",
		r.CPUs, r.CPU, r.Disk)
	before, _, _ := strings.Cut(r.Before, " ")
	after, _, _ := strings.Cut(r.After, " ")
	fmt.Fprintf(w, "Medians of %d rounds of %gs each, in turns, on %s; the load of the machine was %s before and %s at the end.\n\n",
		r.Rounds, r.Seconds, r.Time.Format("2006-01-02"), before, after)
	if r.Cut {
		fmt.Fprintf(w, "The time was over in the last of them: give it more with --limit.\n\n")
	}
	r.writeSystems(w)
	for _, p := range phases() {
		r.writePhase(w, &p)
	}
	r.writeBars(w)
}

func (r *report) writeSystems(w io.Writer) {
	t := table{{"SYSTEM", "", "VERSION", "FLUSHES SEEN"}}
	for _, s := range r.Systems {
		t = append(t, []string{s.Name, s.Title, or(s.Version, "-"), s.durable()})
	}
	t.write(w, 4)
	for _, s := range r.Systems {
		if s.Without != "" {
			fmt.Fprintf(w, "without %s: %s\n", s.Name, s.Without)
		}
	}
}

// durable describes what strace counted while one client saved.
func (s *systemReport) durable() string {
	switch {
	case s.Without != "" && s.Flushes == nil:
		return "-"
	case s.Flushes == nil || !s.Flushes.Checked:
		return "not checked"
	}
	return fmt.Sprintf("%d for %d saves", s.Flushes.Flushes, s.Flushes.Saves)
}

// writePhase writes a table with a row for each system.
func (r *report) writePhase(w io.Writer, p *phase) {
	head, under := []string{p.title}, []string{"saves/s, ms of p50, p99 and CPU, ours/it"}
	for _, c := range p.cells {
		clients := fmt.Sprintf("%d CLIENTS", c.Clients)
		if c.Clients == 1 {
			clients = "1 CLIENT"
		}
		head = append(head, clients, "", "", "", "")
		under = append(under, "saves/s", "p50", "p99", "cpu", "ours/it")
	}
	if p.history() {
		head, under = append(head, "ON DISK", ""), append(under, "KiB/save", "it/ours")
	}
	t := table{head, under}
	for _, s := range r.Systems {
		if row, any := r.row(s.Name, p); any {
			t = append(t, row)
		}
	}
	fmt.Fprintln(w)
	t.write(w, 1)
}

// figuresOfCell is the number of columns that a cell has.
const figuresOfCell = 5

// row returns the figures of a system in a phase; any is false if there are none.
func (r *report) row(system string, p *phase) (row []string, any bool) {
	row = []string{system}
	for _, c := range p.cells {
		cell := []string{"-", "-", "-", "-", "-"}
		for _, one := range r.Results {
			if one.System == system && one.Cell == c {
				any = true
				cell = []string{fmt.Sprintf("%.0f", one.Rate), fmt.Sprintf("%.2f", one.P50), fmt.Sprintf("%.1f", one.P99),
					fmt.Sprintf("%.2f", one.CPU), times(one.Ratio)}
			}
		}
		row = append(row, cell...)
	}
	if !p.history() {
		return row, any
	}
	disk := []string{"-", "-"}
	for _, one := range r.Storage {
		if one.System == system && one.Size == p.cells[0].Size && one.Step == p.cells[0].Step {
			disk = []string{fmt.Sprintf("%.1f", one.Bytes/1024), times(one.Ratio)}
		}
	}
	return append(row, disk...), any
}

func times(ratio *float64) string {
	switch {
	case ratio == nil:
		return ""
	case *ratio < 10:
		return fmt.Sprintf("%.2f", *ratio)
	}
	return fmt.Sprintf("%.0f", *ratio)
}

func (r *report) writeBars(w io.Writer) {
	t := table{{"BAR", "", "AT LEAST", "IS", ""}}
	passed, known := 0, 0
	for _, v := range r.Bars {
		is := "-"
		if v.Measured {
			is = fmt.Sprintf("%.2f", v.Ratio)
			known++
		}
		if v.Pass {
			passed++
		}
		t = append(t, []string{v.Peer, barText(v.Bar), fmt.Sprintf("%g", v.AtLeast), is, v.Text()})
	}
	fmt.Fprintln(w)
	t.write(w, 2)
	fmt.Fprintf(w, "%d of %d bars that were measured are met; %d were not measured.\n", passed, known, len(r.Bars)-known)
}

func barText(b figures.Bar) string {
	if b.Bytes {
		return fmt.Sprintf("%d KiB history, times fewer bytes on disk", b.Cell.Size>>10)
	}
	return b.Cell.Text()
}

func or(s, instead string) string {
	if s == "" {
		return instead
	}
	return s
}

// table holds rows of texts.
type table [][]string

// write aligns the columns: the first `left` columns to the left, the others to the right.
func (t table) write(w io.Writer, left int) {
	var widths []int
	for _, row := range t {
		for i, text := range row {
			if i == len(widths) {
				widths = append(widths, 0)
			}
			widths[i] = max(widths[i], utf8.RuneCountInString(text))
		}
	}
	for _, row := range t {
		var line strings.Builder
		for i, text := range row {
			pad := strings.Repeat(" ", widths[i]-utf8.RuneCountInString(text))
			if i < left {
				line.WriteString(text + pad)
			} else {
				line.WriteString(pad + text)
			}
			line.WriteString("  ")
		}
		fmt.Fprintln(w, strings.TrimRight(line.String(), " "))
	}
}
