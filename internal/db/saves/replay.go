package saves

import (
	ckpt "github.com/ckptsidecar/ckptsidecar"
	"github.com/ckptsidecar/ckptsidecar/internal/db/ledger"
)

// replayed answers a save that was made before, and refuses another save under the id of one. It returns nil for a new save.
func (s *Saves) replayed(tx *ledger.Tx, v *Save, t *target) (*ckpt.Saved, error) {
	if v.key == "" {
		return nil, nil
	}
	if v.key == v.Request.ID {
		var err error
		if t.idSeen, err = tx.IDSeen(v.key); err != nil || !t.idSeen {
			return nil, err
		}
	}
	if t.agent != nil {
		saved, err := s.replayedBy(tx, v, t.agent)
		if err == nil && saved != nil {
			saved.Drift, err = s.VerdictFor(tx, t.agent, ledger.RunName(v.Request.Run))
		}
		if saved != nil || err != nil {
			return saved, err
		}
	}
	former := &ledger.AgentRow{Owner: v.Scope.Whose(), Name: v.Request.Agent}
	reply, found, err := tx.ReplayedFormer(former.Owner, former.Name, v.Request.ID, v.key, v.print)
	if found && err == nil {
		saved := v.answer(former, reply)
		saved.Replayed, saved.Trees = true, nil
		return saved, nil
	}
	return nil, err
}

func (s *Saves) replayedBy(tx *ledger.Tx, v *Save, agent *ledger.AgentRow) (*ckpt.Saved, error) {
	reply, found, err := tx.ReplayedSave(agent.ID, v.Request.ID, v.print)
	if !found && err == nil {
		found, err = tx.Replayed(agent.ID, v.key, v.print, &reply)
	}
	if !found || err != nil {
		return nil, err
	}
	saved := v.answer(agent, reply)
	saved.Replayed = true
	if err := v.sayWhatIsStored(tx, agent, saved); err != nil {
		return nil, err
	}
	if len(v.Request.Trees) > 0 { // the first request may have named none
		saved.Trees = nil
		if c, err := tx.Reread(agent.Owner, reply.ID); err == nil {
			saved.Trees = c.Trees
		}
	}
	return saved, nil
}

// sayWhatIsStored corrects the answer to a repeated save: its policy may redact more or less now than when
// the state was stored.
func (v *Save) sayWhatIsStored(tx *ledger.Tx, agent *ledger.AgentRow, saved *ckpt.Saved) error {
	var state struct {
		Size   int64  `db:"size"`
		SHA256 string `db:"sha256"`
	}
	found, err := tx.Get(&state, `SELECT c.size, c.sha256`+ledger.OwnedTables+`?`, saved.ID, agent.Owner)
	if err == nil && found {
		saved.Size, saved.SHA256, saved.AsSent = state.Size, state.SHA256, state.SHA256 == v.State.Sent
	}
	return err
}
