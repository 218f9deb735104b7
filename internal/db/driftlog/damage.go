package driftlog

import (
	"fmt"

	ckpt "github.com/ckptsidecar/ckptsidecar"
	"github.com/ckptsidecar/ckptsidecar/internal/db/blob"
	"github.com/ckptsidecar/ckptsidecar/internal/db/ledger"
	"github.com/ckptsidecar/ckptsidecar/internal/drift/observer"
)

// findDamage makes a finding of a damaged checkpoint.
func (s *Drifts) findDamage(tx *ledger.Tx, runID, seq int64, damage *blob.DamageError) error {
	run, agent, err := s.RunWithAgent(tx, runID)
	if err != nil || run == nil || agent.Settings.Detectors[ckpt.RuleCorruption].Tier == ckpt.TierOff {
		return err
	}
	w, err := s.WatchRun(tx, agent, run, nil)
	if err != nil {
		return err
	}
	f, err := s.findingOf(tx, agent, run, &observer.Found{
		Rule: ckpt.RuleCorruption, Severity: ckpt.SeverityCritical, About: ckpt.AboutState, Evidence: ckpt.Evidence{Checkpoints: []string{damage.ID}},
		Message: fmt.Sprintf("Checkpoint %s (number %d) is damaged: %s. The daemon never serves it, "+
			"and a resume skips it.", damage.ID, seq, damage.What),
		Advice: "Save a new checkpoint now, and go on: it is stored whole and does not depend on damaged data. " +
			"The damaged one can no longer be restored.",
	}, damage.ID)
	if err != nil {
		return err
	}
	f.SinceSeq = nil
	_, err = s.note(tx, agent, run, w, f, ledger.DaemonEntry(agent, "finding"))
	return err
}
