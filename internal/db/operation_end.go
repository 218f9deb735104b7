package db

import (
	"context"
	"fmt"
	"strings"

	"github.com/google/uuid"

	ckpt "github.com/ckptsidecar/ckptsidecar"
	"github.com/ckptsidecar/ckptsidecar/internal/db/driftlog"
	"github.com/ckptsidecar/ckptsidecar/internal/db/ledger"
	"github.com/ckptsidecar/ckptsidecar/internal/db/sqlite"
	"github.com/ckptsidecar/ckptsidecar/internal/wellformed"
)

// EndOperation records what the code that began an operation says about its end: it succeeded, it failed (it is known
// not to have happened), or nobody knows. A success releases the pre_operation checkpoints that no other attempt needs. A
// failure returns the checkpoint to go back to, with its state.
func (s *Store) EndOperation(_ context.Context, sc ckpt.Scope, ref ckpt.RunRef, r ckpt.OperationEnd) (*ckpt.OperationEnded, bool, error) {
	if err := ref.Check(); err != nil {
		return nil, false, err
	}
	if err := wellformed.OperationEnd(&r); err != nil {
		return nil, false, err
	}
	c := s.Screen(sc, ref.Agent, "operation")
	c.JSON("result", &r.Result)
	c.Ref("error", &r.Error)
	if c.Again(func() error { return wellformed.OperationEnd(&r) }); c.Err != nil {
		return nil, false, c.Err
	}
	ref.Epoch = r.Epoch
	e := ledger.Entry(sc, "end_operation", ref.Agent)
	e.Run, e.Subject = ledger.RunName(ref.Run), r.Key
	ended, replayed, err := driftlog.Keyed(s.Drifts, sc, driftlog.KeyedRequest{
		Agent: ref.Agent, Key: r.IdempotencyKey, Print: r, Size: int64(len(r.Result) + len(r.Error)), Entry: e,
		Claim: sqlite.Frees, Secrets: c.Found,
	}, func(tx *ledger.Tx, agent *ledger.AgentRow) (*ckpt.OperationEnded, error) {
		return s.endOperation(tx, sc, agent, ref, r, e)
	})
	return s.endedAgain(sc, ended, replayed, err)
}

// endedAgain adds the state to a replayed answer, because the state was not kept with the key.
func (s *Store) endedAgain(sc ckpt.Scope, ended *ckpt.OperationEnded, replayed bool, err error) (*ckpt.OperationEnded, bool, error) {
	if replayed && ended.Status == ckpt.OperationFailed && ended.Checkpoint != "" {
		ended.Restore, err = s.again(sc, string(ended.Checkpoint))
	}
	return ended, replayed, err
}

// again loads a checkpoint that the first reply carried. The reply stays valid if the checkpoint
// has been removed since or is damaged; the result is then nil.
func (s *Store) again(sc ckpt.Scope, id string) (*ckpt.Checkpoint, error) {
	c, err := s.Checkpoint(context.Background(), sc, id, true)
	if code := ckpt.CodeOf(err); code == ckpt.CodeNotFound || code == ckpt.CodeCorrupt {
		return nil, nil
	}
	return c, err
}

func (s *Store) endOperation(tx *ledger.Tx, sc ckpt.Scope, agent *ledger.AgentRow, ref ckpt.RunRef,
	r ckpt.OperationEnd, e ledger.AuditEntry) (*ckpt.OperationEnded, error) {
	run, err := s.needRun(tx, sc, ref)
	if err != nil {
		return nil, err
	}
	tx.Touches(run)
	o, err := findOperation(tx, run.ID, `o.key = ?2 AND (?3 = 0 OR o.attempt = ?3) ORDER BY o.attempt DESC`, r.Key, r.Attempt)
	if err != nil {
		return nil, err
	}
	if err := mayEnd(tx, sc, agent, run, o, r); err != nil {
		return nil, err
	}
	switch {
	case o.Status == r.Status && r.Status == ckpt.OperationUncertain:
		err = s.stillUncertain(tx, agent, run, o, string(r.Error), e)
	case o.Status == r.Status:
		err = tx.Audit(e)
	case r.Status == ckpt.OperationUncertain:
		if err = s.becomeUncertain(tx, agent, run, o, r.Error); err == nil {
			e.Detail = map[string]any{"name": o.Name, "status": r.Status, "attempt": o.Attempt, "was": ckpt.OperationOpen, "error": r.Error}
			err = tx.Audit(e)
		}
	case o.Status == ckpt.OperationUncertain: // the code learned late how it ended
		choice := ckpt.ChoiceItDid
		if r.Status == ckpt.OperationFailed {
			choice = ckpt.ChoiceItDidNot
		}
		err = s.resolve(tx, agent, run, o, ckpt.OperationResolution{Key: r.Key, Choice: choice, Result: r.Result}, ckpt.ResolvedByOwner, resolveEntry(e, string(r.Error)))
	default:
		o.Status, o.Result, o.Error, o.EndedAt = r.Status, r.Result, r.Error, tx.Now
		err = tx.Fill(`UPDATE operations SET status = ?, ended_at = ?, result = ?, error = ? WHERE id = ?`, string(r.Status), tx.Now, r.Result, r.Error, o.ID)
		if err == nil {
			e.Detail = map[string]any{"name": o.Name, "status": r.Status, "attempt": o.Attempt, "was": ckpt.OperationOpen}
			err = tx.Audit(e)
		}
	}
	if err == nil {
		err = tx.SignOfLife(run)
	}
	if err != nil {
		return nil, err
	}
	return s.ended(tx, agent, run, o, e)
}

// ended is the answer about an attempt that has just ended.
func (s *Store) ended(tx *ledger.Tx, agent *ledger.AgentRow, run *ledger.RunRow, o *operationRow, e ledger.AuditEntry) (*ckpt.OperationEnded, error) {
	o, err := findOperation(tx, run.ID, `o.id = ?`, o.ID)
	if err != nil {
		return nil, err
	}
	ended := &ckpt.OperationEnded{Operation: o.Operation, Released: []string{}}
	switch {
	case o.Status == ckpt.OperationSucceeded:
		ended.Released, err = s.RetainRun(tx, agent, run, e)
	case o.Status == ckpt.OperationFailed && o.Checkpoint != "":
		ended.Restore, err = tx.CheckpointOf(agent, ckpt.RestoreRequest{Agent: agent.Name, Checkpoint: string(o.Checkpoint)})
		if code := ckpt.CodeOf(err); code == ckpt.CodeNotFound || code == ckpt.CodeCorrupt { // the failure is recorded even so
			s.Log.Warn("the state before a failed operation cannot be given back", "checkpoint", o.Checkpoint, "error", err)
			err = nil
		}
	}
	return ended, err
}

// mayEnd refuses an end that does not fit. An uncertain attempt is ended only by code that names it: an end without an
// attempt may be meant for one that never began. An attempt that began in a spool has no number there: its end comes from the
// spool too, and later.
func mayEnd(tx *ledger.Tx, sc ckpt.Scope, agent *ledger.AgentRow, run *ledger.RunRow, o *operationRow, r ckpt.OperationEnd) error {
	switch {
	case o == nil && r.Attempt > 0:
		return ckpt.Errorf(ckpt.CodeNotFound, "run %s has no attempt %d of operation %s: begin it first", run.Name, r.Attempt, r.Key)
	case o == nil:
		return ckpt.Errorf(ckpt.CodeNotFound, "run %s has no operation %s: begin it first", run.Name, r.Key)
	case o.Status == ckpt.OperationUncertain && r.Status != o.Status && r.Attempt == 0 && !o.endsInSpool(sc):
		because := fmt.Sprintf("operation %s cannot end as %s without the number of its attempt", r.Key, r.Status)
		return ckpt.UncertainError(because, run.Name, &o.Operation, tx.Now, ckpt.ResolveCommand(agent.Name, run.Name, o.Key))
	case o.Status == r.Status, o.Unresolved():
		return nil
	case o.Status == ckpt.OperationSucceeded:
		return ckpt.Errorf(ckpt.CodeConflict, "operation %s already succeeded: to act again, begin one with another key", r.Key)
	}
	return ckpt.Errorf(ckpt.CodeConflict, "attempt %d of operation %s already %s: begin it again for another attempt", o.Attempt, r.Key, pastOf(o.Status))
}

// endsInSpool reports whether a write from a spool is about an attempt that began there.
func (o *operationRow) endsInSpool(sc ckpt.Scope) bool {
	return !o.SpooledAt.IsZero() && !sc.Spooled.Before(o.SpooledAt.Time)
}

func pastOf(status ckpt.OperationStatus) string {
	if status == ckpt.OperationSuperseded {
		return "was superseded"
	}
	return string(status)
}

// becomeUncertain records that nobody knows how an open attempt ended, and asks a person if no other way is declared.
func (s *Store) becomeUncertain(tx *ledger.Tx, agent *ledger.AgentRow, run *ledger.RunRow, o *operationRow, evidence ckpt.Ref) error {
	o.Status, o.EndedAt, o.Error = ckpt.OperationUncertain, tx.Now, evidence
	err := tx.Fill(`UPDATE operations SET status = 'uncertain', ended_at = ?, error = ? WHERE id = ?`, tx.Now, evidence, o.ID)
	if err != nil || o.Idempotent || o.SelfCheck {
		return err
	}
	return s.askAbout(tx, agent, run, &o.Operation)
}

// stillUncertain is for code that says again that it does not know: its check could not tell, so a person is asked.
func (s *Store) stillUncertain(tx *ledger.Tx, agent *ledger.AgentRow, run *ledger.RunRow, o *operationRow, evidence string, e ledger.AuditEntry) error {
	e.Detail = map[string]any{"name": o.Name, "status": o.Status, "attempt": o.Attempt, "was": o.Status, "error": evidence}
	if err := tx.Audit(e); err != nil {
		return err
	}
	if o.Error == "" && evidence != "" {
		if err := tx.Fill(`UPDATE operations SET error = ? WHERE id = ?`, evidence, o.ID); err != nil {
			return err
		}
	}
	if o.Idempotent || o.Prompt != "" {
		return nil
	}
	return s.askAbout(tx, agent, run, &o.Operation)
}

// askAbout puts the question about an uncertain attempt to a person. The text of the question is made when it is shown.
func (s *Store) askAbout(tx *ledger.Tx, agent *ledger.AgentRow, run *ledger.RunRow, o *ckpt.Operation) error {
	id, err := uuid.NewV7()
	if err != nil {
		return err
	}
	o.Prompt = ckpt.Ref(id.String())
	err = tx.Insert(`INSERT INTO prompts (id, run_id, at, question, reason, kind, operation, attempt, choices, asked_seq)
		VALUES (?, ?, ?, '', '', 'operation', ?, ?, ?, ?)`, id.String(), run.ID, tx.Now, o.Key, o.Attempt, ckpt.OperationChoices, run.LastSeq)
	if err != nil {
		return err
	}
	p, err := readPrompt(tx, id.String())
	if err != nil {
		return err
	}
	return s.tellOfPrompt(tx, p)
}

// askAboutAll puts the questions about the uncertain attempts of a run that have none yet and cannot be resolved
// without a person. It returns the prompt of the oldest attempt that needs a person, nil if there is none.
func (s *Store) askAboutAll(tx *ledger.Tx, agent *ledger.AgentRow, run *ledger.RunRow) (*ckpt.Prompt, error) {
	rows, err := unresolved(tx, run)
	if err != nil {
		return nil, err
	}
	first := ""
	for i := range rows {
		o := &rows[i].Operation
		if o.Status != ckpt.OperationUncertain || !o.NeedsPerson() {
			continue
		}
		if o.Prompt == "" {
			if err := s.askAbout(tx, agent, run, o); err != nil {
				return nil, err
			}
		}
		if first == "" {
			first = string(o.Prompt)
		}
	}
	if first == "" {
		return nil, nil
	}
	return readPrompt(tx, first)
}

// ResolveOperation records what became of an uncertain attempt. It and the answer to the question about the attempt are
// the same act. It needs no epoch, and the run may have ended.
func (s *Store) ResolveOperation(ctx context.Context, sc ckpt.Scope, ref ckpt.RunRef, r ckpt.OperationResolution) (*ckpt.OperationEnded, bool, error) {
	if err := ref.Check(); err != nil {
		return nil, false, err
	}
	if err := wellformed.OperationResolution(&r); err != nil {
		return nil, false, err
	}
	c := s.Screen(sc, ref.Agent, "operation")
	c.JSON("result", &r.Result)
	c.Text("reason", &r.Reason)
	if c.Again(func() error { return wellformed.OperationResolution(&r) }); c.Err != nil {
		return nil, false, c.Err
	}
	e := ledger.Entry(sc, "resolve_operation", ref.Agent)
	e.Run, e.Subject, e.Reason = ledger.RunName(ref.Run), r.Key, r.Reason
	if err := s.resultFits(ctx, sc, ref, r); err != nil {
		s.RefusedBefore(e, err)
		return nil, false, err
	}
	ended, replayed, err := driftlog.Keyed(s.Drifts, sc, driftlog.KeyedRequest{
		Agent: ref.Agent, Key: r.IdempotencyKey, Print: r, Size: int64(len(r.Result)), Entry: e, Claim: sqlite.Frees, Secrets: c.Found,
	}, func(tx *ledger.Tx, agent *ledger.AgentRow) (*ckpt.OperationEnded, error) {
		_, run, err := s.knownRun(tx, sc, ref)
		if err == nil {
			err = s.OwnedHere(run)
		}
		if err != nil {
			return nil, err
		}
		o, err := toResolve(tx, agent, run, r)
		if err != nil {
			return nil, err
		}
		if o.Status != ckpt.OperationUncertain { // the same answer again
			ended, err := s.ended(tx, agent, run, o, e)
			if err == nil {
				ended.Replayed, err = true, tx.Audit(e)
			}
			return ended, err
		}
		by := sc.Caller.Owner
		if r.ByCheck {
			by = ckpt.ResolvedByCheck
		}
		if err := s.resolve(tx, agent, run, o, r, by, e); err != nil {
			return nil, err
		}
		return s.ended(tx, agent, run, o, e)
	})
	return s.endedAgain(sc, ended, replayed, err)
}

// resultFits checks the result that a person gives against the schema of the operation, outside the transaction.
func (s *Store) resultFits(ctx context.Context, sc ckpt.Scope, ref ckpt.RunRef, r ckpt.OperationResolution) error {
	if r.Choice != ckpt.ChoiceItDid {
		return nil
	}
	agent, err := s.FindAgent(ctx, sc, ref.Agent)
	if err != nil {
		return err
	}
	var schema ckpt.JSON
	err = s.RO.GetContext(ctx, &schema, `SELECT o.result_schema`+operationTables+`WHERE r.agent_id = ? AND r.name = ? AND o.key = ?
		AND (o.attempt = ?4 OR ?4 = 0 AND o.status = 'uncertain') ORDER BY o.attempt DESC LIMIT 1`, agent.ID, ledger.RunName(ref.Run), r.Key, r.Attempt)
	if err != nil || schema == nil {
		if ledger.IsNoRows(err) { // the transaction says what is wrong
			err = nil
		}
		return sqlite.ReadError(err)
	}
	return s.resultFitsSchema(ctx, schema, r.Key, r.Result)
}

func (s *Store) resultFitsSchema(ctx context.Context, schema ckpt.JSON, key string, result ckpt.JSON) error {
	if len(result) == 0 {
		return ckpt.Errorf(ckpt.CodeInvalid, "operation %s has a result_schema, and its code needs a result: give the result as JSON with it_did", key)
	}
	return s.fits(ctx, schema, result)
}

// toResolve finds the attempt that a resolution is about.
func toResolve(tx *ledger.Tx, agent *ledger.AgentRow, run *ledger.RunRow, r ckpt.OperationResolution) (*operationRow, error) {
	o, err := findOperation(tx, run.ID, `o.key = ?2 AND (?3 = 0 OR o.attempt = ?3) ORDER BY o.status = 'uncertain' DESC, o.resolution IS NOT NULL DESC, o.attempt DESC`, r.Key, r.Attempt)
	switch {
	case err != nil:
		return nil, err
	case o == nil && r.Attempt > 0:
		return nil, ckpt.Errorf(ckpt.CodeNotFound, "run %s has no attempt %d of operation %s: list them with ckptsidecar operations %s",
			run.Name, r.Attempt, r.Key, agent.Name)
	case o == nil:
		var keys []string
		if err := tx.List(&keys, `SELECT DISTINCT key FROM operations WHERE run_id = ? AND status IN ('uncertain', 'open') ORDER BY status DESC, key LIMIT 10`, run.ID); err != nil {
			return nil, err
		}
		if len(keys) == 0 {
			return nil, ckpt.Errorf(ckpt.CodeNotFound, "run %s has no operation %s, and none that waits for an end", run.Name, r.Key)
		}
		return nil, ckpt.Errorf(ckpt.CodeNotFound, "run %s has no operation %s: the operations that wait for an end are %s", run.Name, r.Key, strings.Join(keys, ", "))
	case o.Status == ckpt.OperationUncertain, o.Resolution == ckpt.Ref(r.Choice):
		return o, nil
	case o.Status == ckpt.OperationOpen:
		return nil, ckpt.Errorf(ckpt.CodeConflict, "operation %s is open, and its code may still end it: "+
			"only an uncertain attempt can be resolved. If its process is gone, resume the run first", r.Key)
	case o.Resolution != "":
		return nil, ckpt.Errorf(ckpt.CodeConflict, "attempt %d of operation %s was already resolved as %s by %s, at %s: a resolution stays",
			o.Attempt, r.Key, o.Resolution, o.ResolvedBy, o.ResolvedAt)
	}
	return nil, ckpt.Errorf(ckpt.CodeConflict, "attempt %d of operation %s already %s: there is nothing to resolve", o.Attempt, r.Key, pastOf(o.Status))
}

// resolveEntry is the audit row of a resolution that is part of another act.
func resolveEntry(e ledger.AuditEntry, reason string) ledger.AuditEntry {
	e.Action, e.Reason = "resolve_operation", reason
	return e
}

// resolve ends the uncertainty about an attempt, closes the question about it, and writes the audit row.
func (s *Store) resolve(tx *ledger.Tx, agent *ledger.AgentRow, run *ledger.RunRow, o *operationRow, r ckpt.OperationResolution,
	by string, e ledger.AuditEntry) error {
	err := tx.Fill(`UPDATE operations SET status = ?, result = ?, resolution = ?, resolved_at = ?, resolved_by = ? WHERE id = ?`,
		string(r.Choice.Status()), r.Result, string(r.Choice), tx.Now, by, o.ID)
	if err != nil {
		return err
	}
	answered := by
	if by == ckpt.ResolvedByRepeat || by == ckpt.ResolvedByOwner || by == ckpt.ResolvedByCheck {
		answered = ledger.Daemon // no person answered: the question was withdrawn
	}
	choice := ckpt.Ref(r.Choice)
	if answered == ledger.Daemon {
		choice = ""
	}
	tx.OnCommit(s.prompts.Tell)
	err = tx.Fill(`UPDATE prompts SET choice = ?, data = ?, answered_at = ?, answered_by = ?, answered_seq = ?
		WHERE run_id = ? AND kind = 'operation' AND operation = ? AND attempt = ? AND answered_at IS NULL`,
		choice, r.Result, tx.Now, answered, run.LastSeq, run.ID, o.Key, o.Attempt)
	if err != nil {
		return err
	}
	e.Subject = o.Key
	e.Detail = map[string]any{"name": o.Name, "attempt": o.Attempt, "choice": r.Choice, "status": r.Choice.Status(), "was": ckpt.OperationUncertain, "by": by}
	if err := tx.Audit(e); err != nil {
		return err
	}
	return s.askNext(tx, agent, run)
}

// askNext asks how to go on with a run that nobody runs, if its last uncertain operation has just been resolved and
// something else still needs a person.
func (s *Store) askNext(tx *ledger.Tx, agent *ledger.AgentRow, run *ledger.RunRow) error {
	if s.Opt.Resume == nil || run.Status != ckpt.RunInterrupted && run.Status != ckpt.RunTimedOut {
		return nil
	}
	plan, err := s.plan(tx, ckpt.Scope{Caller: ckpt.Caller{Owner: agent.Owner}}, agent, run, ckpt.ResumeRequest{Agent: agent.Name, Run: run.Name, DryRun: true})
	if err != nil || plan.Verdict != ckpt.VerdictAsk {
		return err
	}
	_, err = s.openPrompt(tx, agent, run, plan)
	return err
}
