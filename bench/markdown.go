package main

import (
	"fmt"
	"io"
	"strings"
)

// writeMarkdown writes the tables in the form that docs/PERFORMANCE.md uses.
func (r *report) writeMarkdown(w io.Writer) {
	before, _, _ := strings.Cut(r.Before, " ")
	after, _, _ := strings.Cut(r.After, " ")
	var versions []string
	for _, s := range r.Systems[1:] {
		if s.Version != "" {
			versions = append(versions, s.Name+" "+s.Version)
		}
	}
	fmt.Fprintf(w, "%d CPUs (%s), %s; load of the machine %s before, %s after; medians of %d rounds of %gs, %s; %s.\n",
		r.CPUs, r.CPU, r.Disk, before, after, r.Rounds, r.Seconds, r.Time.Format("2006-01-02"), strings.Join(versions, ", "))
	for _, p := range phases() {
		fmt.Fprintf(w, "\n%s%s:\n\n", strings.ToUpper(p.title[:1]), p.title[1:])
		r.markdownPhase(w, &p)
	}
}

func (r *report) markdownPhase(w io.Writer, p *phase) {
	head := []string{""}
	for _, c := range p.cells {
		clients := fmt.Sprint(c.Clients)
		if c.Clients == 1 {
			clients = "1 client"
		}
		head = append(head, clients)
	}
	if p.history() {
		head = append(head, "KiB on disk")
	}
	fmt.Fprintf(w, "| %s |\n|%s\n", strings.Join(head, " | "), strings.Repeat("---|", len(head)))
	for _, s := range r.Systems {
		row, any := r.row(s.Name, p)
		if any {
			fmt.Fprintf(w, "| %s |\n", strings.Join(markdownRow(row, p), " | "))
		}
	}
}

// markdownRow puts the figures of a cell into one column: saves per second (p50), processor time,
// and in bold how many times as fast ours is.
func markdownRow(row []string, p *phase) []string {
	out, rest := []string{row[0]}, row[1:]
	for range p.cells {
		rate, p50, cpu, ratio := rest[0], rest[1], rest[3], rest[4]
		cell := "-"
		if rate != "-" {
			cell = fmt.Sprintf("%s (%s), %s%s", rate, p50, cpu, bold(ratio))
		}
		out, rest = append(out, cell), rest[figuresOfCell:]
	}
	if p.history() {
		out = append(out, rest[0]+bold(rest[1]))
	}
	return out
}

func bold(ratio string) string {
	if ratio == "" {
		return ""
	}
	return ", **" + ratio + "**"
}
