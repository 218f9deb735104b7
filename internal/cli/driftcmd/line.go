package driftcmd

import (
	"encoding/json"
	"io"
	"strings"

	ckpt "github.com/ckptsidecar/ckptsidecar"
	"github.com/ckptsidecar/ckptsidecar/internal/cli/term"
)

// LineLength is how many steps and checkpoints are in a line.
const LineLength = 100

// TimelineText draws the last steps and checkpoints of the run, one character for each.
// Below them it marks those that are the evidence of findings.
func TimelineText(w io.Writer, s *term.Style, r *ckpt.DriftReport) {
	most := LineLength
	if width := s.Columns() - len("what it did last  "); width > 0 {
		most = min(most, width)
	}
	line := r.Timeline[max(0, len(r.Timeline)-most):]
	named := evidenceOf(r.Findings)
	var drawn, marks strings.Builder
	found := false
	for i := range line {
		e := &line[i]
		mark := severityMark(named[e.What+" "+e.Key])
		found = found || mark != ' '
		c := string(entryMark(e))
		switch {
		case mark != ' ' || e.Status == string(ckpt.StepFailed):
			c = s.Red(c)
		case e.Suspect:
			c = s.Yellow(c)
		case e.What == "checkpoint":
			c = s.Green(c)
		}
		drawn.WriteString(c)
		marks.WriteByte(mark)
	}
	term.Printf(w, "%s  %s\n", s.Dim("what it did last"), drawn.String())
	if found {
		term.Printf(w, "%s  %s\n", s.Dim("what was found  "), s.Red(strings.TrimRight(marks.String(), " ")))
	}
	for _, line := range []string{
		"steps: . succeeded, x failed, ~ not ended, ? interrupted",
		"checkpoints: C clean, S suspect, R recovery, r suspect recovery",
		"found: ^ critical, ' others",
	} {
		term.Printf(w, "%s\n", s.Dim(line))
	}
}

func entryMark(e *ckpt.TimelineEntry) byte {
	if e.What == "checkpoint" {
		switch {
		case e.Name == string(ckpt.KindRecovery) && e.Suspect:
			return 'r'
		case e.Name == string(ckpt.KindRecovery):
			return 'R'
		case e.Suspect:
			return 'S'
		}
		return 'C'
	}
	switch ckpt.StepStatus(e.Status) {
	case ckpt.StepFailed:
		return 'x'
	case ckpt.StepInterrupted:
		return '?'
	case ckpt.StepStarted:
		return '~'
	case ckpt.StepSucceeded:
	}
	return '.'
}

// evidenceOf returns the steps and checkpoints that are evidence of findings, with the
// highest severity.
func evidenceOf(findings []ckpt.Finding) map[string]ckpt.Severity {
	named := map[string]ckpt.Severity{}
	for i := range findings {
		var e ckpt.Evidence
		if json.Unmarshal(findings[i].Evidence, &e) != nil { // the evidence of a finding that the agent itself reported
			continue
		}
		keys := make([]string, 0, len(e.Steps)+len(e.Checkpoints))
		for _, key := range e.Steps {
			keys = append(keys, "step "+key)
		}
		for _, id := range e.Checkpoints {
			keys = append(keys, "checkpoint "+id)
		}
		for _, key := range keys {
			if named[key] != ckpt.SeverityCritical {
				named[key] = findings[i].Severity
			}
		}
	}
	return named
}

func severityMark(s ckpt.Severity) byte {
	switch s {
	case "":
		return ' '
	case ckpt.SeverityCritical:
		return '^'
	}
	return '\''
}
