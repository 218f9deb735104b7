package db

import (
	"errors"
	"fmt"

	ckpt "github.com/ckptsidecar/ckptsidecar"
)

// reportDamage makes a critical finding of a state that did not read back
// intact, once for each checkpoint. It has no say over other checkpoints: those
// that share the damage fail by themselves.
func (s *Store) reportDamage(err error) {
	var damage *damageError
	if !errors.As(err, &damage) || damage.id == "" {
		return
	}
	if _, known := s.damaged.LoadOrStore(damage.id, true); known || s.writer == nil {
		return
	}
	err = s.write(&op{owner: daemon, claim: goesOn, apply: func(tx *tx) error { return s.noteDamage(tx, damage) }})
	if err != nil {
		s.damaged.Delete(damage.id) // the next who reads it tries again
		s.log.Warn("that a checkpoint is damaged could not be noted", "checkpoint", damage.id, "error", err)
	}
}

func (s *Store) noteDamage(tx *tx, damage *damageError) error {
	var at struct {
		RunID int64 `db:"run_id"`
		Seq   int64 `db:"seq"`
		Known bool  `db:"known"`
	}
	found, err := tx.get(&at, `SELECT run_id, seq, EXISTS (SELECT 1 FROM findings f WHERE f.run_id = c.run_id AND f.rule = 'corruption' AND f.checkpoint = c.id) AS known
		FROM checkpoints c WHERE id = ?`, damage.id)
	if err != nil || !found || at.Known {
		return err
	}
	run, agent, err := s.runWithAgent(tx, at.RunID)
	if err != nil || run == nil || agent.policy.Detectors[ckpt.RuleCorruption].Tier == ckpt.TierOff {
		return err
	}
	w, err := s.watchRun(tx, agent, run, nil)
	if err != nil {
		return err
	}
	f, err := s.findingOf(tx, agent, run, &ckpt.Found{
		Rule: ckpt.RuleCorruption, Severity: ckpt.SeverityCritical, Evidence: ckpt.Evidence{Checkpoints: []string{damage.id}},
		Message: fmt.Sprintf("Checkpoint %s (number %d) is damaged: %s. It is never served; a resume passes it over.", damage.id, at.Seq, damage.what),
		Advice:  "Save a new checkpoint now, and go on: the damaged one cannot be gone back to.",
	}, damage.id)
	if err != nil {
		return err
	}
	f.SinceSeq = nil
	_, err = s.note(tx, agent, run, w, f, daemonEntry(agent, "finding"))
	return err
}
