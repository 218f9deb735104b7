package db

import (
	"context"

	ckpt "github.com/ckptsidecar/ckptsidecar"
)

// restoredReply is what is remembered of a restore under its key.
type restoredReply struct {
	Checkpoint string `json:"checkpoint"`
}

// Restore answers the checkpoint to go back to, with its state, and records
// who did so and why. Nothing is removed by it: the run's next save comes from
// the restored checkpoint, so that history is a tree.
func (s *Store) Restore(ctx context.Context, sc ckpt.Scope, r ckpt.RestoreRequest) (*ckpt.Checkpoint, bool, error) {
	if err := checkRestore(r); err != nil {
		return nil, false, err
	}
	screened := s.screen(sc, r.Agent, "restore")
	if screened.text("reason", &r.Reason); screened.err != nil {
		return nil, false, screened.err
	}
	print, err := fingerprint([]any{"restore", r})
	if err != nil {
		return nil, false, err
	}
	e := entry(sc, "restore", r.Agent)
	e.Run, e.Subject, e.Reason = r.Run, r.Checkpoint, r.Reason
	var c *ckpt.Checkpoint
	var replayed bool
	err = s.write(&op{owner: sc.Caller.Owner, entry: e, apply: func(tx *tx) error {
		agent, err := s.needAgent(tx, sc, r.Agent)
		if err != nil {
			return err
		}
		var first restoredReply
		if replayed, err = tx.replayed(agent.ID, r.IdempotencyKey, print, &first); err != nil {
			return err
		}
		if replayed {
			c, err = tx.checkpointOf(agent, ckpt.RestoreRequest{Agent: r.Agent, Checkpoint: first.Checkpoint})
			return err
		}
		if c, err = s.restore(tx, agent, r, print, e); err != nil {
			return err
		}
		return s.reportBeside(tx, agent, c.Run, screened.found)
	}})
	return c, replayed, err
}

func checkRestore(r ckpt.RestoreRequest) error {
	if err := ckpt.CheckAgentName(r.Agent); err != nil {
		return err
	}
	if err := ckpt.CheckReason(r.Reason); err != nil {
		return err
	}
	if r.Checkpoint != "" {
		if err := ckpt.CheckID(r.Checkpoint); err != nil {
			return err
		}
		if r.Kind != "" || r.Clean {
			return ckpt.Errorf(ckpt.CodeInvalid, "say checkpoint, or kind and clean to have one chosen, not both")
		}
	}
	return checkFilter(ckpt.CheckpointFilter{Kind: r.Kind, Run: r.Run})
}

func (s *Store) restore(tx *tx, agent *agentRow, r ckpt.RestoreRequest, print string, e auditEntry) (*ckpt.Checkpoint, error) {
	c, err := tx.checkpointOf(agent, r)
	if err != nil {
		return nil, err
	}
	e.Run, e.Subject = c.Run, c.ID
	if err := s.goBack(tx, agent, c, e); err != nil {
		return nil, err
	}
	e.Detail = map[string]any{"kind": c.Kind, "seq": c.Seq, "sha256": c.SHA256}
	if err := tx.audit(e); err != nil {
		return nil, err
	}
	return c, tx.remember(agent.ID, r.IdempotencyKey, print, restoredReply{c.ID})
}

// checkpointOf chooses the checkpoint, checks that it is this agent's and this
// run's, and reads its state.
func (tx *tx) checkpointOf(agent *agentRow, r ckpt.RestoreRequest) (*ckpt.Checkpoint, error) {
	var row *readRow
	var err error
	if r.Checkpoint != "" {
		row, err = tx.chosen(agent, r)
	} else {
		row, err = tx.newest(agent, r)
	}
	if err != nil {
		return nil, err
	}
	c, err := withState(tx.Ctx, tx.Conn, row, true)
	if ckpt.CodeOf(err) == ckpt.CodeCorrupt {
		tx.damage = append(tx.damage, err)
	}
	return c, err
}

func (tx *tx) chosen(agent *agentRow, r ckpt.RestoreRequest) (*readRow, error) {
	row, err := readOne(tx.Ctx, tx.Conn, r.Checkpoint, true)
	if err != nil {
		return nil, err
	}
	switch {
	case row.Owner != agent.Owner:
		return nil, noCheckpoint(r.Checkpoint)
	case row.Agent != agent.Name:
		return nil, ckpt.Errorf(ckpt.CodeConflict, "checkpoint %s is of agent %s, not of %s: nothing was restored", r.Checkpoint, row.Agent, agent.Name)
	case r.Run != "" && row.Run != r.Run:
		return nil, ckpt.Errorf(ckpt.CodeConflict, "checkpoint %s is of run %s, not of %s: nothing was restored", r.Checkpoint, row.Run, r.Run)
	}
	return row, nil
}

// newest is the newest checkpoint that the request lets through. Where no run
// is named it is the main one's, or the newest run's of an agent without one.
func (tx *tx) newest(agent *agentRow, r ckpt.RestoreRequest) (*readRow, error) {
	f := ckpt.CheckpointFilter{Agent: agent.Name, Run: r.Run, Kind: r.Kind}
	if r.Clean {
		clean := false
		f.Suspect = &clean
	}
	runs := []string{r.Run}
	if r.Run == "" {
		runs = []string{ckpt.MainRun, ""}
	}
	for _, f.Run = range runs {
		rows, err := listRows(tx.Ctx, tx.Conn, agent.ID, f, 1<<62, 1, true)
		if err != nil {
			return nil, err
		}
		if len(rows) > 0 {
			return &rows[0], nil
		}
	}
	return nil, ckpt.Errorf(ckpt.CodeNotFound, "agent %s has no checkpoint that fits: see what there is with ckptsidecar list %s", agent.Name, agent.Name)
}
