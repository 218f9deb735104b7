package ledger

import (
	"context"
	"encoding/json"
	"os"

	ckpt "github.com/ckptsidecar/ckptsidecar"
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

// fleetIDKey is the row of meta with the id under which this database belongs to a fleet, if that
// is not the database's own id.
const fleetIDKey = "fleet_id"

// FleetID is the id under which this database belongs to a fleet: its own, until an operator lets
// it join again under another id.
func (s *Core) FleetID() string {
	if id := s.fleetID.Load(); id != nil {
		return *id
	}
	return s.ID
}

// loadFleetID reads that id.
func (s *Core) loadFleetID(ctx context.Context) error {
	var there []string
	if err := s.RO.SelectContext(ctx, &there, `SELECT value FROM meta WHERE key = ?`, fleetIDKey); err != nil || len(there) == 0 {
		return err
	}
	s.fleetID.Store(&there[0])
	return nil
}

// SetFleetID gives this database another id in the fleet. The audit log records why.
func (s *Core) SetFleetID(id, why string) error {
	err := s.Submit(&Op{Claim: sqlite.GoesOn, Do: func(tx *Tx) error {
		err := tx.Insert(`INSERT INTO meta (key, value) VALUES (?, ?) ON CONFLICT (key) DO UPDATE SET value = excluded.value`, fleetIDKey, id)
		if err != nil {
			return err
		}
		return tx.Audit(AuditEntry{Who: Daemon, PID: os.Getpid(), Action: "rejoin_fleet", Outcome: OutcomeDone, Reason: why,
			Detail: map[string]any{"from": s.FleetID(), "to": id}})
	}})
	if err == nil {
		s.fleetID.Store(&id)
	}
	return err
}

// NoteDropped notes in the audit log that an administrator has dropped the strand of a run, and why. The subject of the
// row is the identity of the run.
func (s *Core) NoteDropped(sc ckpt.Scope, owner string, run ckpt.RunRef, uid string, detail map[string]any) {
	e := Entry(sc, "drop_strand", run.Agent)
	e.Owner, e.Run, e.Subject, e.Detail = owner, RunName(run.Run), uid, detail
	s.Record(e)
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
