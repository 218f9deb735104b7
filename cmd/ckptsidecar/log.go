package main

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	ckpt "github.com/ckptsidecar/ckptsidecar"
	"github.com/ckptsidecar/ckptsidecar/internal/cli"
	"github.com/ckptsidecar/ckptsidecar/internal/cli/term"
)

type logCmd struct {
	Agent  string   `arg:"" help:"The agent's name, or AGENT/RUN for one run."`
	Follow bool     `short:"f" help:"Go on with new lines until Ctrl-C."`
	Only   []string `enum:"saves,steps,operations,findings,prompts,ends,others" help:"Only these: saves, steps, operations, findings, prompts, ends (of runs, their starts too), others." placeholder:"WHAT"`
	Since  string   `help:"Only lines since then: a time, or how long ago, such as 2h." placeholder:"TIME"`
	Limit  int      `short:"n" default:"100" help:"How many of the newest lines; 0 for all."`
	InRun  string   `name:"run" help:"Only this run, or one life of it: main~1." placeholder:"NAME"`
}

// logPause is how long log waits between two looks for new lines.
const logPause = time.Second

// Run tells what happened to an agent, oldest first, from the audit log.
func (c *logCmd) Run(ctx context.Context, a *app) error {
	since, err := instant("--since", c.Since, time.Now())
	f := ckpt.AuditFilter{Agent: c.Agent, Run: c.InRun, Since: since, Newest: true}
	if err := cli.Checked(err, f.Check()); err != nil {
		return err
	}
	if c.Limit < 0 {
		return cli.Usagef("--limit must be 0 or more")
	}
	rows, newest, err := c.newest(ctx, a, f)
	if err != nil {
		return err
	}
	for i := range rows {
		if err := c.print(a, &rows[i]); err != nil {
			return err
		}
	}
	if !c.Follow {
		if len(rows) > 0 {
			return nil
		}
		if _, err := a.Client().Runs(ctx, ckpt.RunFilter{Agent: f.Agent, Limit: 1}); err != nil { // the name is wrong
			return err
		}
		if !a.JSON {
			a.Tell("nothing is recorded of %s with these options", c.Agent)
		}
		return nil
	}
	return c.follow(ctx, a, f, newest)
}

// newest reads the newest lines, and returns them oldest first with the number of the newest row.
func (c *logCmd) newest(ctx context.Context, a *app, f ckpt.AuditFilter) (rows []ckpt.AuditRow, newest int64, err error) {
	f.Limit = ckpt.MaxLimit
	if c.Limit > 0 && len(c.Only) == 0 {
		f.Limit = min(f.Limit, c.Limit)
	}
	for {
		page, err := a.Client().Audit(ctx, f)
		if err != nil {
			return nil, 0, err
		}
		for _, row := range page.Audit {
			newest = max(newest, row.N)
			if c.wants(&row) {
				rows = append(rows, row)
			}
			if len(rows) == c.Limit && c.Limit > 0 {
				slices.Reverse(rows)
				return rows, newest, nil
			}
		}
		if page.Next == nil {
			slices.Reverse(rows)
			return rows, newest, nil
		}
		f.Before = *page.Next
	}
}

func (c *logCmd) follow(ctx context.Context, a *app, f ckpt.AuditFilter, after int64) error {
	f.Newest, f.After, f.Limit = false, after, ckpt.MaxLimit
	for {
		select {
		case <-ctx.Done(): // Ctrl-C is the normal end of following
			return nil
		case <-time.After(logPause):
		}
		page, err := a.Client().Audit(ctx, f)
		switch {
		case ctx.Err() != nil:
			return nil
		case ckpt.CodeOf(err) == ckpt.CodeBusy: // the daemon is away, or starts again
			continue
		case err != nil:
			return err
		}
		for i := range page.Audit {
			row := &page.Audit[i]
			f.After = max(f.After, row.N)
			if c.wants(row) {
				if err := c.print(a, row); err != nil {
					return err
				}
			}
		}
	}
}

// wants leaves out reads by administrators: this command makes them too.
func (c *logCmd) wants(row *ckpt.AuditRow) bool {
	if len(c.Only) == 0 {
		return !strings.HasPrefix(row.Action, "admin_")
	}
	return slices.Contains(c.Only, sortOfAct(row.Action))
}

func (c *logCmd) print(a *app, row *ckpt.AuditRow) error {
	if a.JSON {
		return a.WriteJSON(row)
	}
	run := string(row.Run)
	if c.InRun != "" {
		run = ""
	}
	first := strings.TrimSpace(a.Out.Dim(term.Moment(row.At)) + "  " + run)
	a.Out.Hanging(a.Stdout, first+"  ", term.Escape(story(row)))
	return nil
}

// sorts are the kinds of lines that --only chooses.
var sorts = map[string]string{
	"save": "saves", "remove": "saves", "restore": "saves", "delete": "saves", "change": "saves", "prune": "saves", "clear_run": "saves", "attach_files": "saves",
	"begin_step": "steps", "finish_step": "steps", "observe_run": "steps",
	"begin_operation": "operations", "end_operation": "operations", "resolve_operation": "operations",
	"finding": "findings", "dismiss_finding": "findings",
	"ask": "prompts", "answer_prompt": "prompts", "withdraw_prompt": "prompts",
	"start_run": "ends", "resume": "ends", "end_run": "ends", "interrupt_run": "ends", "drop_run": "ends", "delete_run": "ends",
}

func sortOfAct(action string) string {
	if s := sorts[action]; s != "" {
		return s
	}
	return "others"
}

// story says what a row of the audit log is about, in a sentence without a subject. Who did it follows if it was not the agent's owner.
func story(row *ckpt.AuditRow) string {
	var d struct {
		Kind, Name, Status, Was, Choice, By, Verdict, Rule, Severity, Closed, Error, Question string
		Seq, Size, Attempt                                                                    int64
	}
	_ = json.Unmarshal(row.Detail, &d) // members of other types stay empty
	subject := string(row.Subject)
	if d.Name != "" && d.Name != subject {
		subject += " (" + d.Name + ")"
	}
	if d.Attempt > 1 {
		subject += fmt.Sprintf(", attempt %d", d.Attempt)
	}
	said := ""
	switch row.Action {
	case "save":
		said = fmt.Sprintf("saved checkpoint %d (%s, %s)", d.Seq, term.Words(d.Kind), term.Bytes(d.Size))
	case "remove", "restore", "delete":
		past := map[string]string{"remove": "removed", "restore": "restored", "delete": "deleted"}[row.Action]
		said = fmt.Sprintf("%s checkpoint %d (%s)", past, d.Seq, term.Words(d.Kind))
	case "begin_step":
		said = "step " + subject + " " + map[bool]string{true: "began", false: d.Status}[d.Status == "started"]
	case "finish_step":
		said = "step " + subject + " " + d.Status
	case "begin_operation":
		said = "operation " + subject + " began"
	case "end_operation":
		said = "operation " + subject + ": " + d.Status
	case "resolve_operation":
		said = "operation " + subject + " resolved: " + term.Words(d.Choice) + ", said by " + d.By
	case "finding":
		said = "found " + d.Rule + " (" + d.Severity + ")"
		if d.Closed != "" {
			said = d.Rule + " is over: " + term.Words(d.Closed)
		}
	case "ask":
		said = "asked: " + d.Question
	case "answer_prompt":
		said = "answered " + term.Words(d.Choice)
	case "start_run":
		said = "the run began"
	case "resume":
		said = "asked how to go on: " + term.Words(d.Verdict)
	case "end_run":
		said = "the run ended: " + term.Words(d.Status)
	case "interrupt_run":
		said = "the owner was lost"
	default:
		said = term.Words(row.Action)
	}
	if d.Error != "" {
		said += ": " + d.Error
	}
	if row.Outcome != "done" {
		said += "; refused: " + term.Words(row.Outcome)
	}
	if row.Reason != "" {
		said += "; because: " + string(row.Reason)
	}
	var gone []struct{ Seq int64 }
	if json.Unmarshal(row.Removed, &gone) == nil && len(gone) > 0 {
		list := make([]string, len(gone))
		for i, g := range gone {
			list[i] = fmt.Sprint(g.Seq)
		}
		said += "; removed " + strings.Join(list, ", ")
	}
	if row.Who != string(row.Owner) {
		said += "; by " + row.Who
	}
	return said
}
