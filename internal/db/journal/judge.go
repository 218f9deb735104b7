package journal

import (
	"encoding/json"
	"errors"
	"fmt"

	ckpt "github.com/ckptsidecar/ckptsidecar"
	"github.com/ckptsidecar/ckptsidecar/internal/db/archive"
	"github.com/ckptsidecar/ckptsidecar/internal/db/ledger"
	"github.com/ckptsidecar/ckptsidecar/internal/fleet"
	"github.com/ckptsidecar/ckptsidecar/internal/retention"
)

// This file reads what retention must know of a run, from the engine's unsealed copy. If something
// cannot be read, it returns an error: then nothing of the run may be removed.

// lostRow has the fields of a run's row that retention must know.
type lostRow struct {
	Status     ckpt.RunStatus `json:"status"`
	EndedAt    ckpt.Time      `json:"ended_at"`
	Head       string         `json:"head"`
	ForkedFrom string         `json:"forked_from"`
	LastSeq    int64          `json:"last_seq"`
	BackSeq    *int64         `json:"back_seq"`
}

func readLostRow(r *fleet.LostRun) (row lostRow, err error) {
	if r.Damage != "" {
		return row, errors.New(r.Damage)
	}
	if err := json.Unmarshal([]byte(r.Doc), &row); err != nil {
		return row, fmt.Errorf("its document: %w", err)
	}
	return row, nil
}

// LostPolicy is the policy of an agent in the engine.
func LostPolicy(a *fleet.LostAgent) (p ckpt.Policy, err error) {
	var line struct {
		Policy json.RawMessage `json:"policy"`
	}
	if err := json.Unmarshal([]byte(a.Doc), &line); err != nil {
		return p, fmt.Errorf("agent %s: %w", a.Name, err)
	}
	row, err := (&ledger.AgentRow{Policy: string(line.Policy)}).Parsed()
	if err != nil {
		return p, fmt.Errorf("the policy of agent %s: %w", a.Name, err)
	}
	return row.Settings, nil
}

// LostForks returns the checkpoints from which runs without checkpoints of their own were forked.
func LostForks(agents []fleet.LostAgent) (map[string]bool, error) {
	forks := map[string]bool{}
	for i := range agents {
		for j := range agents[i].Runs {
			row, err := readLostRow(&agents[i].Runs[j])
			if err != nil {
				return nil, err
			}
			if row.ForkedFrom != "" && row.LastSeq == 0 && row.EndedAt.IsZero() {
				forks[row.ForkedFrom] = true
			}
		}
	}
	return forks, nil
}

// LostHistory is what retention must know of a run. forks are checkpoints that forks need. A
// checkpoint whose copy in the engine is damaged counts for nothing, as on this host.
func LostHistory(r *fleet.LostRun, forks map[string]bool) (h retention.History, err error) {
	row, err := readLostRow(r)
	if err != nil {
		return h, err
	}
	h.Status, h.EndedAt = row.Status, row.EndedAt.Time
	if len(r.Unread) > 0 {
		return h, fmt.Errorf("its %s %s cannot be read: %s", r.Unread[0].Kind, r.Unread[0].Key, r.Unread[0].Reason)
	}
	needed, err := lostNeeds(r)
	if err != nil {
		return h, err
	}
	for i := len(r.Checkpoints) - 1; i >= 0; i-- {
		held, err := lostHeld(&r.Checkpoints[i])
		if err != nil {
			return h, fmt.Errorf("checkpoint %s: %w", r.Checkpoints[i].ID, err)
		}
		held.NeededBy = needed[held.ID]
		if forks[held.ID] {
			held.NeededBy = "a fork"
		}
		h.Checkpoints = append(h.Checkpoints, held)
	}
	if h.EndedAt.IsZero() {
		needToGoOn(&h, &row)
	}
	return h, nil
}

// lostHeld reads one checkpoint. Of a damaged one, it returns only the columns.
func lostHeld(c *fleet.Checkpoint) (held retention.Held, err error) {
	held = retention.Held{ID: c.ID, Seq: c.Seq, Kind: ckpt.Kind(c.Kind), Suspect: c.Suspect, Damaged: c.Damage != ""}
	seen, err := archive.ReadCheckpoint(c.Doc)
	if err != nil {
		return held, err
	}
	held.CreatedAt, held.Pinned, held.Operation = seen.CreatedAt.Time, seen.Pinned, seen.Operation != ""
	return held, nil
}

// lostNeeds says which checkpoints the operations and prompts of a run need.
func lostNeeds(r *fleet.LostRun) (map[string]string, error) {
	needed := map[string]string{}
	for _, row := range r.Rows {
		var d struct {
			Status     ckpt.OperationStatus `json:"status"`
			Checkpoint string               `json:"checkpoint"`
			AnsweredAt string               `json:"answered_at"`
		}
		if err := json.Unmarshal([]byte(row.Doc), &d); err != nil {
			return nil, fmt.Errorf("%s %s: %w", row.Kind, row.Key, err)
		}
		switch {
		case d.Checkpoint == "":
		case row.Kind == archive.KindOperation &&
			(d.Status == ckpt.OperationOpen || d.Status == ckpt.OperationUncertain):
			needed[d.Checkpoint] = "an " + string(d.Status) + " operation"
		case row.Kind == archive.KindPrompt && d.AnsweredAt == "":
			needed[d.Checkpoint] = "a prompt"
		}
	}
	return needed, nil
}

// needToGoOn marks what a run that may continue needs: its head, its newest checkpoint, and the
// rollback target if drift may be beginning.
func needToGoOn(h *retention.History, row *lostRow) {
	back := row.BackSeq
	for i := range h.Checkpoints {
		c := &h.Checkpoints[i]
		switch {
		case c.NeededBy != "":
		case i == 0 || c.ID == row.Head:
			c.NeededBy = ledger.NextSave
		case back != nil && c.Seq <= *back && !c.Suspect && !c.Damaged:
			c.NeededBy, back = ledger.BeginningDrift, nil
		}
	}
}
