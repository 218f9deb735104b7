package ledger

import (
	"context"
	"errors"
	"sync"

	"github.com/ckptsidecar/ckptsidecar/internal/db/blob"
	"github.com/ckptsidecar/ckptsidecar/internal/db/sqlite"
	"github.com/jmoiron/sqlx"
)

// damagedKey begins the key under which the table meta says of a checkpoint
// that it did not read back intact. The value says why. Retention and resume
// must know it also where nobody watches for drift, so it is no finding.
const damagedKey = "damaged:"

// IsIntact is a condition on checkpoints: nothing is known to be wrong with it.
const IsIntact = `NOT EXISTS (SELECT 1 FROM meta WHERE key = '` + damagedKey + `' || id)`

// damages are the checkpoints that are known to be damaged: those that meta
// names, and those about to be noted there.
type damages struct {
	mu    sync.Mutex
	noted map[string]bool // false while it is being noted
}

// begin notes that a checkpoint is damaged, and answers false where that is
// known already.
func (d *damages) begin(id string) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	if _, known := d.noted[id]; known {
		return false
	}
	d.set(id, false)
	return true
}

func (d *damages) set(id string, noted bool) {
	if d.noted == nil {
		d.noted = map[string]bool{}
	}
	d.noted[id] = noted
}

func (d *damages) done(id string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.set(id, true)
}

func (d *damages) forget(id string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	delete(d.noted, id)
}

func (d *damages) has(id string) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	_, known := d.noted[id]
	return known
}

func (d *damages) ids() []string {
	d.mu.Lock()
	defer d.mu.Unlock()
	ids := make([]string, 0, len(d.noted))
	for id := range d.noted {
		ids = append(ids, id)
	}
	return ids
}

func (d *damages) Count() int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return len(d.noted)
}

// loadDamages reads what was found damaged before the start.
func (s *Core) loadDamages(ctx context.Context) error {
	var ids []string
	err := sqlx.SelectContext(ctx, s.RO, &ids, `SELECT substr(key, 9) FROM meta WHERE key >= 'damaged:' AND key < 'damaged;'`)
	for _, id := range ids {
		s.Damages.done(id)
	}
	return err
}

// ReportDamage notes that a checkpoint did not read back intact, once for each.
// From then on it counts for nothing: retention keeps another in its place, and
// nobody goes back to it. The pieces that other states in memory stand on are
// in doubt. Other checkpoints that share the damage fail by themselves.
func (s *Core) ReportDamage(err error) {
	var damage *blob.DamageError
	if !errors.As(err, &damage) || damage.ID == "" || !s.Engine.Started() || !s.Damages.begin(damage.ID) {
		return
	}
	s.States.Doubts.Add(1)
	s.Log.Error("a checkpoint is damaged and is never served; its run's next save stands alone", "checkpoint", damage.ID, "error", damage)
	err = s.Submit(&Op{Owner: Daemon, Claim: sqlite.GoesOn, Do: func(tx *Tx) error { return s.noteDamage(tx, damage) }})
	if err != nil {
		s.Damages.forget(damage.ID) // the next who reads it tries again
		s.Log.Warn("that a checkpoint is damaged could not be noted", "checkpoint", damage.ID, "error", err)
	}
}

// noteDamage marks the checkpoint, and makes a critical finding of it where the
// agent's policy watches for that. The finding has no say over other checkpoints.
func (s *Core) noteDamage(tx *Tx, damage *blob.DamageError) error {
	var at struct {
		RunID int64 `db:"run_id"`
		Seq   int64 `db:"seq"`
		Known bool  `db:"known"`
	}
	found, err := tx.Get(&at, `SELECT run_id, seq, EXISTS (SELECT 1 FROM findings f WHERE f.run_id = c.run_id AND f.rule = 'corruption' AND f.checkpoint = c.id) AS known
		FROM checkpoints c WHERE id = ?`, damage.ID)
	if err != nil {
		return err
	}
	if !found {
		tx.OnCommit(func() { s.Damages.forget(damage.ID) })
		return nil
	}
	err = tx.Exec(`INSERT INTO meta (key, value) VALUES (?, ?) ON CONFLICT (key) DO UPDATE SET value = excluded.value`, damagedKey+damage.ID, damage.What)
	if err != nil {
		return err
	}
	tx.Store.Hot.ForgetAll()
	tx.OnCommit(func() { s.Damages.done(damage.ID) })
	if at.Known {
		return nil
	}
	return s.OnDamage(tx, at.RunID, at.Seq, damage)
}

// unmark forgets that a checkpoint is damaged, because it goes or reads back again.
func (s *Core) unmark(tx *Tx, id string) error {
	if !s.Damages.has(id) {
		return nil
	}
	tx.OnCommit(func() { s.Damages.forget(id) })
	tx.Store.Hot.ForgetAll()
	return tx.Exec(`DELETE FROM meta WHERE key = ?`, damagedKey+id)
}

// UnmarkAgent does the same for all that goes with an agent.
func (s *Core) UnmarkAgent(tx *Tx, agent *AgentRow) error {
	for _, id := range s.Damages.ids() {
		var mine bool
		_, err := tx.Get(&mine, `SELECT EXISTS (SELECT 1 FROM checkpoints c JOIN runs r ON r.id = c.run_id WHERE c.id = ? AND r.agent_id = ?)`, id, agent.ID)
		if err == nil && mine {
			err = s.unmark(tx, id)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// Ready answers nil when saves are acknowledged, else why they are not.
func (s *Core) Ready(context.Context) error {
	return s.Engine.Ready()
}
