package db

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"slices"
	"time"

	"github.com/google/uuid"

	ckpt "github.com/ckptsidecar/ckptsidecar"
	"github.com/ckptsidecar/ckptsidecar/internal/db/driftlog"
	"github.com/ckptsidecar/ckptsidecar/internal/db/ledger"
	"github.com/ckptsidecar/ckptsidecar/internal/wellformed"
)

// AskQuestion puts a question of a run to a person, or returns the prompt that the same question
// made before. The bool is true if the prompt was there.
//
// With a key, two questions are the same if the keys are equal. Without a key, they are the same if
// the words are equal and the run has saved nothing since the answer came. A checkpoint saved later
// already includes the answer, so asking again is a new question.
func (s *Store) AskQuestion(ctx context.Context, sc ckpt.Scope, r ckpt.QuestionRequest) (*ckpt.Prompt, bool, error) {
	if err := wellformed.Question(&r); err != nil {
		return nil, false, err
	}
	if r.Schema != nil {
		if err := s.fits(ctx, r.Schema, nil); err != nil {
			return nil, false, err
		}
	}
	c := s.Screen(sc, r.Agent, "question")
	c.Text("question", &r.Question)
	c.Text("reason", &r.Reason)
	for i := range r.Choices {
		c.Text("choice", &r.Choices[i])
	}
	c.Key("key", r.Key)
	if c.Again(func() error { return wellformed.Question(&r) }); c.Err != nil {
		return nil, false, c.Err
	}
	ref := ckpt.RunRef{Agent: r.Agent, Run: r.Run, Epoch: r.Epoch}
	e := ledger.Entry(sc, "ask", r.Agent)
	e.Run, e.Reason = ledger.RunName(r.Run), r.Reason
	var again bool
	size := int64(len(r.Question) + len(r.Schema))
	p, replayed, err := driftlog.Keyed(s.Drifts, sc, driftlog.KeyedRequest{
		Agent: r.Agent, Key: r.IdempotencyKey, Print: r, Size: size, Entry: e, Make: true, Secrets: c.Found,
	}, func(tx *ledger.Tx, _ *ledger.AgentRow) (*ckpt.Prompt, error) {
		agent, run, err := s.OpenRun(tx, sc, ref)
		if err != nil {
			return nil, err
		}
		var p *ckpt.Prompt
		p, again, err = s.question(tx, run, &r, e)
		if err != nil || !r.Suspend || p.Status != ckpt.PromptOpen || run.Status == ckpt.RunSuspended {
			return p, err
		}
		if err := s.endRun(tx, agent, run, ckpt.EndRequest{Status: ckpt.RunSuspended}); err != nil {
			return nil, err
		}
		end := e
		end.Action, end.Subject, end.Detail = "end_run", "", map[string]any{"status": ckpt.RunSuspended, "waits_for": p.ID}
		end.States(run.Status, run.Epoch)
		return p, tx.Audit(end)
	})
	return p, replayed || again, err
}

// question finds the prompt of a question that was asked before, or makes it.
func (s *Store) question(tx *ledger.Tx, run *ledger.RunRow, r *ckpt.QuestionRequest, e ledger.AuditEntry) (p *ckpt.Prompt, again bool, err error) {
	if p, err = s.askedBefore(tx, run, r); err != nil || p != nil {
		return p, p != nil, err
	}
	id, err := uuid.NewV7()
	if err != nil {
		return nil, false, err
	}
	var expires ckpt.Time
	if r.Expires > 0 {
		expires = ckpt.At(tx.Now.Add(time.Duration(r.Expires)))
	}
	err = tx.Insert(`INSERT INTO prompts (id, run_id, at, question, reason, kind, key, choices, schema, expires_at, asked_seq)
		VALUES (?, ?, ?, ?, ?, 'question', ?, ?, ?, ?, ?)`,
		id.String(), run.ID, tx.Now, r.Question, r.Reason, ckpt.Ref(r.Key), r.Choices, r.Schema, expires, run.LastSeq)
	if err != nil {
		return nil, false, err
	}
	e.Subject, e.Detail = id.String(), map[string]any{"question": r.Question}
	if r.Key != "" {
		e.Detail["key"] = r.Key
	}
	if r.Choices != nil {
		e.Detail["choices"] = r.Choices
	}
	if r.Expires > 0 {
		e.Detail["expires_at"] = expires
	}
	if err := tx.Audit(e); err != nil {
		return nil, false, err
	}
	if p, err = readPrompt(tx, id.String()); err != nil {
		return nil, false, err
	}
	return p, false, s.tellOfPrompt(tx, p)
}

// askedBefore returns the prompt that the same question made before, nil if there is none.
func (s *Store) askedBefore(tx *ledger.Tx, run *ledger.RunRow, r *ckpt.QuestionRequest) (*ckpt.Prompt, error) {
	if r.Key != "" {
		p, err := promptWhere(tx, `p.run_id = ? AND p.key = ? AND p.kind = 'question'`, run.ID, r.Key)
		if err != nil || p == nil {
			return nil, err
		}
		if p.Question != r.Question || !slices.Equal(p.Choices, r.Choices) || !wellformed.SameJSON(p.Schema, r.Schema) {
			return nil, ckpt.Errorf(ckpt.CodeIdempotencyMismatch, "the key %s already belongs to another question: "+
				"give this question its own key", r.Key)
		}
		return p, nil
	}
	at := int64(0) // the checkpoint whose state the asker goes on from, which is all that it knows of the run
	if _, err := tx.Get(&at, `SELECT coalesce(state_of, seq) FROM checkpoints WHERE id = ? AND run_id = ?`, run.Head, run.ID); err != nil {
		return nil, err
	}
	p, err := promptWhere(tx, `p.run_id = ?1 AND p.key IS NULL AND p.kind = 'question'
		AND p.question = ?2 AND p.choices IS ?3 AND p.id > ?4
		AND CASE WHEN p.answered_at IS NOT NULL THEN p.answered_seq >= ?5
			WHEN p.expires_at <= ?6 THEN p.asked_seq >= ?5 ELSE 1 END ORDER BY p.id LIMIT 1`,
		run.ID, r.Question, r.Choices, r.After, at, tx.Now)
	if err != nil || p == nil || wellformed.SameJSON(p.Schema, r.Schema) {
		return p, err
	}
	return nil, nil
}

// mayAnswer returns an error if a prompt does not allow an answer.
func (s *Store) mayAnswer(ctx context.Context, p *ckpt.Prompt, a *ckpt.PromptAnswer) error {
	if err := a.CheckFor(p); err != nil || p.Schema == nil || p.Kind == ckpt.PromptOperation && a.Choice != ckpt.ChoiceItDid {
		return err
	}
	if p.Kind == ckpt.PromptOperation {
		return s.resultFitsSchema(ctx, p.Schema, string(p.Operation), a.Data)
	}
	return s.fits(ctx, p.Schema, a.Data)
}

func (s *Store) fits(ctx context.Context, schema, data ckpt.JSON) error {
	if s.Opt.Fits == nil {
		return errors.New("db.Open: Options.Fits is required for questions with a schema")
	}
	asking, stop := ckpt.Asking(ctx)
	defer stop()
	return s.Opt.Fits(asking, schema, data)
}

// answerQuestion keeps the answer to a question. Repeating the same answer changes nothing, and the
// bool is then true. A different answer is a conflict.
func (s *Store) answerQuestion(tx *ledger.Tx, sc ckpt.Scope, run *ledger.RunRow, a ckpt.PromptAnswer,
	e ledger.AuditEntry) (*ckpt.Prompt, bool, error) {
	p, err := readPrompt(tx, a.ID)
	if err != nil || p == nil {
		return nil, false, ledger.ErrOr(err, noPrompt(a.ID))
	}
	switch p.Status {
	case ckpt.PromptAnswered:
		if string(p.Choice) == string(a.Choice) && wellformed.SameJSON(p.Data, a.Data) {
			return p, true, nil
		}
		return nil, false, ckpt.Errorf(ckpt.CodeConflict, "prompt %s already has a different answer, given at %s", a.ID, p.AnsweredAt)
	case ckpt.PromptExpired:
		return nil, false, ckpt.Errorf(ckpt.CodeConflict, "prompt %s expired at %s: no agent waits for the answer", a.ID, p.ExpiresAt)
	case ckpt.PromptWithdrawn:
		return nil, false, withdrawn(p)
	}
	err = tx.Fill(`UPDATE prompts SET answer = ?, data = ?, answered_at = ?, answered_by = ?, answered_seq = ? WHERE id = ?`,
		ckpt.Ref(a.Choice), a.Data, tx.Now, sc.Caller.Owner, run.LastSeq, a.ID)
	if err != nil {
		return nil, false, err
	}
	tx.OnCommit(s.prompts.Tell)
	if err := tx.Audit(e); err != nil {
		return nil, false, err
	}
	p, err = readPrompt(tx, a.ID)
	return p, false, err
}

// maxAuditData is the most bytes of an answer's data that are stored whole beside the audit log.
const maxAuditData = 4 << 10

// answerDetail is what the audit log records of an answer.
func answerDetail(a *ckpt.PromptAnswer) map[string]any {
	detail := map[string]any{"choice": a.Choice}
	switch {
	case len(a.Data) == 0:
	case len(a.Data) <= maxAuditData:
		detail["data"] = a.Data
	default:
		sum := sha256.Sum256(a.Data)
		detail["data_bytes"], detail["data_sha256"] = len(a.Data), hex.EncodeToString(sum[:])
	}
	return detail
}

// Prompt reads one prompt.
func (s *Store) Prompt(ctx context.Context, sc ckpt.Scope, id string) (*ckpt.Prompt, error) {
	if err := ckpt.CheckID(id); err != nil {
		return nil, err
	}
	p, err := s.findPrompt(ctx, sc, id)
	if err != nil {
		return nil, err
	}
	if p.Owner != sc.Caller.Owner {
		sc.Target = p.Owner
		s.AuditRead(sc, "read_prompt", p.Agent, "")
	}
	return p, nil
}

// PromptsChanged is closed when the next answer or withdrawal is on disk. Get it before you read
// prompts, so that you miss no change.
func (s *Store) PromptsChanged() <-chan struct{} { return s.prompts.Wait() }
