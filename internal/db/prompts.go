package db

import (
	"context"
	"slices"

	ckpt "github.com/ckptsidecar/ckptsidecar"
	"github.com/ckptsidecar/ckptsidecar/internal/db/driftlog"
	"github.com/ckptsidecar/ckptsidecar/internal/db/ledger"
	"github.com/ckptsidecar/ckptsidecar/internal/db/sqlite"
	"github.com/ckptsidecar/ckptsidecar/internal/wellformed"
	"github.com/google/uuid"
)

const (
	promptColumns = `p.id, p.kind, a.name AS agent, a.owner, r.name AS run, p.key, p.at, p.question, p.reason,
		p.choices, p.schema, p.expires_at, p.checkpoint, p.memory_diff, coalesce(p.choice, p.answer) AS choice, p.data, p.answered_at, p.answered_by`
	promptTables = ` FROM prompts p JOIN runs r ON r.id = p.run_id JOIN agents a ON a.id = r.agent_id `
)

// openPrompt returns the prompt that the plan waits for, or makes one. An older prompt without an
// answer is about something else, and is withdrawn.
func (s *Store) openPrompt(tx *ledger.Tx, agent *ledger.AgentRow, run *ledger.RunRow, plan *ckpt.Plan) (*ckpt.Prompt, error) {
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
	err = tx.Exec(`INSERT INTO prompts (id, run_id, at, question, reason, checkpoint, memory_diff, asked_seq) VALUES (?, ?, ?, ?, ?, ?, ?, ?)`,
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
	return tx.Exec(`UPDATE prompts SET answered_at = ?, answered_by = ?
		WHERE run_id = ? AND kind = 'decision' AND answered_at IS NULL`, tx.Now, ledger.Daemon, run.ID)
}

// withdrawPrompts closes all unanswered prompts of a run.
func (s *Store) withdrawPrompts(tx *ledger.Tx, run *ledger.RunRow) error {
	tx.OnCommit(s.prompts.Tell)
	return tx.Exec(`UPDATE prompts SET answered_at = ?, answered_by = ? WHERE run_id = ? AND answered_at IS NULL`, tx.Now, ledger.Daemon, run.ID)
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
	err = s.RO.SelectContext(ctx, &page.Prompts, `SELECT `+promptColumns+promptTables+`WHERE (a.owner = ?1 OR ?1 = '*')
		AND (NOT ?2 OR p.answered_at IS NULL AND (p.expires_at IS NULL OR p.expires_at > ?5)
			AND p.run_id NOT IN (SELECT value FROM json_each(?6))) AND p.id < ?3 ORDER BY p.id DESC LIMIT 0 + ?4`,
		sc.Whose(), f.Open, f.Before, limit+1, ckpt.At(s.Opt.Now()), s.ElsewhereIDs())
	if len(page.Prompts) > limit {
		page.Prompts = page.Prompts[:limit]
		page.Next = ckpt.Ref(page.Prompts[limit-1].ID)
	}
	now := ckpt.At(s.Opt.Now())
	for i := range page.Prompts {
		page.Prompts[i].Status = page.Prompts[i].StatusAt(now, ledger.Daemon)
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
		run, err := tx.Run(agent.ID, p.Run)
		if err != nil || run == nil {
			return nil, ledger.ErrOr(err, ledger.NoRun(p.Agent, p.Run))
		}
		if err := s.OwnedHere(run); err != nil {
			return nil, err
		}
		if p.Kind == ckpt.PromptQuestion {
			var answered *ckpt.Prompt
			answered, again, err = s.answerQuestion(tx, sc, run, a, e)
			return answered, err
		}
		return s.answer(tx, sc, agent, run, a, e)
	})
	return answered, replayed || again, err
}

func (s *Store) findPrompt(ctx context.Context, sc ckpt.Scope, id string) (*ckpt.Prompt, error) {
	var p ckpt.Prompt
	err := s.RO.GetContext(ctx, &p, `SELECT `+promptColumns+promptTables+`WHERE p.id = ?`, id)
	if ledger.IsNoRows(err) || (err == nil && !ledger.MayRead(sc, p.Owner)) {
		return nil, ckpt.Errorf(ckpt.CodeNotFound, "there is no prompt %s: list the open prompts with ckptsidecar prompts", id)
	}
	p.Status = p.StatusAt(ckpt.At(s.Opt.Now()), ledger.Daemon)
	return &p, sqlite.ReadError(err)
}

func (s *Store) answer(tx *ledger.Tx, sc ckpt.Scope, agent *ledger.AgentRow, run *ledger.RunRow, a ckpt.PromptAnswer,
	e ledger.AuditEntry) (*ckpt.Prompt, error) {
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
		if err = s.reinitialize(tx, run); err == nil {
			err = s.NewStretch(tx, run, nil, ckpt.ClosedBegun)
		}
	case ckpt.ChoiceAbandon:
		err = s.endRun(tx, run, ckpt.EndRequest{Status: ckpt.RunFailed, Error: ckpt.Ref("abandoned by " + sc.Caller.Owner)})
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
	var p ckpt.Prompt
	found, err := tx.Get(&p, `SELECT `+promptColumns+promptTables+`WHERE `+condition, args...)
	if err != nil || !found {
		return nil, err
	}
	p.Status = p.StatusAt(tx.Now, ledger.Daemon)
	return &p, nil
}

// reinitialize makes the next resume begin with nothing. Earlier checkpoints stay as history.
func (s *Store) reinitialize(tx *ledger.Tx, run *ledger.RunRow) error {
	if err := s.forgetWork(tx, run); err != nil {
		return err
	}
	run.BaseSeq, run.Head = run.LastSeq, ""
	return tx.Exec(`UPDATE runs SET base_seq = last_seq, head = NULL, forked_from = NULL, continuation_prompt = NULL, interrupted_at = NULL,
		first_goal = NULL, steps_ended = 0, input_tokens = 0, output_tokens = 0, cost_usd = 0, updated_at = ? WHERE id = ?`, tx.Now, run.ID)
}
