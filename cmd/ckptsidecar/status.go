package main

import (
	"context"
	"fmt"
	"strings"
	"time"

	ckpt "github.com/ckptsidecar/ckptsidecar"
	"github.com/ckptsidecar/ckptsidecar/client"
	"github.com/ckptsidecar/ckptsidecar/internal/cli"
	"github.com/ckptsidecar/ckptsidecar/internal/cli/driftcmd"
	"github.com/ckptsidecar/ckptsidecar/internal/cli/term"
	"github.com/ckptsidecar/ckptsidecar/internal/cli/view"
)

type statusCmd struct{}

// Run fails with exit code 1 if the daemon answers and has problems, so that a script need not read
// the text.
func (c *statusCmd) Run(ctx context.Context, a *app) error {
	s, err := a.Status(ctx)
	if err != nil {
		return err
	}
	if a.JSON {
		err = a.WriteJSON(s)
	} else {
		statusText(a, s)
	}
	if err == nil && s.State != "ready" {
		return &cli.ExitError{Code: cli.ExitFailed}
	}
	return err
}

func statusText(a *app, s *ckpt.Status) {
	term.Printf(a.Stdout, "%s  %s\n", a.Out.Bold("ckptsidecar "+s.Version), stateWord(s.State, a.Out))
	for _, problem := range s.Problems {
		term.Printf(a.Stdout, "  %s %s\n", a.Out.Red("!"), problem)
	}
	p := &term.Pairs{}
	p.Add("process", fmt.Sprintf("pid %d, started %s", s.PID, term.Ago(s.Now.Time, s.StartedAt.Time)))
	p.Add("endpoint", s.Endpoint)
	p.Add("stored", storedText(s))
	if text := runsText(s); text != "" {
		p.Add("runs", text)
	}
	if text := waitingText(s); text != "" {
		p.Add("waiting", a.Out.Yellow(text))
	}
	if text := spoolText(); text != "" {
		p.Add("spool", a.Out.Yellow(text))
	}
	if text := quotaText(s); text != "" {
		p.Add("quota", text)
	}
	p.Add("database", databaseText(&s.Database))
	if s.Disk.FreeBytes >= 0 {
		p.Add("space", fmt.Sprintf("%s left for all users; below %s, users who store much are refused", term.Bytes(s.Disk.FreeBytes), term.Bytes(s.Disk.FloorBytes)))
	}
	if !s.Database.Hidden() {
		p.Add("journal", journalText(s))
		p.Add("writing", writerText(&s.Writer))
	}
	p.Add("retention", workerText(s))
	p.Add("drift", driftLine(s))
	for i := range s.Drift.Calibrations {
		p.Add("calibration", driftcmd.CalibrationText(&s.Drift.Calibrations[i]))
	}
	if s.Backup.Folder != "" {
		p.Add("backups", backupText(s))
	}
	if !s.Database.Hidden() {
		p.Add("audit", fmt.Sprintf("%s, head %s", term.Count(s.Database.AuditRows, "row"), view.HashHead(s.Database.AuditHead)))
	}
	p.Write(a.Stdout, a.Out)
	if s.Database.Hidden() {
		term.Println(a.Stdout, a.Out.Dim("Only administrators see the sizes of the database, the writes, and the audit log."))
	}
}

// spoolText counts the writes of this user that are not with the daemon; "" if there are none.
func spoolText() string {
	waiting, refused, err := client.CountSpool("")
	var parts []string
	if waiting > 0 {
		parts = append(parts, term.Count(int64(waiting), "write")+" of yours not sent: ckptsidecar spool replay")
	}
	if refused > 0 {
		parts = append(parts, fmt.Sprintf("%d refused for good: ckptsidecar spool list", refused))
	}
	if err != nil {
		parts = append(parts, err.Error())
	}
	return strings.Join(parts, "; ")
}

// quotaText says what users store and may store, "" if nothing is limited.
func quotaText(s *ckpt.Status) string {
	const most = 3
	var parts []string
	for i, q := range s.Quotas {
		if i == most {
			parts = append(parts, fmt.Sprintf("%d more in --json", len(s.Quotas)-most))
			break
		}
		text := q.Owner + " stores " + term.Bytes(q.Bytes)
		if q.MaxBytes > 0 {
			text += " of " + term.Bytes(q.MaxBytes)
		}
		parts = append(parts, text)
	}
	return strings.Join(parts, ", ")
}

func stateWord(state string, s *term.Style) string {
	switch state {
	case "ready":
		return s.Green(state)
	case "degraded", "read_only":
		return s.Yellow(state)
	}
	return s.Red(state)
}

// runsText counts the runs by status; "" if there are none.
func runsText(s *ckpt.Status) string {
	var parts []string
	for _, status := range ckpt.RunStatuses {
		if n := s.Waiting.RunsByStatus[status]; n > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", n, term.Words(string(status))))
		}
	}
	return strings.Join(parts, ", ")
}

// waitingText counts the tasks that wait for a person; "" if there are none.
func waitingText(s *ckpt.Status) string {
	var parts []string
	if n := s.Waiting.UncertainOperations; n > 0 {
		parts = append(parts, term.Count(n, "uncertain operation")+"")
	}
	if n := s.Waiting.OpenPrompts; n > 0 {
		parts = append(parts, term.Count(n, "open question")+"")
	}
	if len(parts) == 0 {
		return ""
	}
	return strings.Join(parts, ", ") + ": ckptsidecar overview"
}

func storedText(s *ckpt.Status) string {
	var all int64
	var kinds []string
	for _, k := range ckpt.Kinds {
		all += s.Counts[k]
		if n := s.Counts[k]; n > 0 {
			kinds = append(kinds, fmt.Sprintf("%d %s", n, k))
		}
	}
	text := fmt.Sprintf("%s of %s", term.Count(all, "checkpoint"), term.Count(s.Agents, "agent"))
	if len(kinds) > 0 {
		text += " (" + strings.Join(kinds, ", ") + ")"
	}
	text += ", " + term.Bytes(s.Stored) + andFiles(s.Files)
	if s.LeftOut > 0 {
		text += fmt.Sprintf(" (%s left out: ckptsidecar files list AGENT)", term.Count(s.LeftOut, "path"))
	}
	return text
}

func databaseText(d *ckpt.DatabaseStatus) string {
	text := d.Path
	if !d.Hidden() {
		text += ", " + term.Bytes(d.Bytes)
	}
	if d.MaxBytes > 0 && !d.Hidden() {
		text += fmt.Sprintf(" of at most %s", term.Bytes(d.MaxBytes))
	}
	if d.FreeBytes > 0 {
		text += fmt.Sprintf(", %s of it free", term.Bytes(d.FreeBytes))
	}
	return fmt.Sprintf("%s, schema %d, SQLite %s", text, d.SchemaVersion, d.SQLite)
}

func journalText(s *ckpt.Status) string {
	d := &s.Database
	text := fmt.Sprintf("%s, %s", term.Bytes(d.WALBytes), view.CopiedText(s))
	if d.WALPending > 0 {
		text += fmt.Sprintf(", %s wait to be", term.Bytes(d.WALPending))
	}
	if d.WALFailures > 0 {
		text += fmt.Sprintf(", failed %s in a row", term.Count(d.WALFailures, "time"))
	}
	return text
}

func writerText(w *ckpt.WriterStatus) string {
	text := fmt.Sprintf("%s in %s", term.Count(w.Operations, "write"), term.Count(w.Commits, "commit"))
	if w.Commits > 0 {
		text += fmt.Sprintf(", a commit takes %s (1 in 100: %s)", term.Millis(w.CommitP50), term.Millis(w.CommitP99))
	}
	for _, more := range []struct {
		n    int64
		what string
	}{{w.Retries, "tried again"}, {w.Failures, "failed"}, {int64(w.Waiting), "waiting"}} {
		if more.n > 0 {
			text += fmt.Sprintf(", %d %s", more.n, more.what)
		}
	}
	return text
}

func workerText(s *ckpt.Status) string {
	w := &s.Worker
	text := fmt.Sprintf("last run %s, %s removed by age or budget since the start", term.Ago(s.Now.Time, w.LastRun.Time), term.Count(w.Removed, "checkpoint"))
	if left := w.GuardedUntil.Sub(s.Now.Time); left > 0 {
		text += fmt.Sprintf(", retention by age is paused for another %s", left.Round(time.Second))
	}
	if w.LastError != "" {
		text += ", failed: " + w.LastError
	}
	return text
}

// driftLine counts the open findings, the most severe first.
func driftLine(s *ckpt.Status) string {
	d := &s.Drift
	var list []string
	for _, severity := range []ckpt.Severity{ckpt.SeverityCritical, ckpt.SeverityWarn, ckpt.SeverityInfo} {
		var rules []string
		total := int64(0)
		for _, f := range d.Findings {
			if f.Severity == severity {
				total += f.Count
				rules = append(rules, fmt.Sprintf("%d %s", f.Count, f.Rule))
			}
		}
		if total > 0 {
			list = append(list, fmt.Sprintf("%d %s (%s)", total, severity, strings.Join(rules, ", ")))
		}
	}
	if len(list) == 0 {
		list = []string{"nothing is open"}
	}
	text := strings.Join(list, ", ")
	if s.Database.Hidden() {
		return text
	}
	return term.Count(d.Watched, "run") + " watched, " + text
}

func backupText(s *ckpt.Status) string {
	b := &s.Backup
	if b.Interval == 0 {
		return "none are scheduled (backup.interval)"
	}
	text := fmt.Sprintf("every %v, none yet", b.Interval)
	if !b.Last.IsZero() {
		text = fmt.Sprintf("every %v, the last %s (%s), %d kept in %s", b.Interval, term.Ago(s.Now.Time, b.Last.Time),
			term.Bytes(b.LastBytes), b.Kept, b.Folder)
	}
	if b.LastError != "" {
		text += ", failed: " + b.LastError
	}
	if b.AfterError != "" {
		text += ", not taken by backup.after: " + b.AfterError
	}
	switch {
	case b.DrillError != "":
		text += ", not restored on trial: " + b.DrillError
	case !b.DrillLast.IsZero():
		text += ", restored on trial " + term.Ago(s.Now.Time, b.DrillLast.Time)
	}
	return text
}
