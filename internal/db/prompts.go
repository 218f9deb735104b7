package db

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	ckpt "github.com/ckptsidecar/ckptsidecar"
	"github.com/ckptsidecar/ckptsidecar/internal/db/driftlog"
	"github.com/ckptsidecar/ckptsidecar/internal/db/ledger"
	"github.com/ckptsidecar/ckptsidecar/internal/db/sqlite"
	"github.com/ckptsidecar/ckptsidecar/internal/wellformed"
	"github.com/google/uuid"
)

const (
	promptColumns = `p.id, p.kind, a.name AS agent, a.owner, r.name AS run, p.key, p.operation, coalesce(p.attempt, 0) AS attempt, p.at, p.question, p.reason,
		p.choices, p.schema, p.expires_at, p.checkpoint, p.memory_diff, coalesce(p.choice, p.answer) AS choice, p.data, p.answered_at, p.answered_by,
		CASE WHEN p.kind = 'operation' THEN (SELECT json_object('name', o.name, 'status', o.status, 'args', CASE WHEN length(o.args) > 600 THEN substr(o.args, 1, 600) || '…' ELSE json(o.args) END,
			'idempotent', json(iif(o.idempotent, 'true', 'false')), 'result_schema', json(o.result_schema), 'checkpoint', o.checkpoint, 'started_at', o.started_at, 'error', o.error)
			FROM operations o WHERE o.run_id = p.run_id AND o.key = p.operation AND o.attempt = p.attempt) END AS about,
		CASE WHEN p.kind = 'operation' THEN (SELECT json_group_array(json_object('key', key, 'name', name, 'status', status))
			FROM (SELECT key, name, status FROM steps WHERE run_id = p.run_id ORDER BY started_at DESC LIMIT 3)) END AS steps`
	promptTables = ` FROM prompts p JOIN runs r ON r.id = p.run_id JOIN agents a ON a.id = r.agent_id `
)

// openPrompt returns the prompt that the plan waits for, or makes one. The questions about operations come first: how to
// go on with the run is asked when they are answered. An older decision without an answer is about something else, and
// is withdrawn.
func (s *Store) openPrompt(tx *ledger.Tx, agent *ledger.AgentRow, run *ledger.RunRow, plan *ckpt.Plan) (*ckpt.Prompt, error) {
	if p, err := s.askAboutAll(tx, agent, run); err != nil || p != nil {
		return p, err
	}
	if plan.Prompt != nil && plan.Prompt.AnsweredAt.IsZero() {
		return plan.Prompt, nil
	}
	if err := s.withdrawDecisions(tx, run); err != nil {
		return nil, err
	}
	id, err := uuid.NewV7()
	if err != nil {
		return nil, err
	}
	p := &ckpt.Prompt{ID: id.String(), Kind: ckpt.PromptDecision, Status: ckpt.PromptOpen, Agent: agent.Name,
		Owner: agent.Owner, Run: run.Name, At: tx.Now, MemoryDiff: plan.MemoryDiff}
	p.Question, p.Reason = s.Opt.Ask(plan)
	if plan.Checkpoint != nil {
		p.Checkpoint = ckpt.Ref(plan.Checkpoint.ID)
	}
	err = tx.Insert(`INSERT INTO prompts (id, run_id, at, question, reason, checkpoint, memory_diff, asked_seq) VALUES (?, ?, ?, ?, ?, ?, ?, ?)`,
		p.ID, run.ID, p.At, p.Question, p.Reason, p.Checkpoint, p.MemoryDiff, run.LastSeq)
	if err != nil {
		return nil, err
	}
	return p, s.tellOfPrompt(tx, p)
}

// tellOfPrompt notifies hooks that a prompt waits for a person.
func (s *Store) tellOfPrompt(tx *ledger.Tx, p *ckpt.Prompt) error {
	_, _, err := s.Notify(tx, ckpt.NoticePrompt, ckpt.NoticeData{Owner: p.Owner, Agent: p.Agent, Run: p.Run, Subject: p.ID, Message: p.Question})
	return err
}

// withdrawDecisions closes decision prompts that no person has answered and that are no longer
// needed. The run's own questions stay: a resumed run asks them again.
func (s *Store) withdrawDecisions(tx *ledger.Tx, run *ledger.RunRow) error {
	tx.OnCommit(s.prompts.Tell)
	return tx.Fill(`UPDATE prompts SET answered_at = ?, answered_by = ?
		WHERE run_id = ? AND kind = 'decision' AND answered_at IS NULL`, tx.Now, ledger.Daemon, run.ID)
}

// withdrawPrompts closes the unanswered prompts of a run, except the questions about its operations.
func (s *Store) withdrawPrompts(tx *ledger.Tx, run *ledger.RunRow) error {
	tx.OnCommit(s.prompts.Tell)
	return tx.Fill(`UPDATE prompts SET answered_at = ?, answered_by = ? WHERE run_id = ? AND kind <> 'operation' AND answered_at IS NULL`,
		tx.Now, ledger.Daemon, run.ID)
}

// promptRow is a stored prompt, and what the text of a question about an operation is made of.
type promptRow struct {
	ckpt.Prompt
	About ckpt.JSON `db:"about"`
	Steps ckpt.JSON `db:"steps"`
}

// shown returns the prompt as it is now.
func (r *promptRow) shown(now ckpt.Time) *ckpt.Prompt {
	p := &r.Prompt
	p.Status = p.StatusAt(now, ledger.Daemon)
	if p.Kind == ckpt.PromptOperation {
		r.describe(now)
	}
	return p
}

// describe makes the text of a question about an operation from what is known of it now.
func (r *promptRow) describe(now ckpt.Time) {
	p := &r.Prompt
	p.Question = fmt.Sprintf("Did operation %s of run %s of agent %s take effect?", p.Operation, p.Run, p.Agent)
	var o ckpt.Operation
	var steps []ckpt.Step
	if len(r.About) == 0 || json.Unmarshal(r.About, &o) != nil || json.Unmarshal(r.Steps, &steps) != nil {
		p.Reason = "The operation is no longer recorded."
		return
	}
	p.Schema, p.Checkpoint = o.ResultSchema, o.Checkpoint
	if string(p.Schema) == "null" {
		p.Schema = nil
	}
	said := []string{fmt.Sprintf("Attempt %d of %q began at %s (%s ago).", p.Attempt, o.Name, o.StartedAt, ckpt.Age(now.Sub(o.StartedAt.Time)))}
	if args := string(o.Args); args != "" && args != "null" {
		said = append(said, "Its arguments: "+args+".")
	}
	evidence := "Its end was never recorded."
	if o.Error != "" {
		evidence = "What is known of its end: " + strings.TrimRight(string(o.Error), ".") + "."
	}
	said = append(said, evidence)
	if len(steps) > 0 {
		words := make([]string, len(steps))
		for i := range steps { // the newest is the first
			words[len(steps)-1-i] = fmt.Sprintf("%s (%s)", steps[i].Key, steps[i].Status)
		}
		said = append(said, "The run's last steps: "+strings.Join(words, ", ")+".")
	}
	said = append(said, "Find out, and answer it_did (with the result as JSON, if the code needs one), it_did_not (the operation may be begun again), or repeat"+
		map[bool]string{true: ": the operation is idempotent, so that is harmless.", false: ": the operation may then happen twice."}[o.Idempotent])
	p.Reason = strings.Join(said, " ")
}

// Prompts lists the scope's prompts, newest first. An administrator who names no owner sees all. Open prompts of runs that
// another host of the fleet owns are not listed as open: they are answered there.
func (s *Store) Prompts(ctx context.Context, sc ckpt.Scope, f ckpt.PromptFilter) (*ckpt.PromptPage, error) {
	limit, err := ledger.PageSizeOf(f.Limit)
	if err != nil {
		return nil, err
	}
	if f.Before == "" {
		f.Before = "~" // after every id
	}
	if sc.Admin && sc.Target == "" {
		sc.Target = ckpt.AllOwners
	}
	page := &ckpt.PromptPage{Prompts: []ckpt.Prompt{}}
	var rows []promptRow
	err = s.RO.SelectContext(ctx, &rows, `SELECT `+promptColumns+promptTables+`WHERE (a.owner = ?1 OR ?1 = '*')
		AND (NOT ?2 OR p.answered_at IS NULL AND (p.expires_at IS NULL OR p.expires_at > ?5)
			AND p.run_id NOT IN (SELECT value FROM json_each(?6))) AND p.id < ?3 ORDER BY p.id DESC LIMIT 0 + ?4`,
		sc.Whose(), f.Open, f.Before, limit+1, ckpt.At(s.Opt.Now()), s.ElsewhereIDs())
	if len(rows) > limit {
		rows = rows[:limit]
		page.Next = ckpt.Ref(rows[limit-1].ID)
	}
	now := ckpt.At(s.Opt.Now())
	for i := range rows {
		page.Prompts = append(page.Prompts, *rows[i].shown(now))
	}
	if slices.ContainsFunc(page.Prompts, func(p ckpt.Prompt) bool { return p.Owner != sc.Caller.Owner }) {
		s.AuditRead(sc, "list_prompts", "", "")
	}
	return page, sqlite.ReadError(err)
}

// AnswerPrompt records a person's answer. It carries out a decision: the run may be resumed, starts
// with nothing, or is abandoned. It keeps the answer to a question for the run that asked.
func (s *Store) AnswerPrompt(ctx context.Context, sc ckpt.Scope, a ckpt.PromptAnswer) (*ckpt.Prompt, bool, error) {
	if err := wellformed.PromptAnswer(&a); err != nil {
		return nil, false, err
	}
	p, err := s.findPrompt(ctx, sc, a.ID)
	if err == nil {
		err = s.mayAnswer(ctx, p, &a)
	}
	if err != nil {
		s.RefusedBefore(ledger.ChangeEntry(sc, "answer_prompt", a.ID), err)
		return nil, false, err
	}
	if p.Owner != sc.Caller.Owner {
		sc.Target = p.Owner
	}
	c := s.Screen(sc, p.Agent, "answer")
	c.Text("reason", &a.Reason)
	c.JSON("data", &a.Data)
	if c.Again(func() error { return wellformed.PromptAnswer(&a) }); c.Err != nil {
		return nil, false, c.Err
	}
	e := ledger.Entry(sc, "answer_prompt", p.Agent)
	e.Run, e.Subject, e.Reason, e.Detail = p.Run, a.ID, a.Reason, answerDetail(&a)
	var again bool
	answered, replayed, err := driftlog.Keyed(s.Drifts, sc, driftlog.KeyedRequest{
		Agent: p.Agent, Key: a.IdempotencyKey, Print: a, Size: int64(len(a.Data)), Entry: e, Claim: sqlite.GoesOn,
		Secrets: c.Found,
	}, func(tx *ledger.Tx, agent *ledger.AgentRow) (*ckpt.Prompt, error) {
		run, err := tx.RunOfRow("prompts", a.ID)
		if err != nil || run == nil {
			return nil, ledger.ErrOr(err, ledger.NoRun(p.Agent, p.Run))
		}
		if err := s.OwnedHere(run); err != nil {
			return nil, err
		}
		var answered *ckpt.Prompt
		switch p.Kind {
		case ckpt.PromptQuestion:
			answered, again, err = s.answerQuestion(tx, sc, run, a, e)
		case ckpt.PromptOperation:
			answered, again, err = s.answerAboutOperation(tx, sc, agent, run, a, e)
		default:
			answered, err = s.answer(tx, sc, agent, run, a, e)
		}
		return answered, err
	})
	return answered, replayed || again, err
}

func (s *Store) findPrompt(ctx context.Context, sc ckpt.Scope, id string) (*ckpt.Prompt, error) {
	var row promptRow
	err := s.RO.GetContext(ctx, &row, `SELECT `+promptColumns+promptTables+`WHERE p.id = ?`, id)
	if ledger.IsNoRows(err) || (err == nil && !ledger.MayRead(sc, row.Owner)) {
		return nil, ckpt.Errorf(ckpt.CodeNotFound, "there is no prompt %s: list the open prompts with ckptsidecar prompts", id)
	}
	return row.shown(ckpt.At(s.Opt.Now())), sqlite.ReadError(err)
}

// answerAboutOperation resolves the attempt that a prompt is about. Repeating the same answer changes nothing, and the
// bool is then true.
func (s *Store) answerAboutOperation(tx *ledger.Tx, sc ckpt.Scope, agent *ledger.AgentRow, run *ledger.RunRow, a ckpt.PromptAnswer,
	e ledger.AuditEntry) (*ckpt.Prompt, bool, error) {
	p, err := readPrompt(tx, a.ID)
	if err != nil || p == nil {
		return nil, false, ledger.ErrOr(err, noPrompt(a.ID))
	}
	switch {
	case p.Status == ckpt.PromptAnswered && string(p.Choice) == string(a.Choice) && wellformed.SameJSON(p.Data, a.Data):
		return p, true, nil
	case p.Status != ckpt.PromptOpen:
		return nil, false, closedBefore(tx, a.ID)
	}
	r := ckpt.OperationResolution{Key: string(p.Operation), Attempt: p.Attempt, Choice: a.Choice, Result: a.Data}
	o, err := toResolve(tx, agent, run, r)
	if err != nil {
		return nil, false, err
	}
	if err := s.resolve(tx, agent, run, o, r, sc.Caller.Owner, resolveEntry(e, a.Reason)); err != nil {
		return nil, false, err
	}
	if _, err := s.RetainRun(tx, agent, run, e); err != nil { // the operation no longer needs its checkpoint
		return nil, false, err
	}
	p, err = readPrompt(tx, a.ID)
	return p, false, err
}

func (s *Store) answer(tx *ledger.Tx, sc ckpt.Scope, agent *ledger.AgentRow, run *ledger.RunRow, a ckpt.PromptAnswer,
	e ledger.AuditEntry) (*ckpt.Prompt, error) {
	leave := a.LeaveUncertain && a.Choice != ckpt.ChoiceResume // which would not go on: the operation must be resolved first
	because := fmt.Sprintf("the answer %s cannot be given to run %s", a.Choice, run.Name)
	if err := mayLeave(tx, agent.Name, run, leave, because, &e); err != nil {
		return nil, err
	}
	changed, err := tx.ExecCount(`UPDATE prompts SET choice = ?, answered_at = ?, answered_by = ? WHERE id = ? AND answered_at IS NULL`,
		string(a.Choice), tx.Now, sc.Caller.Owner, a.ID)
	if err != nil {
		return nil, err
	}
	if changed == 0 {
		return nil, closedBefore(tx, a.ID)
	}
	tx.OnCommit(s.prompts.Tell)
	switch a.Choice {
	case ckpt.ChoiceReinitialize:
		var anew *ledger.RunRow
		if anew, err = s.newLife(tx, agent, run, run.Status); err == nil {
			e.Life, e.Detail["life"] = run.Life, anew.Life
		}
	case ckpt.ChoiceAbandon:
		err = s.endRun(tx, agent, run, ckpt.EndRequest{Status: ckpt.RunFailed, Error: ckpt.Ref("abandoned by " + sc.Caller.Owner)})
		e.States(run.Status, run.Epoch)
	}
	if err != nil {
		return nil, err
	}
	if err := tx.Audit(e); err != nil {
		return nil, err
	}
	if _, err := s.RetainRun(tx, agent, run, e); err != nil { // the prompt no longer needs its checkpoint
		return nil, err
	}
	return readPrompt(tx, a.ID)
}

// closedBefore says why a decision takes no answer any more.
func closedBefore(tx *ledger.Tx, id string) error {
	p, err := readPrompt(tx, id)
	switch {
	case err != nil:
		return err
	case p == nil:
		return noPrompt(id)
	case p.Status == ckpt.PromptWithdrawn:
		return withdrawn(p)
	}
	return ckpt.Errorf(ckpt.CodeConflict, "prompt %s is already answered", id)
}

func noPrompt(id string) error {
	return ckpt.Errorf(ckpt.CodeNotFound, "prompt %s no longer exists", id)
}

func withdrawn(p *ckpt.Prompt) error {
	return ckpt.Errorf(ckpt.CodeConflict, "prompt %s was withdrawn at %s: its run went on or ended without the answer", p.ID, p.AnsweredAt)
}

// readPrompt reads a prompt as this transaction has left it, nil if it is gone.
func readPrompt(tx *ledger.Tx, id string) (*ckpt.Prompt, error) {
	return promptWhere(tx, `p.id = ?`, id)
}

// promptWhere reads the first prompt that meets a condition, nil if there is none.
func promptWhere(tx *ledger.Tx, condition string, args ...any) (*ckpt.Prompt, error) {
	var row promptRow
	found, err := tx.Get(&row, `SELECT `+promptColumns+promptTables+`WHERE `+condition, args...)
	if err != nil || !found {
		return nil, err
	}
	return row.shown(tx.Now), nil
}
