package db

import (
	"context"

	ckpt "github.com/ckptsidecar/ckptsidecar"
	"github.com/ckptsidecar/ckptsidecar/internal/db/ledger"
)

// restoredReply is the part of a restore's reply that is kept under its key.
type restoredReply struct {
	Checkpoint string `json:"checkpoint"`
}

// Restore returns the checkpoint to go back to, with its state, and records who asked for it and
// why. It removes nothing. The run's next save has the restored checkpoint as its parent, so
// history is a tree.
func (s *Store) Restore(ctx context.Context, sc ckpt.Scope, r ckpt.RestoreRequest) (*ckpt.Checkpoint, bool, error) {
	if err := checkRestore(r); err != nil {
		return nil, false, err
	}
	screened := s.Screen(sc, r.Agent, "restore")
	if screened.Text("reason", &r.Reason); screened.Err != nil {
		return nil, false, screened.Err
	}
	print, err := ledger.Fingerprint([]any{"restore", r})
	if err != nil {
		return nil, false, err
	}
	e := ledger.Entry(sc, "restore", r.Agent)
	e.Run, e.Subject, e.Reason = r.Run, r.Checkpoint, r.Reason
	var c *ckpt.Checkpoint
	var replayed bool
	err = s.Submit(&ledger.Op{Owner: sc.Caller.Owner, Entry: e, Do: func(tx *ledger.Tx) error {
		agent, err := s.NeedAgent(tx, sc, r.Agent)
		if err != nil {
			return err
		}
		var first restoredReply
		if replayed, err = tx.Replayed(agent.ID, r.IdempotencyKey, print, &first); err != nil {
			return err
		}
		if replayed {
			c, err = tx.CheckpointOf(agent, ckpt.RestoreRequest{Agent: r.Agent, Checkpoint: first.Checkpoint})
			return err
		}
		if c, err = s.restore(tx, agent, r, print, e); err != nil {
			return err
		}
		return s.ReportBeside(tx, agent, c.Run, screened.Found)
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
			return ckpt.Errorf(ckpt.CodeInvalid, "give either checkpoint, or kind and clean, not both")
		}
	}
	return ledger.CheckFilter(ckpt.CheckpointFilter{Kind: r.Kind, Run: r.Run})
}

func (s *Store) restore(tx *ledger.Tx, agent *ledger.AgentRow, r ckpt.RestoreRequest, print string, e ledger.AuditEntry) (*ckpt.Checkpoint, error) {
	c, err := tx.CheckpointOf(agent, r)
	if err != nil {
		return nil, err
	}
	e.Run, e.Subject = c.Run, c.ID
	if err := s.GoBack(tx, agent, c, e); err != nil {
		return nil, err
	}
	e.Detail = map[string]any{"kind": c.Kind, "seq": c.Seq, "sha256": c.SHA256}
	if err := tx.Audit(e); err != nil {
		return nil, err
	}
	return c, tx.Remember(agent.ID, r.IdempotencyKey, print, restoredReply{c.ID})
}
