package saves

import (
	ckpt "github.com/ckptsidecar/ckptsidecar"
	"github.com/ckptsidecar/ckptsidecar/internal/db/blob"
	"github.com/ckptsidecar/ckptsidecar/internal/db/ledger"
)

// mayPut refuses a save that breaks its agent's policy or schema, for which there is no space,
// that names a parent or a tree that does not exist, whose id is taken, or whose writer was fenced.
func (s *Saves) mayPut(tx *ledger.Tx, v *Save, t *target) error {
	if err := s.Admit(tx, v, t.run, t.known); err != nil {
		return err
	}
	if err := s.mayNameTrees(tx, v, t.agent); err != nil {
		return err
	}
	if t.run != nil {
		if err := s.MayWrite(t.run, v.Scope, v.Request.Epoch); err != nil {
			return err
		}
	}
	if v.Request.ForkFrom != "" {
		if err := v.checkFork(tx, t.run); err != nil {
			return err
		}
	}
	if v.Request.Parent != "" {
		if err := CheckParent(tx, t.agent, string(v.Request.Parent)); err != nil {
			return err
		}
	}
	if !t.idSeen {
		return nil
	}
	taken, err := tx.IDTaken(v.Scope.Whose(), v.Request.ID)
	if err == nil && taken { // by another agent of the owner, or by this one so long ago that the key is forgotten
		err = ckpt.Errorf(ckpt.CodeIdempotencyMismatch, "the id %s is already used: create a new UUID of version 7 for each save", v.Request.ID)
	}
	return err
}

// Admit refuses a save that breaks its agent's policy or schema, or for which its owner has no
// space left. run is nil if there is none yet, and known if the run is not in the run cache.
func (s *Saves) Admit(tx *ledger.Tx, v *Save, run *ledger.RunRow, known *ledger.CachedRun) error {
	if v.State.Refused != nil {
		return v.State.Refused
	}
	if v.Printed != nil && v.Printed.Refused != nil {
		return v.Printed.Refused
	}
	if !known.NewestIs(v.State.Base) {
		id := int64(0)
		if run != nil {
			id = run.ID
		}
		if err := blob.Settle(tx.Tx, &v.State, id); err != nil {
			return err
		}
	}
	return s.Usage.MayStore(&tx.Tally, v.Scope.Whose(), v.State.Stored(), 0)
}

// mayNameTrees refuses trees that do not exist. A save from a spool may come too late for its
// files: it is then made without them.
func (s *Saves) mayNameTrees(tx *ledger.Tx, v *Save, agent *ledger.AgentRow) error {
	if len(v.Request.Trees) == 0 {
		return nil
	}
	err := s.Trees.MayName(tx, agent, v.Request.Trees)
	if ckpt.CodeOf(err) == ckpt.CodeFilesMissing && !v.Scope.Spooled.IsZero() {
		bare := *v.Request
		bare.Trees = nil
		v.Request, err = &bare, nil
	}
	return err
}

// checkFork refuses a fork into a run that exists, so that two forks at once into one new name do
// not mix. It also refuses a fork from a checkpoint that is not the owner's.
func (v *Save) checkFork(tx *ledger.Tx, run *ledger.RunRow) error {
	if run != nil {
		return ckpt.Errorf(ckpt.CodeConflict, "agent %s already has a run %s: fork into another run", v.Request.Agent, run.Name)
	}
	var there bool
	_, err := tx.Get(&there, `SELECT EXISTS (SELECT 1 FROM checkpoints c JOIN runs r ON r.id = c.run_id
		JOIN agents a ON a.id = r.agent_id WHERE c.id = ? AND a.owner = ?)`,
		v.Request.ForkFrom, v.Scope.Whose())
	if err == nil && !there {
		err = ckpt.Errorf(ckpt.CodeNotFound, "there is no checkpoint %s to fork from", v.Request.ForkFrom)
	}
	return err
}

// CheckParent refuses a parent that is not a checkpoint of the agent.
func CheckParent(tx *ledger.Tx, agent *ledger.AgentRow, parent string) error {
	if agent != nil {
		var mine bool
		_, err := tx.Get(&mine, `SELECT EXISTS (SELECT 1 FROM checkpoints c JOIN runs r ON r.id = c.run_id
			WHERE c.id = ? AND r.agent_id = ?)`, parent, agent.ID)
		if err != nil || mine {
			return err
		}
	}
	return ckpt.Errorf(ckpt.CodeNotFound, "the parent %s is not a checkpoint of this agent", parent)
}
