package db

import (
	"context"

	ckpt "github.com/ckptsidecar/ckptsidecar"
	"github.com/ckptsidecar/ckptsidecar/internal/db/blob"
	"github.com/ckptsidecar/ckptsidecar/internal/db/driftlog"
	"github.com/ckptsidecar/ckptsidecar/internal/db/ledger"
	"github.com/ckptsidecar/ckptsidecar/internal/db/saves"
	"github.com/ckptsidecar/ckptsidecar/internal/db/sqlite"
	"github.com/ckptsidecar/ckptsidecar/internal/wellformed"
)

// operationRow is a stored attempt of an operation.
type operationRow struct {
	ckpt.Operation
	ID int64 `db:"id"`
}

const operationColumns = `id, key, name, attempt, status, checkpoint, started_at, ended_at, result, error`

// Which attempt of a key counts. A person may have resolved an early attempt as succeeded after a
// later one failed.
const (
	newestAttempt    = `attempt DESC`
	doneAttempt      = `status = 'succeeded' DESC, attempt DESC`
	uncertainAttempt = `status = 'uncertain' DESC, status = 'succeeded' DESC, attempt DESC`
)

// findOperation returns the first attempt of a key in an order, nil if there is none.
func findOperation(tx *ledger.Tx, runID int64, key, order string) (*operationRow, error) {
	var row operationRow
	found, err := tx.Get(&row, `SELECT `+operationColumns+` FROM operations WHERE run_id = ? AND key = ? ORDER BY `+order+` LIMIT 1`, runID, key)
	if err != nil || !found {
		return nil, err
	}
	return &row, nil
}

// BeginOperation begins a risky action. It saves the state to go back to in the same transaction as
// the operation's row. If the key has succeeded, it begins nothing; otherwise it begins the next
// attempt.
func (s *Store) BeginOperation(ctx context.Context, sc ckpt.Scope, ref ckpt.RunRef, r ckpt.OperationRequest) (*ckpt.Operation, bool, error) {
	if err := ref.Check(); err != nil {
		return nil, false, err
	}
	if err := wellformed.Operation(&r); err != nil {
		return nil, false, err
	}
	c := s.Screen(sc, ref.Agent, "operation")
	c.Key("key", r.Key)
	c.Text("name", &r.Name)
	c.Labels(&r.Labels)
	if c.Again(func() error { return wellformed.Operation(&r) }); c.Err != nil {
		return nil, false, c.Err
	}
	ref.Epoch = r.Epoch
	e := ledger.Entry(sc, "begin_operation", ref.Agent)
	e.Run, e.Subject = ledger.RunName(ref.Run), r.Key
	before, err := s.stateBefore(ctx, sc, ref, r)
	if err != nil {
		return nil, false, err
	}
	if before != nil {
		defer before.Leave()
	}
	return driftlog.Keyed(s.Drifts, sc, driftlog.KeyedRequest{
		Agent: ref.Agent, Key: r.IdempotencyKey, Print: r, Size: int64(len(r.State)), Entry: e, Make: true,
		Drift: true, Secrets: c.Found,
	}, func(tx *ledger.Tx, _ *ledger.AgentRow) (*ckpt.Operation, error) {
		agent, run, err := s.OpenRun(tx, sc, ref)
		if err != nil {
			return nil, err
		}
		tx.Touches(run)
		old, err := findOperation(tx, run.ID, r.Key, doneAttempt)
		if err != nil {
			return nil, err
		}
		if old != nil && old.Status == ckpt.OperationSucceeded {
			old.Replayed = true
			return &old.Operation, nil
		}
		if err := s.MayAddToFleet(agent.Owner, agent.Name); err != nil {
			return nil, err
		}
		return s.beginOperation(tx, agent, run, old, before, r, e)
	})
}

// stateBefore prepares the pre_operation save. It returns nil if no state was sent.
func (s *Store) stateBefore(ctx context.Context, sc ckpt.Scope, ref ckpt.RunRef, r ckpt.OperationRequest) (*saves.Save, error) {
	if len(r.State) == 0 {
		return nil, nil
	}
	v, err := s.NewSave(ctx, sc, &ckpt.SaveRequest{
		Agent: ref.Agent, Run: ref.Run, Kind: ckpt.KindPreOperation, Labels: r.Labels,
		ContentType: ckpt.ContentTypeJSON, State: r.State,
	})
	if err == nil {
		v.Operation = ckpt.Ref(r.Key)
	}
	return v, err
}

func (s *Store) beginOperation(tx *ledger.Tx, agent *ledger.AgentRow, run *ledger.RunRow, old *operationRow,
	before *saves.Save, r ckpt.OperationRequest, e ledger.AuditEntry) (*ckpt.Operation, error) {
	if before == nil {
		var err error
		if before, err = s.newestAsBefore(tx, agent, run, r, e); err != nil {
			return nil, err
		}
	}
	o := ckpt.Operation{Key: r.Key, Name: r.Name, Attempt: 1, Status: ckpt.OperationOpen, StartedAt: tx.Now}
	if before != nil {
		if err := s.Admit(tx, before, nil); err != nil {
			return nil, err
		}
	}
	if old != nil {
		o.Attempt = old.Attempt + 1
		if err := tx.Exec(`UPDATE operations SET status = 'uncertain', ended_at = ? WHERE id = ? AND status = 'open'`, tx.Now, old.ID); err != nil {
			return nil, err
		}
	}
	if before != nil {
		reply, err := s.InsertCheckpoint(tx, before, agent, run)
		if err != nil {
			return nil, err
		}
		o.Checkpoint = ckpt.Ref(reply.ID)
	}
	err := tx.Exec(`INSERT INTO operations (run_id, key, attempt, name, status, checkpoint, started_at) VALUES (?, ?, ?, ?, ?, ?, ?)`,
		run.ID, o.Key, o.Attempt, o.Name, string(o.Status), o.Checkpoint, o.StartedAt)
	if err != nil {
		return nil, err
	}
	e.Detail = map[string]any{"name": o.Name, "attempt": o.Attempt, "checkpoint": o.Checkpoint}
	if err := tx.Audit(e); err != nil {
		return nil, err
	}
	return &o, tx.SignOfLife(run)
}

// newestAsBefore takes the run's newest state as the state to go back to, if the operation brought
// no state. It returns nil if the run has no state; the operation then begins without one.
func (s *Store) newestAsBefore(tx *ledger.Tx, agent *ledger.AgentRow, run *ledger.RunRow, r ckpt.OperationRequest,
	e ledger.AuditEntry) (*saves.Save, error) {
	if run.Head == "" {
		return nil, nil
	}
	c, err := tx.CheckpointOf(agent, ckpt.RestoreRequest{Agent: agent.Name, Checkpoint: string(run.Head)})
	if err != nil {
		if ckpt.CodeOf(err) == ckpt.CodeNotFound {
			return nil, nil // it was deleted by hand
		}
		return nil, err
	}
	again, err := blob.Again(tx.Tx, run.ID, c)
	if err != nil {
		return nil, err
	}
	request := &ckpt.SaveRequest{
		Agent: agent.Name, Run: run.Name, Kind: ckpt.KindPreOperation, Labels: r.Labels,
		Metadata: c.Metadata, Program: c.Program, ContentType: c.ContentType, State: c.State,
	}
	v := &saves.Save{
		WatchedSave: driftlog.WatchedSave{Request: request},
		State:       again, Entry: e, Operation: ckpt.Ref(r.Key),
	}
	v.Entry.Action = "save"
	v.Scope.Target = agent.Owner
	return v, v.EncodeProgram()
}

// EndOperation ends an operation. After a success, it releases the pre_operation checkpoints of all
// attempts in the same transaction. After a failure, it returns the checkpoint to go back to, with
// its state.
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
	c.Text("reason", &r.Reason)
	if c.Again(func() error { return wellformed.OperationEnd(&r) }); c.Err != nil {
		return nil, false, c.Err
	}
	action := "end_operation"
	if r.Resolve {
		action = "resolve_operation"
	}
	ref.Epoch = r.Epoch
	e := ledger.Entry(sc, action, ref.Agent)
	e.Run, e.Subject, e.Reason = ledger.RunName(ref.Run), r.Key, r.Reason
	ended, replayed, err := driftlog.Keyed(s.Drifts, sc, driftlog.KeyedRequest{
		Agent: ref.Agent, Key: r.IdempotencyKey, Print: r, Size: int64(len(r.Result) + len(r.Error)), Entry: e,
		Claim: sqlite.Frees, Secrets: c.Found,
	}, func(tx *ledger.Tx, agent *ledger.AgentRow) (*ckpt.OperationEnded, error) {
		return s.endOperation(tx, sc, agent, ref, r, e)
	})
	if replayed && ended.Status == ckpt.OperationFailed && ended.Checkpoint != "" { // the state was not kept with the key
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
	run, err := s.runToEnd(tx, sc, ref, r)
	if err != nil {
		return nil, err
	}
	tx.Touches(run)
	which := newestAttempt
	if r.Resolve {
		which = uncertainAttempt
	}
	o, err := findOperation(tx, run.ID, r.Key, which)
	if err != nil {
		return nil, err
	}
	if err := mayEnd(run, o, r); err != nil {
		return nil, err
	}
	ended := &ckpt.OperationEnded{Operation: o.Operation, Released: []string{}}
	if o.Status == r.Status {
		ended.Replayed = true
		return ended, tx.Audit(e)
	}
	ended.Status, ended.Result, ended.Error, ended.EndedAt = r.Status, r.Result, r.Error, tx.Now
	err = tx.Exec(`UPDATE operations SET status = ?, ended_at = ?, result = ?, error = ? WHERE id = ?`,
		string(r.Status), tx.Now, r.Result, r.Error, o.ID)
	if err != nil {
		return nil, err
	}
	e.Detail = map[string]any{"name": o.Name, "status": r.Status, "attempt": o.Attempt, "was": o.Status}
	if err := tx.Audit(e); err != nil {
		return nil, err
	}
	if !r.Resolve { // an operator's decision does not show that the owner is alive
		if err := tx.SignOfLife(run); err != nil {
			return nil, err
		}
	}
	if r.Status == ckpt.OperationSucceeded {
		err = tx.Exec(`UPDATE operations SET status = 'failed', ended_at = ?
			WHERE run_id = ? AND key = ? AND attempt < ? AND status IN ('open', 'uncertain')`, tx.Now, run.ID, o.Key, o.Attempt)
		if err == nil {
			ended.Released, err = s.RetainRun(tx, agent, run, e)
		}
		return ended, err
	}
	if o.Checkpoint != "" {
		ended.Restore, err = tx.CheckpointOf(agent, ckpt.RestoreRequest{Agent: agent.Name, Checkpoint: string(o.Checkpoint)})
		if code := ckpt.CodeOf(err); code == ckpt.CodeNotFound || code == ckpt.CodeCorrupt { // the failure is recorded even so
			s.Log.Warn("the state before a failed operation cannot be given back", "checkpoint", o.Checkpoint, "error", err)
			err = nil
		}
	}
	return ended, err
}

// runToEnd is the run of an operation. To resolve an operation, an operator needs no epoch, and the
// run may have ended.
func (s *Store) runToEnd(tx *ledger.Tx, sc ckpt.Scope, ref ckpt.RunRef, r ckpt.OperationEnd) (*ledger.RunRow, error) {
	if r.Resolve {
		_, run, err := s.knownRun(tx, sc, ref)
		if err == nil {
			err = s.OwnedHere(run)
		}
		return run, err
	}
	return s.needRun(tx, sc, ref)
}

func mayEnd(run *ledger.RunRow, o *operationRow, r ckpt.OperationEnd) error {
	switch {
	case o == nil:
		return ckpt.Errorf(ckpt.CodeNotFound, "run %s has no operation %s: begin it first", run.Name, r.Key)
	case o.Status == r.Status, o.Status == ckpt.OperationUncertain, o.Status == ckpt.OperationOpen && !r.Resolve:
		return nil
	case o.Status == ckpt.OperationOpen:
		return ckpt.Errorf(ckpt.CodeConflict, "operation %s is open, and its owner may still end it: "+
			"only uncertain operations can be resolved. If its owner is gone, resume the run first", r.Key)
	case o.Status == ckpt.OperationSucceeded:
		return ckpt.Errorf(ckpt.CodeConflict, "operation %s already succeeded: to act again, begin one with another key", r.Key)
	}
	return ckpt.Errorf(ckpt.CodeConflict, "operation %s already %s: begin it again for another attempt", r.Key, o.Status)
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
	err = s.RO.SelectContext(ctx, &rows, `SELECT `+operationColumns+` FROM operations WHERE id IN (
		SELECT id FROM operations WHERE run_id = ?1 AND id < ?2 AND (?3 = '' OR status = ?3) ORDER BY id DESC LIMIT 0 + ?4) ORDER BY id DESC`,
		run.ID, before, f.Status, limit+1)
	page := &ckpt.OperationPage{Operations: []ckpt.Operation{}}
	for i := range rows[:min(limit, len(rows))] {
		page.Operations = append(page.Operations, rows[i].Operation)
	}
	if len(rows) > limit {
		page.Next = s.Numbers(sc).WriteCursor(rows[limit-1].ID)
	}
	return page, sqlite.ReadError(err)
}
