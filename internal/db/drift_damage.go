package db

import (
	"fmt"

	ckpt "github.com/ckptsidecar/ckptsidecar"
)

// findDamage makes a finding of a checkpoint that is damaged.
func (s *drifts) findDamage(tx *tx, runID, seq int64, damage *damageError) error {
	run, agent, err := s.runWithAgent(tx, runID)
	if err != nil || run == nil || agent.policy.Detectors[ckpt.RuleCorruption].Tier == ckpt.TierOff {
		return err
	}
	w, err := s.watchRun(tx, agent, run, nil)
	if err != nil {
		return err
	}
	f, err := s.findingOf(tx, agent, run, &ckpt.Found{
		Rule: ckpt.RuleCorruption, Severity: ckpt.SeverityCritical, Evidence: ckpt.Evidence{Checkpoints: []string{damage.id}},
		Message: fmt.Sprintf("Checkpoint %s (number %d) is damaged: %s. It is never served; a resume passes it over.", damage.id, seq, damage.what),
		Advice:  "Save a new checkpoint now, and go on: it is stored whole and stands on nothing damaged. The damaged one cannot be gone back to.",
	}, damage.id)
	if err != nil {
		return err
	}
	f.SinceSeq = nil
	_, err = s.note(tx, agent, run, w, f, daemonEntry(agent, "finding"))
	return err
}
