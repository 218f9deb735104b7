package db

import (
	"context"
	"errors"
	"sync"

	"github.com/ckptsidecar/ckptsidecar/internal/db/sqlite"
	"github.com/jmoiron/sqlx"
)

// damagedKey begins the key under which the table meta says of a checkpoint
// that it did not read back intact. The value says why. Retention and resume
// must know it also where nobody watches for drift, so it is no finding.
const damagedKey = "damaged:"

// isIntact is a condition on checkpoints: nothing is known to be wrong with it.
const isIntact = `NOT EXISTS (SELECT 1 FROM meta WHERE key = '` + damagedKey + `' || id)`

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

func (d *damages) count() int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return len(d.noted)
}

// loadDamages reads what was found damaged before the start.
func (s *core) loadDamages(ctx context.Context) error {
	var ids []string
	err := sqlx.SelectContext(ctx, s.ro, &ids, `SELECT substr(key, 9) FROM meta WHERE key >= 'damaged:' AND key < 'damaged;'`)
	for _, id := range ids {
		s.damages.done(id)
	}
	return err
}

// reportDamage notes that a checkpoint did not read back intact, once for each.
// From then on it counts for nothing: retention keeps another in its place, and
// nobody goes back to it. The pieces that other states in memory stand on are
// in doubt. Other checkpoints that share the damage fail by themselves.
func (s *core) reportDamage(err error) {
	var damage *damageError
	if !errors.As(err, &damage) || damage.id == "" || !s.engine.Started() || !s.damages.begin(damage.id) {
		return
	}
	s.live.doubts.Add(1)
	s.log.Error("a checkpoint is damaged and is never served; its run's next save stands alone", "checkpoint", damage.id, "error", damage)
	err = s.write(&op{owner: daemon, claim: sqlite.GoesOn, apply: func(tx *tx) error { return s.noteDamage(tx, damage) }})
	if err != nil {
		s.damages.forget(damage.id) // the next who reads it tries again
		s.log.Warn("that a checkpoint is damaged could not be noted", "checkpoint", damage.id, "error", err)
	}
}

// noteDamage marks the checkpoint, and makes a critical finding of it where the
// agent's policy watches for that. The finding has no say over other checkpoints.
func (s *core) noteDamage(tx *tx, damage *damageError) error {
	var at struct {
		RunID int64 `db:"run_id"`
		Seq   int64 `db:"seq"`
		Known bool  `db:"known"`
	}
	found, err := tx.get(&at, `SELECT run_id, seq, EXISTS (SELECT 1 FROM findings f WHERE f.run_id = c.run_id AND f.rule = 'corruption' AND f.checkpoint = c.id) AS known
		FROM checkpoints c WHERE id = ?`, damage.id)
	if err != nil {
		return err
	}
	if !found {
		tx.OnCommit(func() { s.damages.forget(damage.id) })
		return nil
	}
	err = tx.exec(`INSERT INTO meta (key, value) VALUES (?, ?) ON CONFLICT (key) DO UPDATE SET value = excluded.value`, damagedKey+damage.id, damage.what)
	if err != nil {
		return err
	}
	tx.store.hot.forgetAll()
	tx.OnCommit(func() { s.damages.done(damage.id) })
	if at.Known {
		return nil
	}
	return s.onDamage(tx, at.RunID, at.Seq, damage)
}

// unmark forgets that a checkpoint is damaged, because it goes or reads back again.
func (s *core) unmark(tx *tx, id string) error {
	if !s.damages.has(id) {
		return nil
	}
	tx.OnCommit(func() { s.damages.forget(id) })
	tx.store.hot.forgetAll()
	return tx.exec(`DELETE FROM meta WHERE key = ?`, damagedKey+id)
}

// unmarkAgent does the same for all that goes with an agent.
func (s *core) unmarkAgent(tx *tx, agent *agentRow) error {
	for _, id := range s.damages.ids() {
		var mine bool
		_, err := tx.get(&mine, `SELECT EXISTS (SELECT 1 FROM checkpoints c JOIN runs r ON r.id = c.run_id WHERE c.id = ? AND r.agent_id = ?)`, id, agent.ID)
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
func (s *core) Ready(context.Context) error {
	return s.engine.Ready()
}
