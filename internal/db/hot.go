package db

import (
	"strings"

	ckpt "github.com/ckptsidecar/ckptsidecar"
)

// hotRun is what the next save of a run has to know, as it is on disk: it
// spares a save five questions to the database. Only the writer has it.
type hotRun struct {
	run  runRow    // as far as saves look at it and change it
	rows []heldRow // what a routine save asks retention about, newest first
	// quiet says that nobody needs any of its checkpoints but the next save: no
	// open operation, no prompt, no fork.
	quiet bool
}

type hotKey struct {
	agent int64
	name  string
}

// The bounds of what is kept: so many runs, with so many checkpoints each.
const (
	hotMost     = 4096
	hotRowsMost = 64
)

// hotRuns are the runs that are being saved. Whatever else changes a run, a
// checkpoint or who needs one makes the writer forget them all (see forgets),
// and so does a rollback, and another program that writes.
type hotRuns struct {
	runs map[hotKey]*hotRun
}

func (h *hotRuns) forgetAll() { clear(h.runs) }

func (h *hotRuns) forget(run *runRow) { delete(h.runs, hotKey{run.AgentID, run.Name}) }

// The statements that change a run's history and tell hotRuns of it, or change
// nothing that they know.
const (
	insertCheckpoint = `INSERT INTO checkpoints (n, id, run_id, seq, kind, parent, created_at, size, stored_size, sha256, content_type,
		labels, metadata, step, operation, pinned, suspect, state_of, program, pieces, body)
		VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)`
	updateSavedRun = `UPDATE runs SET last_seq = ?1, head = ?2, removed = ?3, stored_bytes = ?4, updated_at = ?5, heartbeat_at = ?5 WHERE id = ?6`
	updateRemoved  = `UPDATE runs SET removed = ?, stored_bytes = ?, updated_at = ? WHERE id = ?`
	updateSign     = `UPDATE runs SET updated_at = ?1, heartbeat_at = ?1 WHERE id = ?2`
	updateBeat     = `UPDATE runs SET heartbeat_at = ? WHERE id = ?`
	updateProgress = `UPDATE runs SET progress = ?, progress_at = ? WHERE id = ?`
	updateStepped  = `UPDATE runs SET updated_at = ?1, heartbeat_at = ?1, steps_ended = steps_ended + 1, input_tokens = input_tokens + ?2,
		output_tokens = output_tokens + ?3, cost_usd = cost_usd + ?4 WHERE id = ?5`
	updateBack      = `UPDATE runs SET back_seq = ? WHERE id = ?`
	updateLastEvent = `UPDATE runs SET last_event = ? WHERE id = ?`
)

// What deletes a checkpoint answers what its row took beside the state.
var (
	deleteInline     = `DELETE FROM checkpoints WHERE n = ? RETURNING ` + ofRuns["checkpoints"]
	deleteCheckpoint = `DELETE FROM checkpoints WHERE n = ? RETURNING pieces, ` + ofRuns["checkpoints"] + ` AS beside`
)

var (
	telling  = []string{insertCheckpoint, deleteInline, deleteCheckpoint, updateSavedRun, updateRemoved, updateSign, updateBeat, updateProgress, updateStepped, updateBack, updateLastEvent}
	watching = []string{"agents", "runs", "checkpoints", "operations", "prompts"}
)

// forgets says that a statement changes what hotRuns know without telling them.
func forgets(query string) bool {
	for _, known := range telling {
		if query == known {
			return false
		}
	}
	for _, table := range watching {
		for _, verb := range [...]string{"INSERT INTO ", "UPDATE ", "DELETE FROM "} {
			if strings.Contains(query, verb+table+" ") {
				return true
			}
		}
	}
	return false
}

// hotRun is a run that a save may take the short way into, nil for others: it
// is there and running, its policy keeps few, and its newest checkpoint is clean.
func (s *Store) hotRun(tx *tx, agent *agentRow, name string) (*hotRun, error) {
	key := hotKey{agent.ID, name}
	if h := s.hot.runs[key]; h != nil {
		return h, nil
	}
	run, err := tx.run(agent.ID, name)
	if err != nil || run == nil || run.Status != ckpt.RunRunning || run.LastSeq == 0 || agent.policy.RoutineKeep >= hotRowsMost {
		return nil, err
	}
	h := &hotRun{run: *run}
	if h.rows, err = tx.routineRows(run, agent.policy.RoutineKeep); err != nil {
		return nil, err
	}
	if len(h.rows) > hotRowsMost || len(h.rows) > 0 && h.rows[0].Suspect {
		return nil, nil
	}
	_, err = tx.get(&h.quiet, `SELECT NOT EXISTS (SELECT 1 FROM operations WHERE run_id = ?1 AND checkpoint IS NOT NULL AND status IN ('open', 'uncertain'))
		AND NOT EXISTS (SELECT 1 FROM prompts WHERE run_id = ?1 AND checkpoint IS NOT NULL AND answered_at IS NULL)
		AND NOT EXISTS (SELECT 1 FROM runs f JOIN checkpoints c ON c.id = f.forked_from WHERE c.run_id = ?1 AND f.forked_from IS NOT NULL AND f.last_seq = 0 AND f.ended_at IS NULL)`, run.ID)
	if err != nil {
		return nil, err
	}
	if s.hot.runs == nil {
		s.hot.runs = make(map[hotKey]*hotRun)
	}
	if len(s.hot.runs) >= hotMost {
		s.hot.forgetAll()
	}
	s.hot.runs[key] = h
	return h, nil
}
