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
