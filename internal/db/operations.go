package db

import (
	"context"

	ckpt "github.com/ckptsidecar/ckptsidecar"
	"github.com/ckptsidecar/ckptsidecar/internal/db/sqlite"
	"github.com/ckptsidecar/ckptsidecar/internal/wellformed"
)

// operationRow is an attempt of an operation as it is stored.
type operationRow struct {
	ckpt.Operation
	ID int64 `db:"id"`
}

const operationColumns = `id, key, name, attempt, status, checkpoint, started_at, ended_at, result, error`

// operation is the newest attempt of a key, nil where there is none.
func findOperation(tx *tx, runID int64, key string) (*operationRow, error) {
	var row operationRow
	found, err := tx.get(&row, `SELECT `+operationColumns+` FROM operations WHERE run_id = ? AND key = ? ORDER BY attempt DESC LIMIT 1`, runID, key)
	if err != nil || !found {
		return nil, err
	}
	return &row, nil
}

// uncertain is the newest uncertain attempt of an operation's key, and where
// there is none the newest attempt.
func findUncertain(tx *tx, runID int64, newest *operationRow) (*operationRow, error) {
	var row operationRow
	found, err := tx.get(&row, `SELECT `+operationColumns+` FROM operations WHERE run_id = ? AND key = ? AND status = 'uncertain' ORDER BY attempt DESC LIMIT 1`, runID, newest.Key)
	if err != nil || !found {
		return newest, err
	}
	return &row, nil
}

// BeginOperation begins something risky: the state to go back to is saved in
// the same transaction as the operation's row. A key that has succeeded is not
// begun again; any other begins its next attempt.
func (s *Store) BeginOperation(ctx context.Context, sc ckpt.Scope, ref ckpt.RunRef, r ckpt.OperationRequest) (*ckpt.Operation, bool, error) {
	if err := ref.Check(); err != nil {
		return nil, false, err
	}
	if err := wellformed.Operation(&r); err != nil {
		return nil, false, err
	}
	c := s.screen(sc, ref.Agent, "operation")
	c.key("key", r.Key)
	c.text("name", &r.Name)
	c.labels(&r.Labels)
	if c.err != nil {
		return nil, false, c.err
	}
	ref.Epoch = r.Epoch
	e := entry(sc, "begin_operation", ref.Agent)
	e.Run, e.Subject = runName(ref.Run), r.Key
	before, err := s.stateBefore(ctx, sc, ref, r)
	if err != nil {
		return nil, false, err
	}
	if before != nil {
		defer before.leave()
	}
	return keyed(s.drifts, sc, keyedRequest{agent: ref.Agent, key: r.IdempotencyKey, print: r, size: int64(len(r.State)), entry: e, make: true, drift: true, secrets: c.found}, func(tx *tx, _ *agentRow) (*ckpt.Operation, error) {
		agent, run, err := s.openRun(tx, sc, ref)
		if err != nil {
			return nil, err
		}
		old, err := findOperation(tx, run.ID, r.Key)
		if err != nil {
			return nil, err
		}
		if old != nil && old.Status == ckpt.OperationSucceeded {
			old.Replayed = true
			return &old.Operation, nil
		}
		return s.beginOperation(tx, agent, run, old, before, r, e)
	})
}

// stateBefore makes the pre_operation save ready, nil where no state was sent.
func (s *Store) stateBefore(ctx context.Context, sc ckpt.Scope, ref ckpt.RunRef, r ckpt.OperationRequest) (*save, error) {
	if len(r.State) == 0 {
		return nil, nil
	}
	v, err := s.newSave(ctx, sc, &ckpt.SaveRequest{Agent: ref.Agent, Run: ref.Run, Kind: ckpt.KindPreOperation, Labels: r.Labels, ContentType: ckpt.ContentTypeJSON, State: r.State})
	if err == nil {
		v.operation = ckpt.Ref(r.Key)
	}
	return v, err
}

func (s *Store) beginOperation(tx *tx, agent *agentRow, run *runRow, old *operationRow, before *save, r ckpt.OperationRequest, e auditEntry) (*ckpt.Operation, error) {
	if before == nil {
		var err error
		if before, err = s.newestAsBefore(tx, agent, run, r, e); err != nil {
			return nil, err
		}
	}
	o := ckpt.Operation{Key: r.Key, Name: r.Name, Attempt: 1, Status: ckpt.OperationOpen, StartedAt: tx.now}
	if before != nil {
		if err := s.admit(tx, before); err != nil {
			return nil, err
		}
	}
	if old != nil {
		o.Attempt = old.Attempt + 1
		if err := tx.exec(`UPDATE operations SET status = 'uncertain', ended_at = ? WHERE id = ? AND status = 'open'`, tx.now, old.ID); err != nil {
			return nil, err
		}
	}
	if before != nil {
		reply, err := s.insertCheckpoint(tx, before, agent, run)
		if err != nil {
			return nil, err
		}
		o.Checkpoint = ckpt.Ref(reply.ID)
	}
	err := tx.exec(`INSERT INTO operations (run_id, key, attempt, name, status, checkpoint, started_at) VALUES (?, ?, ?, ?, ?, ?, ?)`,
		run.ID, o.Key, o.Attempt, o.Name, string(o.Status), o.Checkpoint, o.StartedAt)
	if err != nil {
		return nil, err
	}
	e.Detail = map[string]any{"name": o.Name, "attempt": o.Attempt, "checkpoint": o.Checkpoint}
	if err := tx.audit(e); err != nil {
		return nil, err
	}
	return &o, tx.signOfLife(run)
}

// newestAsBefore takes the run's newest state for the one to go back to, where
// the operation brought none. A run that has none begins without.
func (s *Store) newestAsBefore(tx *tx, agent *agentRow, run *runRow, r ckpt.OperationRequest, e auditEntry) (*save, error) {
	if run.Head == "" {
		return nil, nil
	}
	c, err := tx.checkpointOf(agent, ckpt.RestoreRequest{Agent: agent.Name, Checkpoint: string(run.Head)})
	if err != nil {
		if ckpt.CodeOf(err) == ckpt.CodeNotFound {
			return nil, nil // it was deleted by hand
		}
		return nil, err
	}
	again, err := tx.encodeAgain(run, c)
	if err != nil {
		return nil, err
	}
	v := &save{watchedSave: watchedSave{request: &ckpt.SaveRequest{Agent: agent.Name, Run: run.Name, Kind: ckpt.KindPreOperation, Labels: r.Labels, Metadata: c.Metadata,
		Program: c.Program, ContentType: c.ContentType, State: c.State}}, state: again, entry: e, operation: ckpt.Ref(r.Key)}
	v.entry.Action = "save"
	v.scope.Target = agent.Owner
	return v, v.encodeProgram()
}

// EndOperation ends an operation. Success lets go of the pre_operation
// checkpoints of all its attempts, in this transaction; failure answers the one
// to go back to, with its state.
func (s *Store) EndOperation(_ context.Context, sc ckpt.Scope, ref ckpt.RunRef, r ckpt.OperationEnd) (*ckpt.OperationEnded, bool, error) {
	if err := ref.Check(); err != nil {
		return nil, false, err
	}
	if err := wellformed.OperationEnd(&r); err != nil {
		return nil, false, err
	}
	c := s.screen(sc, ref.Agent, "operation")
	c.json("result", &r.Result)
	c.ref("error", &r.Error)
	c.text("reason", &r.Reason)
	if c.err != nil {
		return nil, false, c.err
	}
	action := "end_operation"
	if r.Resolve {
		action = "resolve_operation"
	}
	ref.Epoch = r.Epoch
	e := entry(sc, action, ref.Agent)
	e.Run, e.Subject, e.Reason = runName(ref.Run), r.Key, r.Reason
	ended, replayed, err := keyed(s.drifts, sc, keyedRequest{agent: ref.Agent, key: r.IdempotencyKey, print: r, size: int64(len(r.Result) + len(r.Error)), entry: e, claim: sqlite.Frees, secrets: c.found}, func(tx *tx, agent *agentRow) (*ckpt.OperationEnded, error) {
		return s.endOperation(tx, sc, agent, ref, r, e)
	})
	if replayed && ended.Status == ckpt.OperationFailed && ended.Checkpoint != "" { // the state was not kept with the key
		ended.Restore, err = s.again(sc, string(ended.Checkpoint))
	}
	return ended, replayed, err
}

// again loads a checkpoint that a first reply carried. That it has gone since, or
// is damaged, does not undo the reply.
func (s *Store) again(sc ckpt.Scope, id string) (*ckpt.Checkpoint, error) {
	c, err := s.Checkpoint(context.Background(), sc, id, true)
	if code := ckpt.CodeOf(err); code == ckpt.CodeNotFound || code == ckpt.CodeCorrupt {
		return nil, nil
	}
	return c, err
}

func (s *Store) endOperation(tx *tx, sc ckpt.Scope, agent *agentRow, ref ckpt.RunRef, r ckpt.OperationEnd, e auditEntry) (*ckpt.OperationEnded, error) {
	run, err := s.runToEnd(tx, sc, ref, r)
	if err != nil {
		return nil, err
	}
	o, err := findOperation(tx, run.ID, r.Key)
	if err == nil && r.Resolve && o != nil {
		o, err = findUncertain(tx, run.ID, o)
	}
	if err != nil {
		return nil, err
	}
	if err := mayEnd(run, o, r); err != nil {
		return nil, err
	}
	ended := &ckpt.OperationEnded{Operation: o.Operation, Released: []string{}}
	if o.Status == r.Status {
		ended.Replayed = true
		return ended, tx.audit(e)
	}
	ended.Status, ended.Result, ended.Error, ended.EndedAt = r.Status, r.Result, r.Error, tx.now
	err = tx.exec(`UPDATE operations SET status = ?, ended_at = ?, result = ?, error = ? WHERE id = ?`, string(r.Status), tx.now, r.Result, r.Error, o.ID)
	if err != nil {
		return nil, err
	}
	e.Detail = map[string]any{"name": o.Name, "status": r.Status, "attempt": o.Attempt, "was": o.Status}
	if err := tx.audit(e); err != nil {
		return nil, err
	}
	if !r.Resolve { // an operator's word is no sign of the owner's life
		if err := tx.signOfLife(run); err != nil {
			return nil, err
		}
	}
	if r.Status == ckpt.OperationSucceeded {
		err = tx.exec(`UPDATE operations SET status = 'failed', ended_at = ? WHERE run_id = ? AND key = ? AND attempt < ? AND status IN ('open', 'uncertain')`, tx.now, run.ID, o.Key, o.Attempt)
		if err == nil {
			ended.Released, err = s.retainRun(tx, agent, run, e)
		}
		return ended, err
	}
	if o.Checkpoint != "" {
		ended.Restore, err = tx.checkpointOf(agent, ckpt.RestoreRequest{Agent: agent.Name, Checkpoint: string(o.Checkpoint)})
		if code := ckpt.CodeOf(err); code == ckpt.CodeNotFound || code == ckpt.CodeCorrupt { // the failure is recorded all the same
			s.log.Warn("the state before a failed operation cannot be given back", "checkpoint", o.Checkpoint, "error", err)
			err = nil
		}
	}
	return ended, err
}

// runToEnd is the run of an operation. To resolve one, an operator needs no
// epoch, and the run may be over.
func (s *Store) runToEnd(tx *tx, sc ckpt.Scope, ref ckpt.RunRef, r ckpt.OperationEnd) (*runRow, error) {
	if r.Resolve {
		_, run, err := s.knownRun(tx, sc, ref)
		return run, err
	}
	return s.needRun(tx, sc, ref)
}

func mayEnd(run *runRow, o *operationRow, r ckpt.OperationEnd) error {
	switch {
	case o == nil:
		return ckpt.Errorf(ckpt.CodeNotFound, "run %s has no operation %s: begin it first", run.Name, r.Key)
	case o.Status == r.Status, o.Status == ckpt.OperationUncertain, o.Status == ckpt.OperationOpen && !r.Resolve:
		return nil
	case o.Status == ckpt.OperationOpen:
		return ckpt.Errorf(ckpt.CodeConflict, "operation %s is open and its owner may still end it: only an uncertain one is resolved", r.Key)
	}
	return ckpt.Errorf(ckpt.CodeConflict, "operation %s has already %s: begin it again for another attempt", r.Key, o.Status)
}

// Operations lists a run's operations, newest first.
func (s *Store) Operations(ctx context.Context, sc ckpt.Scope, ref ckpt.RunRef, f ckpt.ListFilter) (*ckpt.OperationPage, error) {
	if err := ckpt.CheckStatus("operation", ckpt.OperationStatus(f.Status), ckpt.OperationStatuses); err != nil {
		return nil, err
	}
	run, before, limit, err := s.listOf(ctx, sc, ref, f, "read_operations")
	if err != nil {
		return nil, err
	}
	if before == 0 {
		before = 1 << 62
	}
	var rows []operationRow
	err = s.ro.SelectContext(ctx, &rows, `SELECT `+operationColumns+` FROM operations WHERE run_id = ? AND id < ? AND (? = '' OR status = ?) ORDER BY id DESC LIMIT ?`,
		run.ID, before, f.Status, f.Status, limit+1)
	page := &ckpt.OperationPage{Operations: []ckpt.Operation{}}
	for i := range rows[:min(limit, len(rows))] {
		page.Operations = append(page.Operations, rows[i].Operation)
	}
	if len(rows) > limit {
		page.Next = writeCursor(rows[limit-1].ID)
	}
	return page, sqlite.ReadError(err)
}
