package db

import (
	"context"
	"encoding/json"
	"fmt"

	ckpt "github.com/ckptsidecar/ckptsidecar"
	"github.com/ckptsidecar/ckptsidecar/internal/db/ledger"
	"github.com/ckptsidecar/ckptsidecar/internal/db/sqlite"
)

// Erase removes an agent for good: its rows, states and keys are zeroed in the file, and the
// write-ahead log is emptied of them. The audit log keeps the names of the agent and its runs, and
// what was done when. Texts of people and models, which are stored beside the log, are removed.
//
// A large agent takes several transactions. The first one notes in scrub_owed that the erasure is
// owed. If the erasure is interrupted, the next start finishes it, and so does a repeated call.
func (s *Store) Erase(ctx context.Context, sc ckpt.Scope, name string) (*ckpt.Erased, error) {
	if err := ckpt.CheckAgentName(name); err != nil {
		return nil, err
	}
	if err := s.SettleOwner(ctx, sc.Whose()); err != nil { // until then it is not known whose the waiting spans are
		return nil, err
	}
	s.erasing.Add(1)
	defer s.erasing.Add(-1)
	erased, err := s.eraseRows(ctx, sc, name)
	if err != nil {
		return nil, err
	}
	return erased, s.scrub(ctx)
}

// FinishErasures finishes the erasures that were interrupted.
func (s *Store) FinishErasures(ctx context.Context) error {
	if s.Engine.ReadOnly() != "" || !s.owed.Load() {
		return nil
	}
	var rows []struct{ Owner, Agent string }
	err := s.RO.SelectContext(ctx, &rows, `SELECT a.owner, a.name AS agent FROM scrub_owed o JOIN agents a ON a.id = o.agent_id`)
	if err != nil {
		return sqlite.ReadError(err)
	}
	for _, row := range rows {
		sc := ckpt.Scope{Caller: ckpt.Caller{Owner: ledger.Daemon, Admin: true}, Target: row.Owner}
		if _, err := s.eraseRows(ctx, sc, row.Agent); err != nil && ckpt.CodeOf(err) != ckpt.CodeNotFound {
			return err
		}
	}
	return s.scrub(ctx)
}

// lookAtOwed looks whether there are erasures that are not finished.
func (s *Store) lookAtOwed(ctx context.Context) error {
	var owed bool
	err := s.RO.GetContext(ctx, &owed, `SELECT EXISTS (SELECT 1 FROM scrub_owed)`)
	s.owed.Store(owed)
	return sqlite.ReadError(err)
}

// eraseRows deletes the rows of an agent, in one transaction or, if they are many, in several. The
// rows of an agent that is already gone may still be owed a scrub.
func (s *Store) eraseRows(ctx context.Context, sc ckpt.Scope, name string) (*ckpt.Erased, error) {
	e := ledger.Entry(sc, "erase", name)
	for {
		var erased *ckpt.Erased
		more := false
		err := s.Submit(&ledger.Op{Owner: sc.Caller.Owner, Claim: sqlite.Frees, Zero: true, Entry: e, Do: func(tx *ledger.Tx) error {
			agent, err := s.NeedAgent(tx, sc, name)
			if ckpt.CodeOf(err) == ckpt.CodeNotFound {
				if found, owedErr := erasedBefore(tx, sc.Whose(), name, &erased); found || owedErr != nil {
					return owedErr
				}
			}
			if err != nil {
				return err
			}
			if erased, err = s.owe(tx, agent); err != nil {
				return err
			}
			if more, err = s.eraseSome(tx, agent, e); more || err != nil {
				return err
			}
			return s.erase(tx, agent, e, erased)
		}})
		if err != nil {
			return nil, err
		}
		if !more {
			s.Usage.RecountAfter(ctx, erased.Owner)
			return erased, nil
		}
	}
}

// erasedBefore reads what was erased of an agent that is gone and still owed a scrub.
func erasedBefore(tx *ledger.Tx, owner, name string, erased **ckpt.Erased) (bool, error) {
	var text string
	found, err := tx.Get(&text, `SELECT erased FROM scrub_owed WHERE owner = ? AND agent = ? ORDER BY agent_id DESC LIMIT 1`, owner, name)
	if found {
		err = json.Unmarshal([]byte(text), erased)
	}
	return found, err
}

// owe notes that an agent is being erased, and returns what it had when that began.
func (s *Store) owe(tx *ledger.Tx, agent *ledger.AgentRow) (*ckpt.Erased, error) {
	var text string
	erased := &ckpt.Erased{Agent: agent.Name, Owner: agent.Owner}
	found, err := tx.Get(&text, `SELECT erased FROM scrub_owed WHERE agent_id = ?`, agent.ID)
	tx.OnCommit(func() { s.owed.Store(true) })
	if err != nil {
		return nil, err
	}
	if found {
		return erased, json.Unmarshal([]byte(text), erased)
	}
	var row agentSizes
	if _, err := tx.Get(&row, sizesOfAgent, agent.ID); err != nil {
		return nil, err
	}
	erased.Runs, erased.Checkpoints, erased.StoredBytes, erased.FilesBytes = row.Runs, row.Checkpoints, row.StoredBytes, row.FilesBytes
	erased.Uncertain = row.Uncertain
	b, err := json.Marshal(erased)
	if err != nil {
		return nil, err
	}
	return erased, tx.Insert(`INSERT INTO scrub_owed (agent_id, owner, agent, began_at, erased) VALUES (?, ?, ?, ?, ?)`,
		agent.ID, agent.Owner, agent.Name, tx.Now, string(b))
}

// The bounds of one transaction of an erasure. Half of the smallest reserve that is the default has
// room for the pages that the transaction writes.
const (
	erasedBytes = 1 << 20
	erasedRows  = 1000
)

// bulks are what can be large of an agent besides its checkpoints. What is left after each delete is
// whole: contents and trees refer only to older ones, and a journal begins later.
var bulks = []struct {
	list   string   // the rows of an agent that go first: two keys, and their bytes
	remove []string // one of them
}{
	{`SELECT id AS a, 0 AS b, (SELECT coalesce(sum(length(path) + 50), 0) FROM tree_files WHERE tree_id = t.id) AS bytes
		FROM trees t WHERE agent_id = ? ORDER BY id DESC LIMIT 0 + ?`, []string{
		`DELETE FROM checkpoint_trees WHERE ?2 = 0 AND tree_id = ?1`,
		`DELETE FROM tree_files WHERE ?2 = 0 AND tree_id = ?1`,
		`DELETE FROM trees WHERE ?2 = 0 AND id = ?1`,
	}},
	{`SELECT id AS a, 0 AS b, length(data) AS bytes FROM contents WHERE agent_id = ? ORDER BY id DESC LIMIT 0 + ?`, []string{
		`DELETE FROM content_uses WHERE ?2 = 0 AND used_by = ?1`,
		`DELETE FROM content_leases WHERE ?2 = 0 AND content_id = ?1`,
		`DELETE FROM content_secrets WHERE ?2 = 0 AND content_id = ?1`,
		`DELETE FROM contents WHERE ?2 = 0 AND id = ?1`,
	}},
	{`SELECT e.run_id AS a, e.seq AS b, length(e.payload) AS bytes FROM runs r JOIN events e ON e.run_id = r.id WHERE r.agent_id = ?
		ORDER BY e.run_id, e.seq LIMIT 0 + ?`, []string{`DELETE FROM events WHERE run_id = ?1 AND seq = ?2`}},
	{`SELECT s.id AS a, 0 AS b, coalesce(length(s.args), 0) + coalesce(length(s.result), 0) + coalesce(length(s.error), 0) AS bytes
		FROM runs r JOIN steps s ON s.run_id = r.id WHERE r.agent_id = ? ORDER BY s.id LIMIT 0 + ?`, []string{`DELETE FROM steps WHERE ?2 = 0 AND id = ?1`}},
}

// eraseSome removes some of an agent, if what it has is too much for one transaction.
func (s *Store) eraseSome(tx *ledger.Tx, agent *ledger.AgentRow, e ledger.AuditEntry) (more bool, err error) {
	var bytes, rows int64
	full := func(size int64) bool {
		bytes, rows = bytes+size, rows+1
		return bytes >= erasedBytes || rows >= erasedRows
	}
	var checkpoints []ledger.HeldRow
	err = tx.List(&checkpoints, `SELECT `+ledger.HeldColumns+` FROM checkpoints WHERE slot IN (SELECT c.slot FROM runs r
		CROSS JOIN checkpoints c ON c.run_id = r.id WHERE r.agent_id = ? LIMIT 0 + ?) ORDER BY slot`, agent.ID, erasedRows)
	if err != nil {
		return false, err
	}
	for i := range checkpoints {
		if full(checkpoints[i].StoredSize) {
			return true, s.eraseCheckpoints(tx, agent, checkpoints[:i+1], e)
		}
	}
	type keyed struct{ A, B, Bytes int64 }
	for _, bulk := range bulks {
		var list []keyed
		if err := tx.List(&list, bulk.list, agent.ID, erasedRows); err != nil {
			return false, err
		}
		for i := range list {
			if !full(list[i].Bytes) {
				continue
			}
			if len(checkpoints) > 0 { // they go before what they name
				return true, s.eraseCheckpoints(tx, agent, checkpoints, e)
			}
			tx.OnCommit(func() { s.Files.ForgetAgent(agent) })
			for _, k := range list[:i+1] {
				for _, remove := range bulk.remove {
					if err := tx.Exec(remove, k.A, k.B); err != nil {
						return false, err
					}
				}
			}
			return true, nil
		}
	}
	return false, nil
}

// eraseCheckpoints removes checkpoints of an agent, which come run by run.
func (s *Store) eraseCheckpoints(tx *ledger.Tx, agent *ledger.AgentRow, rows []ledger.HeldRow, e ledger.AuditEntry) error {
	for len(rows) > 0 {
		id, n := ledger.RunOf(rows[0].Slot), 1
		for n < len(rows) && ledger.RunOf(rows[n].Slot) == id {
			n++
		}
		run, _, err := s.RunWithAgent(tx, id)
		if err != nil {
			return err
		}
		reasons := make([]string, n)
		for i := range reasons {
			reasons[i] = "its agent is erased"
		}
		if _, err := s.Remove(tx, agent, run, rows[:n], reasons, e); err != nil {
			return err
		}
		if err := tx.MoveHead(id); err != nil {
			return err
		}
		s.ForgetPast(id)
		rows = rows[n:]
	}
	return nil
}

// erasures delete the rows of an agent. A row that refers to another row is deleted before it.
var erasures = []string{
	`DELETE FROM prompts WHERE run_id IN (SELECT id FROM runs WHERE agent_id = ?)`,
	`DELETE FROM findings WHERE run_id IN (SELECT id FROM runs WHERE agent_id = ?)`,
	`DELETE FROM event_batches WHERE owner = (SELECT owner FROM agents WHERE id = ?1) AND run_id IN (SELECT id FROM runs WHERE agent_id = ?1)`,
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

// agentSizes is how much an agent has.
type agentSizes struct {
	Runs        int64 `db:"runs"`
	Checkpoints int64 `db:"checkpoints"`
	StoredBytes int64 `db:"stored_bytes"`
	FilesBytes  int64 `db:"files_bytes"`
	Uncertain   int64 `db:"uncertain"` // operations of which nobody knows whether they took effect
}

// sizesOfAgent reads the sizes of an agent.
const sizesOfAgent = `SELECT count(*) AS runs, coalesce(sum(last_seq - removed), 0) AS checkpoints, coalesce(sum(stored_bytes), 0) AS stored_bytes,
	(SELECT coalesce(sum(length(data)), 0) FROM contents WHERE agent_id = ?1) AS files_bytes,
	(SELECT count(*) FROM runs r CROSS JOIN operations o ON o.run_id = r.id WHERE r.agent_id = ?1 AND ` + isUnresolved + `) AS uncertain FROM runs WHERE agent_id = ?1`

// erase deletes the rows that are left of an agent.
func (s *Store) erase(tx *ledger.Tx, agent *ledger.AgentRow, e ledger.AuditEntry, erased *ckpt.Erased) error {
	var uids []string // the ids by which a fleet knows the copies on other hosts
	if err := tx.List(&uids, `SELECT uid FROM agents WHERE id = ?1 UNION ALL SELECT uid FROM runs WHERE agent_id = ?1`, agent.ID); err != nil {
		return err
	}
	if err := tx.FreeAgent(agent); err != nil {
		return err
	}
	if err := s.UnmarkAgent(tx, agent); err != nil {
		return err
	}
	if err := tx.EraseTexts(agent); err != nil {
		return err
	}
	if err := tx.ForgetNotices(agent.Owner, agent.Name); err != nil {
		return err
	}
	for _, statement := range erasures {
		if err := tx.Exec(statement, agent.ID); err != nil {
			return err
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
	e.Owner = agent.Owner
	e.Detail = map[string]any{"runs": erased.Runs, "checkpoints": erased.Checkpoints, "stored_bytes": erased.StoredBytes,
		"files_bytes": erased.FilesBytes, "uncertain_operations": erased.Uncertain, "uids": uids}
	return tx.Audit(e)
}

// scrub gives every free page back, so that no page keeps an older state, and empties the
// write-ahead log. Only then is nothing owed any more.
func (s *Store) scrub(ctx context.Context) error {
	gone := []int64{}
	if err := s.RO.SelectContext(ctx, &gone, `SELECT agent_id FROM scrub_owed WHERE agent_id NOT IN (SELECT id FROM agents)`); err != nil {
		return sqlite.ReadError(err)
	}
	for pages := int64(sqlite.VacuumPages * 16); ; {
		freed, err := s.Engine.Vacuum(pages, true)
		if ckpt.CodeOf(err) == ckpt.CodeStorageFull {
			if pages /= 8; pages > 0 {
				continue
			}
			return traces(err, "there is no room to zero")
		}
		if err != nil {
			return err
		}
		if freed == 0 {
			break
		}
	}
	if err := s.Engine.EmptyLog(ctx); err != nil {
		return traces(err, "a reader still holds")
	}
	ids, err := json.Marshal(gone)
	if err != nil {
		return err
	}
	err = s.Submit(&ledger.Op{Owner: ledger.Daemon, Claim: sqlite.Frees, Do: func(tx *ledger.Tx) error {
		return tx.Exec(`DELETE FROM scrub_owed WHERE agent_id IN (SELECT value FROM json_each(?))`, string(ids))
	}})
	if err != nil {
		return err
	}
	return s.lookAtOwed(ctx)
}

// traces is the error for an agent that is erased while traces of it are still in the log.
func traces(err error, why string) error {
	return &ckpt.Error{Code: ckpt.CodeBusy, Outcome: ckpt.OutcomeSaved, Err: err,
		Message: fmt.Sprintf("the agent is erased, but %s the write-ahead log, in which traces remain: the daemon tries again "+
			"every minute, and status says so until the traces are gone: %v", why, err)}
}
