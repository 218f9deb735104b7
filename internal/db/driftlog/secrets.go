package driftlog

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"slices"

	ckpt "github.com/ckptsidecar/ckptsidecar"
	"github.com/ckptsidecar/ckptsidecar/internal/db/ledger"
	"github.com/ckptsidecar/ckptsidecar/internal/secrets"
)

// ReportSecrets makes a finding for each place in which a secret was seen, once for a run as long
// as the finding is open.
func (s *Drifts) ReportSecrets(tx *ledger.Tx, agent *ledger.AgentRow, run *ledger.RunRow, w *Watched,
	checkpoint string, found []secrets.Secret) error {
	for _, secret := range found {
		evidence, err := json.Marshal(secret)
		if err != nil {
			return err
		}
		known := slices.ContainsFunc(w.secrets, func(f ckpt.Finding) bool { return bytes.Equal(f.Evidence, evidence) })
		if known {
			continue
		}
		f := &ckpt.Finding{Rule: ckpt.RuleSecret, Severity: ckpt.SeverityWarn, Evidence: evidence, Checkpoint: ckpt.Ref(checkpoint),
			Message: secretMessage(&secret)}
		if secret.Redacted {
			f.Severity = ckpt.SeverityInfo
		}
		if err := s.begin(tx, agent, run, f); err != nil {
			return err
		}
		if _, err := s.note(tx, agent, run, w, f, ledger.DaemonEntry(agent, "finding")); err != nil {
			return err
		}
	}
	return nil
}

func secretMessage(secret *secrets.Secret) string {
	message := "The %s holds what looks like %s at %q. Keep secrets out, or set the policy's secrets to redact."
	if secret.Redacted {
		message = "The %s held what looks like %s at %q. It was redacted, so it is not stored. Keep secrets out, because the agent does not get it back."
	}
	return fmt.Sprintf(message, cmp.Or(secret.In, "state"), secret.Kind, secret.Path)
}

// ReportBeside makes findings of the secrets that were found outside a state.
func (s *Drifts) ReportBeside(tx *ledger.Tx, agent *ledger.AgentRow, name string, found []secrets.Secret) error {
	if len(found) == 0 {
		return nil
	}
	run, err := tx.Run(agent.ID, ledger.RunName(name))
	if err != nil || run == nil {
		return err
	}
	w, err := s.WatchRun(tx, agent, run, nil)
	if err != nil {
		return err
	}
	return s.ReportSecrets(tx, agent, run, w, "", found)
}

// Warn makes a finding that advises on a run, unless a finding of the same rule and evidence is
// open.
func (s *Drifts) Warn(tx *ledger.Tx, agent *ledger.AgentRow, run *ledger.RunRow, f *ckpt.Finding) error {
	w, err := s.WatchRun(tx, agent, run, nil)
	if err != nil {
		return err
	}
	known := slices.ContainsFunc(w.open, func(o ckpt.Finding) bool { return o.Rule == f.Rule && bytes.Equal(o.Evidence, f.Evidence) })
	if known {
		return nil
	}
	f.Severity = ckpt.SeverityWarn
	if err := s.begin(tx, agent, run, f); err != nil {
		return err
	}
	_, err = s.note(tx, agent, run, w, f, ledger.DaemonEntry(agent, "finding"))
	return err
}
