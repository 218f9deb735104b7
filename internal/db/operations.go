package db

import (
	"context"
	"slices"

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
	ID  int64  `db:"id"`
	Run string `db:"run"`

	SpooledAt ckpt.Time `db:"spooled_at"`
}

const (
	operationColumns = `o.id, o.key, o.name, o.attempt, o.status, o.args, o.idempotent, o.self_check, o.result_schema, o.checkpoint, o.started_at, o.ended_at,
		o.result, o.error, o.resolution, o.resolved_at, o.resolved_by, o.left_uncertain, o.spooled_at, r.name AS run,
		(SELECT p.id FROM prompts p WHERE p.run_id = o.run_id AND p.kind = 'operation' AND p.operation = o.key AND p.attempt = o.attempt
			AND p.answered_at IS NULL) AS prompt`
	operationTables = ` FROM operations o JOIN runs r ON r.id = o.run_id `
	isUnresolved    = `o.status IN ('open', 'uncertain')`
)

// findOperation returns the first attempt of a run that meets a condition, nil if there is none.
func findOperation(tx *ledger.Tx, runID int64, condition string, args ...any) (*operationRow, error) {
	var row operationRow
	found, err := tx.Get(&row, `SELECT `+operationColumns+operationTables+`WHERE o.run_id = ? AND `+condition+` LIMIT 1`, append([]any{runID}, args...)...)
	if err != nil || !found {
		return nil, err
	}
	return &row, nil
}

// unresolved returns the attempts of a run whose end nobody knows, oldest first.
func unresolved(tx *ledger.Tx, run *ledger.RunRow) (rows []operationRow, err error) {
	return rows, tx.List(&rows, `SELECT `+operationColumns+operationTables+`WHERE o.run_id = ? AND `+isUnresolved+` ORDER BY o.id`, run.ID)
}

// unresolvedOf returns the attempts of a key whose end nobody knows, of all lives of a run, oldest first.
func unresolvedOf(tx *ledger.Tx, run *ledger.RunRow, key string) (rows []operationRow, err error) {
	return rows, tx.List(&rows, `SELECT `+operationColumns+operationTables+`WHERE o.run_id IN (SELECT id FROM runs WHERE agent_id = ?1 AND `+ledger.LivesOf+`)
		AND o.key = ?3 AND `+isUnresolved+` ORDER BY o.id`, run.AgentID, ckpt.BaseRun(run.Name), key)
}

// mayLeave refuses to end a run, or to begin it anew, while nobody knows how an operation of it ends. If the request
// leaves the operations uncertain, it marks them, and the audit row of the act names them.
func mayLeave(tx *ledger.Tx, agent string, run *ledger.RunRow, leave bool, because string, e *ledger.AuditEntry) error {
	rows, err := unresolved(tx, run)
	if err != nil {
		return err
	}
	rows = slices.DeleteFunc(rows, func(o operationRow) bool { return o.Left })
	if len(rows) == 0 {
		return nil
	}
	if !leave {
		o := &rows[0]
		return ckpt.UncertainError(because, run.Name, &o.Operation, tx.Now, ckpt.ResolveCommand(agent, run.Name, o.Key))
	}
	if e.Detail == nil {
		e.Detail = map[string]any{}
	}
	e.Detail["left_uncertain"] = named(rows)
	return tx.Fill(`UPDATE operations AS o SET left_uncertain = 1 WHERE run_id = ? AND `+isUnresolved, run.ID)
}

// named is what an audit row says of attempts.
func named(rows []operationRow) []ckpt.RemovedOperation {
	list := make([]ckpt.RemovedOperation, len(rows))
	for i := range rows {
		list[i] = ckpt.RemovedOperation{Key: rows[i].Key, Name: rows[i].Name, Attempt: rows[i].Attempt, Status: rows[i].Status}
	}
	return list
}

// BeginOperation begins an attempt of an operation. It saves the state to go back to in the same transaction as the
// attempt's row. If the key has succeeded, it begins nothing. While nobody knows how an earlier attempt ended, it is
// refused, unless both attempts are idempotent.
func (s *Store) BeginOperation(ctx context.Context, sc ckpt.Scope, ref ckpt.RunRef, r ckpt.OperationRequest) (*ckpt.Operation, bool, error) {
	if err := ref.Check(); err != nil {
		return nil, false, err
	}
	if err := wellformed.Operation(&r); err != nil {
		return nil, false, err
	}
	if r.ResultSchema != nil {
		if err := s.fits(ctx, r.ResultSchema, nil); err != nil {
			return nil, false, err
		}
	}
	c := s.Screen(sc, ref.Agent, "operation")
	c.Key("key", r.Key)
	c.Text("name", &r.Name)
	c.JSON("args", &r.Args)
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
		Agent: ref.Agent, Key: r.IdempotencyKey, Print: r, Size: int64(len(r.State) + len(r.Args)), Entry: e, Make: true,
		Drift: true, Secrets: c.Found,
	}, func(tx *ledger.Tx, _ *ledger.AgentRow) (*ckpt.Operation, error) {
		agent, run, err := s.OpenRun(tx, sc, ref)
		if err != nil {
			return nil, err
		}
		tx.Touches(run)
		done, err := findOperation(tx, run.ID, `o.key = ? AND o.status = 'succeeded' ORDER BY o.attempt DESC`, r.Key)
		if err != nil {
			return nil, err
		}
		if done != nil {
			done.Replayed = true
			return &done.Operation, nil
		}
		if err := s.mayBegin(tx, sc, agent, run, &r, e); err != nil {
			return nil, err
		}
		return s.beginOperation(tx, sc, agent, run, before, r, e)
	})
}

// mayBegin refuses to begin an attempt while nobody knows how an earlier one ended. A spooled attempt has happened
// already, so it is recorded beside the earlier one.
func (s *Store) mayBegin(tx *ledger.Tx, sc ckpt.Scope, agent *ledger.AgentRow, run *ledger.RunRow, r *ckpt.OperationRequest, e ledger.AuditEntry) error {
	rows, err := unresolvedOf(tx, run, r.Key)
	if err != nil {
		return err
	}
	for i := range rows {
		o := &rows[i]
		of, err := tx.RunOfRow("operations", o.ID)
		if err != nil {
			return err
		}
		e := resolveEntry(e, "")
		e.Run, e.Life = of.Name, of.Life
		switch {
		case !sc.Spooled.IsZero():
			if o.Status == ckpt.OperationOpen && o.Run == run.Name {
				err = s.becomeUncertain(tx, agent, of, o, "")
			}
		case o.Status == ckpt.OperationUncertain && o.Idempotent && r.Idempotent && o.Run == run.Name:
			err = s.resolve(tx, agent, of, o, ckpt.OperationResolution{Key: o.Key, Choice: ckpt.ChoiceRepeat}, ckpt.ResolvedByRepeat, e)
		default:
			err = ckpt.UncertainError("operation "+r.Key+" cannot begin", o.Run, &o.Operation, tx.Now, ckpt.ResolveCommand(agent.Name, o.Run, o.Key))
		}
		if err != nil {
			return err
		}
	}
	return nil
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

func (s *Store) beginOperation(tx *ledger.Tx, sc ckpt.Scope, agent *ledger.AgentRow, run *ledger.RunRow, before *saves.Save,
	r ckpt.OperationRequest, e ledger.AuditEntry) (*ckpt.Operation, error) {
	if before == nil {
		var err error
		if before, err = s.newestAsBefore(tx, agent, run, r, e); err != nil {
			return nil, err
		}
	}
	o := ckpt.Operation{Key: r.Key, Name: r.Name, Attempt: 1, Status: ckpt.OperationOpen, Args: r.Args, Idempotent: r.Idempotent,
		SelfCheck: r.SelfCheck, ResultSchema: r.ResultSchema, StartedAt: tx.Now}
	if before != nil {
		if err := s.Admit(tx, before, run, nil); err != nil {
			return nil, err
		}
		reply, err := s.Take(tx, before, agent, run)
		if err != nil {
			return nil, err
		}
		o.Checkpoint = ckpt.Ref(reply.ID)
	}
	if _, err := tx.Get(&o.Attempt, `SELECT max(attempt) + 1 FROM operations WHERE run_id = ? AND key = ? HAVING count(*) > 0`, run.ID, r.Key); err != nil {
		return nil, err
	}
	err := tx.Insert(`INSERT INTO operations (run_id, key, attempt, name, status, args, idempotent, self_check, result_schema, checkpoint, started_at, spooled_at)
		VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)`,
		run.ID, o.Key, o.Attempt, o.Name, string(o.Status), o.Args, o.Idempotent, o.SelfCheck, o.ResultSchema, o.Checkpoint, o.StartedAt, sc.Spooled)
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
	v := &saves.Save{Request: request, State: again, Entry: e, Operation: ckpt.Ref(r.Key)}
	v.Entry.Action = "save"
	v.Scope.Target = agent.Owner
	return v, v.EncodeProgram()
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
	err = s.RO.SelectContext(ctx, &rows, `SELECT `+operationColumns+operationTables+`WHERE o.id IN (
		SELECT id FROM operations WHERE run_id = ?1 AND id < ?2 AND (?3 = '' OR status = ?3) ORDER BY id DESC LIMIT 0 + ?4) ORDER BY o.id DESC`,
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
