package ledger

import (
	"context"
	"database/sql"
	"errors"

	ckpt "github.com/ckptsidecar/ckptsidecar"
	"github.com/ckptsidecar/ckptsidecar/internal/db/blob"
	"github.com/ckptsidecar/ckptsidecar/internal/db/sqlite"
	"github.com/jmoiron/sqlx"
)

// Submit runs an operation on the writer and waits until it ends. It does not end early if the
// caller hangs up: an operation that has begun is finished.
func (s *Core) Submit(o *Op) error {
	if o.Claim != sqlite.Frees {
		s.Usage.RecountIfTight(o.Entry.Owner, o.Size)
	}
	var damage []error
	sent := &sqlite.Op{Owner: o.Owner, Size: o.Size, Claim: o.Claim, Zero: o.Zero, Do: func(*sqlite.Tx) (err error) {
		damage, err = o.apply(s.present)
		return err
	}}
	if o.Entry.Action != "" {
		sent.Refused = func(_ *sqlite.Tx, refusal *ckpt.Error) error { return s.refused(o, refusal) }
	}
	if s.Usage.On() {
		sent.Alone = func() bool { return s.Usage.Tight(o.Entry.Owner, o.Size) }
	}
	err := s.Engine.Write(sent)
	for _, d := range damage {
		s.ReportDamage(d)
	}
	return err
}

// Reading runs f on one snapshot of the database. It reports damage that f meets.
func (s *Core) Reading(ctx context.Context, f func(q *sqlx.Tx) error) error {
	err := s.onSnapshot(ctx, f)
	if ckpt.CodeOf(err) == ckpt.CodeCorrupt {
		s.ReportDamage(err)
	}
	return err
}

func (s *Core) onSnapshot(ctx context.Context, f func(q *sqlx.Tx) error) error {
	q, err := s.RO.BeginTxx(ctx, &sql.TxOptions{ReadOnly: true})
	if err != nil {
		return sqlite.ReadError(err)
	}
	defer q.Rollback()
	return sqlite.ReadError(f(q))
}

// ReportDamage notes, once for each checkpoint, that a checkpoint did not read back intact. From
// then on the checkpoint counts for nothing: retention keeps another in its place, and no run goes
// back to it. The pieces that other states in memory are based on are in doubt. Other checkpoints
// that share the damage are found when they are read.
func (s *Core) ReportDamage(err error) {
	var damage *blob.DamageError
	if !errors.As(err, &damage) || damage.ID == "" || !s.Engine.Started() || !s.Damages.begin(damage.ID) {
		return
	}
	s.States.Doubts.Add(1)
	s.Log.Error("a checkpoint is damaged and is never served; its run's next save is stored whole", "checkpoint", damage.ID, "error", damage)
	err = s.Submit(&Op{Owner: Daemon, Claim: sqlite.GoesOn, Do: func(tx *Tx) error { return s.noteDamage(tx, damage) }})
	if err != nil {
		s.Damages.forget(damage.ID) // the next read of it tries again
		s.Log.Warn("a damaged checkpoint could not be recorded as damaged", "checkpoint", damage.ID, "error", err)
	}
}

// noteDamage marks the checkpoint. It also makes a critical finding if the agent's policy watches
// for damage. The finding does not affect other checkpoints.
func (s *Core) noteDamage(tx *Tx, damage *blob.DamageError) error {
	var at struct {
		RunID int64 `db:"run_id"`
		Seq   int64 `db:"seq"`
		Known bool  `db:"known"`
	}
	found, err := tx.Get(&at, `SELECT run_id, seq, EXISTS (SELECT 1 FROM findings f
		WHERE f.run_id = c.run_id AND f.rule = 'corruption' AND f.checkpoint = c.id) AS known
		FROM checkpoints c WHERE id = ?1 AND (?2 = 0 OR n = ?2)`, damage.ID, damage.N)
	if err != nil {
		return err
	}
	if !found {
		tx.OnCommit(func() { s.Damages.forget(damage.ID) })
		return nil
	}
	err = tx.Insert(`INSERT INTO meta (key, value) VALUES (?, ?) ON CONFLICT (key) DO UPDATE
		SET value = excluded.value`, damagedKey+damage.ID, damage.What)
	if err != nil {
		return err
	}
	tx.ForgetRuns()
	tx.OnCommit(func() { s.Damages.done(damage.ID) })
	if at.Known {
		return nil
	}
	return s.OnDamage(tx, at.RunID, at.Seq, damage)
}

// unmark forgets that a checkpoint is damaged, because it is removed or reads back again.
func (s *Core) unmark(tx *Tx, id string) error {
	if !s.Damages.has(id) {
		return nil
	}
	tx.OnCommit(func() { s.Damages.forget(id) })
	tx.ForgetRuns()
	return tx.Exec(`DELETE FROM meta WHERE key = ?`, damagedKey+id)
}

// UnmarkAgent is unmark for all checkpoints of an agent that is removed.
func (s *Core) UnmarkAgent(tx *Tx, agent *AgentRow) error {
	for _, id := range s.Damages.ids() {
		var mine bool
		_, err := tx.Get(&mine, `SELECT EXISTS (SELECT 1 FROM checkpoints c JOIN runs r ON r.id = c.run_id
			WHERE c.id = ? AND r.agent_id = ?)`, id, agent.ID)
		if err == nil && mine {
			err = s.unmark(tx, id)
		}
		if err != nil {
			return err
		}
	}
	return nil
}
