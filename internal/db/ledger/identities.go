package ledger

import (
	"encoding/json"
	"os"

	"github.com/ckptsidecar/ckptsidecar/internal/db/sqlite"
)

// identityMapKey is the row of meta with the identity map that the audit log has.
const identityMapKey = "identity_map"

// SetIdentityMap notes in the audit log which local identities are which principals of a fleet, if
// the map has changed since the last note. text is a JSON object, "" if nothing is mapped.
func (s *Core) SetIdentityMap(text string) error {
	if s.Engine.ReadOnly() != "" {
		return nil
	}
	var there []string
	if err := s.RO.Select(&there, `SELECT value FROM meta WHERE key = ?`, identityMapKey); err != nil {
		return sqlite.ReadError(err)
	}
	if len(there) == 0 && text == "" || len(there) == 1 && there[0] == text {
		return nil
	}
	return s.Submit(&Op{Claim: sqlite.GoesOn, Do: func(tx *Tx) error {
		err := tx.Insert(`INSERT INTO meta (key, value) VALUES (?, ?) ON CONFLICT (key) DO UPDATE SET value = excluded.value`, identityMapKey, text)
		if err != nil {
			return err
		}
		if text == "" {
			text = "{}"
		}
		return tx.Audit(AuditEntry{Who: Daemon, PID: os.Getpid(), Action: "set_principals", Outcome: OutcomeDone,
			Detail: map[string]any{"map": json.RawMessage(text)}})
	}})
}

// NoteWentBack notes in the audit log that the engine of a fleet had acknowledged rows up to had,
// and now has only rows up to has.
func (s *Core) NoteWentBack(had, has int64) error {
	if s.Engine.ReadOnly() != "" {
		return nil
	}
	return s.Submit(&Op{Claim: sqlite.GoesOn, Do: func(tx *Tx) error {
		return tx.Audit(AuditEntry{Who: Daemon, PID: os.Getpid(), Action: "engine_went_back", Outcome: OutcomeDone,
			Detail: map[string]any{"had": had, "has": has}})
	}})
}
