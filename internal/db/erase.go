package db

import (
	"context"
	"fmt"

	ckpt "github.com/ckptsidecar/ckptsidecar"
	"github.com/ckptsidecar/ckptsidecar/internal/db/ledger"
	"github.com/ckptsidecar/ckptsidecar/internal/db/sqlite"
)

// Erase removes an agent for good: its rows, states and keys are zeroed in the file, and the
// write-ahead log is emptied of them. The audit log keeps the names of the agent and its runs, and
// what was done when. Texts of people and models, which are stored beside the log, are removed.
func (s *Store) Erase(ctx context.Context, sc ckpt.Scope, name string) (*ckpt.Erased, error) {
	if err := ckpt.CheckAgentName(name); err != nil {
		return nil, err
	}
	if err := s.SettleOwner(ctx, sc.Whose()); err != nil { // until then it is not known whose the waiting spans are
		return nil, err
	}
	e := ledger.Entry(sc, "erase", name)
	var erased *ckpt.Erased
	err := s.Submit(&ledger.Op{Owner: sc.Caller.Owner, Claim: sqlite.Frees, Entry: e, Do: func(tx *ledger.Tx) error {
		agent, err := s.NeedAgent(tx, sc, name)
		if err != nil {
			return err
		}
		erased, err = s.erase(tx, agent, e)
		return err
	}})
	if err != nil {
		return nil, err
	}
	s.Usage.RecountAfter(ctx, erased.Owner)
	return erased, s.scrub(ctx)
}

// erasures delete the rows of an agent. A row that refers to another row is deleted before it.
var erasures = []string{
	`DELETE FROM prompts WHERE run_id IN (SELECT id FROM runs WHERE agent_id = ?)`,
	`DELETE FROM findings WHERE run_id IN (SELECT id FROM runs WHERE agent_id = ?)`,
	`DELETE FROM event_batches WHERE (owner, n) IN (SELECT a.owner, e.batch FROM events e JOIN runs r ON r.id = e.run_id
		JOIN agents a ON a.id = r.agent_id WHERE r.agent_id = ?)`,
	`DELETE FROM events WHERE run_id IN (SELECT id FROM runs WHERE agent_id = ?)`,
	`DELETE FROM operations WHERE run_id IN (SELECT id FROM runs WHERE agent_id = ?)`,
	`DELETE FROM steps WHERE run_id IN (SELECT id FROM runs WHERE agent_id = ?)`,
	`DELETE FROM checkpoint_trees WHERE run_id IN (SELECT id FROM runs WHERE agent_id = ?)`,
	`DELETE FROM tree_files WHERE tree_id IN (SELECT id FROM trees WHERE agent_id = ?)`,
	`DELETE FROM trees WHERE agent_id = ?`,
	`DELETE FROM content_uses WHERE used IN (SELECT id FROM contents WHERE agent_id = ?)`,
	`DELETE FROM content_leases WHERE content_id IN (SELECT id FROM contents WHERE agent_id = ?)`,
	`DELETE FROM content_secrets WHERE content_id IN (SELECT id FROM contents WHERE agent_id = ?)`,
	`DELETE FROM contents WHERE agent_id = ?`,
	`DELETE FROM checkpoints WHERE run_id IN (SELECT id FROM runs WHERE agent_id = ?)`,
	`DELETE FROM segments WHERE run_id IN (SELECT id FROM runs WHERE agent_id = ?)`,
	`DELETE FROM runs WHERE agent_id = ?`,
	`DELETE FROM idempotency WHERE agent_id = ?`,
	`DELETE FROM ids WHERE agent_id = ?`,
	`DELETE FROM agents WHERE id = ?`,
}

// sizesOfAgent reads how much an agent has stored.
const sizesOfAgent = `SELECT count(*) AS runs, coalesce(sum(last_seq - removed), 0) AS checkpoints, coalesce(sum(stored_bytes), 0) AS stored_bytes,
	(SELECT coalesce(sum(length(data)), 0) FROM contents WHERE agent_id = ?1) AS files_bytes FROM runs WHERE agent_id = ?1`

func (s *Store) erase(tx *ledger.Tx, agent *ledger.AgentRow, e ledger.AuditEntry) (*ckpt.Erased, error) {
	erased := &ckpt.Erased{Agent: agent.Name, Owner: agent.Owner}
	row := struct {
		Runs        int64 `db:"runs"`
		Checkpoints int64 `db:"checkpoints"`
		StoredBytes int64 `db:"stored_bytes"`
		FilesBytes  int64 `db:"files_bytes"`
	}{}
	_, err := tx.Get(&row, sizesOfAgent, agent.ID)
	if err != nil {
		return nil, err
	}
	erased.Runs, erased.Checkpoints, erased.StoredBytes, erased.FilesBytes = row.Runs, row.Checkpoints, row.StoredBytes, row.FilesBytes
	var uids []string // the ids by which a fleet knows the copies on other hosts
	if err := tx.List(&uids, `SELECT uid FROM agents WHERE id = ?1 UNION ALL SELECT uid FROM runs WHERE agent_id = ?1`, agent.ID); err != nil {
		return nil, err
	}
	if err := tx.FreeAgent(agent); err != nil {
		return nil, err
	}
	if err := s.UnmarkAgent(tx, agent); err != nil {
		return nil, err
	}
	if err := tx.EraseTexts(agent); err != nil {
		return nil, err
	}
	if err := tx.ForgetNotices(agent.Owner, agent.Name, ""); err != nil {
		return nil, err
	}
	for _, statement := range append([]string{`PRAGMA secure_delete = 1`}, erasures...) {
		if err := eraseStep(tx, statement, agent.ID); err != nil {
			return nil, err
		}
		tx.GotOn()
	}
	s.ChangeAgent(tx, ledger.AgentKey{Owner: agent.Owner, Name: agent.Name}, nil)
	s.Watches.DropAgent(agent.Owner, agent.Name)
	tx.OnCommit(s.prompts.Tell) // callers that wait for an answer learn that the prompt is gone
	tx.OnCommit(func() {
		s.States.ForgetAgent(agent.Owner, agent.Name)
		s.Shared.ForgetAgent(agent.Owner, agent.Name)
		s.Files.ForgetAgent(agent)
	})
	e.Detail = map[string]any{"runs": erased.Runs, "checkpoints": erased.Checkpoints, "stored_bytes": erased.StoredBytes,
		"files_bytes": erased.FilesBytes, "uids": uids}
	return erased, tx.Audit(e)
}

func eraseStep(tx *ledger.Tx, statement string, agentID int64) error {
	if statement[0] == 'P' { // a pragma takes no argument, and returns a row
		var on int
		_, err := tx.Get(&on, statement)
		return err
	}
	return tx.Exec(statement, agentID)
}

// scrub gives every free page back, so that no page keeps an older state, and empties the
// write-ahead log.
func (s *Store) scrub(ctx context.Context) error {
	for {
		freed, err := s.Engine.Vacuum(sqlite.VacuumPages * 16)
		if ckpt.CodeOf(err) == ckpt.CodeStorageFull {
			return traces(err, "there is no room to zero")
		}
		if err != nil {
			return err
		}
		if freed == 0 {
			break
		}
	}
	if err := s.deleteFast(); err != nil {
		s.Log.Warn("deletes continue to zero more than they need", "error", err)
	}
	if err := s.Engine.EmptyLog(ctx); err != nil {
		return traces(err, "a reader still holds")
	}
	return nil
}

// traces is the error for an agent that is erased while traces of it are still in the log.
func traces(err error, why string) error {
	return &ckpt.Error{Code: ckpt.CodeBusy, Outcome: ckpt.OutcomeSaved, Err: err,
		Message: fmt.Sprintf("the agent is erased, but %s the write-ahead log, in which traces remain until it is overwritten: %v", why, err)}
}

// deleteFast undoes the pragma that erase set: ordinary deletes zero only the pages that they
// touch.
func (s *Store) deleteFast() error {
	return s.Engine.Pragma(`PRAGMA secure_delete = FAST`)
}
