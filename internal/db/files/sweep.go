package files

import (
	"context"
	"fmt"

	ckpt "github.com/ckptsidecar/ckptsidecar"
	"github.com/ckptsidecar/ckptsidecar/internal/db/blob"
	"github.com/ckptsidecar/ckptsidecar/internal/db/ledger"
	"github.com/ckptsidecar/ckptsidecar/internal/db/sqlite"
	"github.com/ckptsidecar/ckptsidecar/internal/db/usage"
)

// SweepFiles removes what no checkpoint needs any more: the names of trees by removed checkpoints,
// then trees, then contents. Leased trees and contents stay. Each transaction is short.
func (s *Files) SweepFiles(ctx context.Context) error {
	s.known.forgetIdle(s.Opt.Now())
	s.alike.forgetIdle(s.Opt.Now())
	if s.Ready(ctx) != nil {
		return nil
	}
	s.sweeping.Lock()
	defer s.sweeping.Unlock()
	for _, step := range []func(context.Context) (bool, error){s.sweepNames, s.sweepTrees, s.sweepContents} {
		for more := true; more && ctx.Err() == nil; {
			var err error
			if more, err = step(ctx); err != nil {
				return err
			}
		}
	}
	return s.trimAgents(ctx)
}

// sweepWith runs one transaction of the sweep as the daemon.
func (s *Files) sweepWith(do func(tx *ledger.Tx) error) error {
	return s.Submit(&ledger.Op{Owner: ledger.Daemon, Claim: sqlite.Frees, Do: func(tx *ledger.Tx) error {
		tx.Touches() // trees and contents are not what a save reads
		return do(tx)
	}})
}

// goneNames are the names of trees by checkpoints that are gone. Another statement reads them
// first, so that the sweep writes nothing if there is nothing to do.
const goneNames = ` FROM checkpoint_trees x WHERE NOT EXISTS (SELECT 1 FROM checkpoints c
	WHERE c.run_id = x.run_id AND c.kind IN ('routine', 'pre_operation', 'recovery') AND c.seq = x.seq AND c.n = x.n)`

func (s *Files) sweepNames(ctx context.Context) (more bool, err error) {
	if err := s.RO.GetContext(ctx, &more, `SELECT EXISTS (SELECT 1`+goneNames+`)`); err != nil || !more {
		return false, sqlite.ReadError(err)
	}
	err = s.sweepWith(func(tx *ledger.Tx) error {
		more = false
		var rows []struct {
			N     int64  `db:"n"`
			Place int64  `db:"place"`
			Tree  *int64 `db:"tree_id"`
			Owner string `db:"owner"`
			Gone  string `db:"gone"`
		}
		err := tx.List(&rows, `SELECT x.n, x.place, x.tree_id, coalesce(x.gone, '') AS gone,
			(SELECT a.owner FROM runs r JOIN agents a ON a.id = r.agent_id WHERE r.id = x.run_id) AS owner`+goneNames+` LIMIT 0 + ?`, batchRows)
		if err != nil {
			return err
		}
		for _, row := range rows {
			if err := tx.Exec(`DELETE FROM checkpoint_trees WHERE n = ? AND place = ?`, row.N, row.Place); err != nil {
				return err
			}
			tx.Tally.Add(row.Owner, -sqlite.RowLength(row.Gone))
			if err := letGo(tx, row.Tree); err != nil {
				return err
			}
		}
		more = len(rows) == batchRows
		return nil
	})
	return more, err
}

// letGo ends the lease of a tree that a checkpoint no longer names, so that the sweep looks at it.
func letGo(tx *ledger.Tx, id *int64) error {
	if id == nil {
		return nil
	}
	return tx.Exec(`UPDATE trees SET until = ? WHERE id = ? AND until IS NULL`, tx.Now, *id)
}

// endLeases ends the leases of a tree that no checkpoint names any more, and of its contents, so that
// their room is free at once. A client that still needs one of them is told that it is missing, and
// sends it again.
func endLeases(tx *ledger.Tx, id int64) error {
	const unnamed = ` AND NOT EXISTS (SELECT 1 FROM checkpoint_trees x WHERE x.tree_id = ?2)`
	err := tx.Exec(`UPDATE content_leases SET until = ?1 WHERE until > ?1
		AND content_id IN (SELECT content_id FROM tree_lists WHERE tree_id = ?2)`+unnamed, tx.Now, id)
	if err != nil {
		return err
	}
	return tx.Exec(`UPDATE trees SET until = ?1 WHERE id = ?2 AND (until IS NULL OR until > ?1)`+unnamed, tx.Now, id)
}

// treeGoing is a tree whose lease has ended.
type treeGoing struct {
	ID      int64   `db:"id"`
	AgentID int64   `db:"agent_id"`
	Sum     *string `db:"sha256"`
	Base    *int64  `db:"base"`
	Named   bool    `db:"named"`
	IsBase  bool    `db:"is_base"`
	Owner   string  `db:"owner"`
}

func (s *Files) sweepTrees(ctx context.Context) (more bool, err error) {
	if err := s.RO.GetContext(ctx, &more, `SELECT EXISTS (SELECT 1 FROM trees WHERE until <= ?)`, ckpt.At(s.Opt.Now())); err != nil || !more {
		return false, sqlite.ReadError(err)
	}
	err = s.sweepWith(func(tx *ledger.Tx) error {
		more = false
		var rows []treeGoing
		err := tx.List(&rows, `SELECT t.id, t.agent_id, t.sha256, t.base, EXISTS (SELECT 1 FROM checkpoint_trees x WHERE x.tree_id = t.id) AS named,
			EXISTS (SELECT 1 FROM trees d WHERE d.base = t.id) AS is_base, (SELECT owner FROM agents a WHERE a.id = t.agent_id) AS owner
			FROM trees t WHERE t.until <= ? ORDER BY t.until LIMIT 20`, tx.Now)
		if err != nil {
			return err
		}
		removed := int64(0)
		for i := range rows {
			n, err := removeTree(tx, &rows[i])
			if err != nil {
				return err
			}
			if removed += n; removed > 5*batchRows {
				more = true
				return nil
			}
		}
		more = len(rows) == 20
		return nil
	})
	return more, err
}

// removeTree removes a tree whose lease has ended, and returns how many files of lists it removed.
// A tree that a checkpoint names stays. If other trees use its list, it is no longer a tree, and
// only the part of its list that one of them needs stays.
func removeTree(tx *ledger.Tx, t *treeGoing) (int64, error) {
	if t.Named {
		return 0, tx.Exec(`UPDATE trees SET until = NULL WHERE id = ?`, t.ID)
	}
	if t.IsBase {
		if err := tx.Exec(`UPDATE trees SET sha256 = NULL, until = NULL WHERE id = ?`, t.ID); err != nil {
			return 0, err
		}
		return trimList(tx, t.Owner, t.ID)
	}
	n, err := removeFiles(tx, t.Owner, t.ID, `SELECT path FROM tree_files WHERE tree_id = ?1`)
	if err != nil {
		return n, err
	}
	var row int64
	_, err = tx.Change(&row, `DELETE FROM trees WHERE id = ? RETURNING `+usage.OfTree, t.ID)
	tx.Tally.Add(t.Owner, -row)
	if err != nil || t.Base == nil {
		return n, err
	}
	return n, leaveBase(tx, t.Owner, *t.Base)
}

// leaveBase handles a list that is no longer a tree: it removes the list if its last user is gone,
// and otherwise the part that no other tree uses.
func leaveBase(tx *ledger.Tx, owner string, id int64) error {
	var base treeGoing
	there, err := tx.Get(&base, `SELECT t.id, t.agent_id, t.sha256, t.base, 0 AS named, EXISTS (SELECT 1 FROM trees d
		WHERE d.base = t.id) AS is_base, '' AS owner FROM trees t WHERE t.id = ?`, id)
	if err != nil || !there || base.Sum != nil {
		return err
	}
	base.Owner = owner
	if base.IsBase {
		_, err = trimList(tx, owner, id)
		return err
	}
	_, err = removeTree(tx, &base)
	return err
}

// trimList removes the files of a list that all trees that use the list replace.
func trimList(tx *ledger.Tx, owner string, id int64) (int64, error) {
	return removeFiles(tx, owner, id, `SELECT o.path FROM trees d JOIN tree_files o ON o.tree_id = d.id WHERE d.base = ?1
		GROUP BY o.path HAVING count(*) = (SELECT count(*) FROM trees d WHERE d.base = ?1)`)
}

// removeFiles removes files of a list. The sweep then looks at their contents.
func removeFiles(tx *ledger.Tx, owner string, id int64, paths string) (int64, error) {
	var gone []struct {
		Content *int64 `db:"content_id"`
		Bytes   int64  `db:"bytes"`
	}
	if err := tx.Changes(&gone, `DELETE FROM tree_files WHERE tree_id = ?1
		AND path IN (`+paths+`) RETURNING content_id, `+usage.OfTreeFile+` AS bytes`, id); err != nil {
		return 0, err
	}
	ids := make([]int64, 0, len(gone))
	var bytes int64
	for _, g := range gone {
		bytes += g.Bytes
		if g.Content != nil {
			ids = append(ids, *g.Content)
		}
	}
	tx.Tally.Add(owner, -bytes)
	if len(ids) == 0 {
		return int64(len(gone)), nil
	}
	return int64(len(gone)), tx.Insert(`INSERT INTO content_leases (content_id, until) SELECT DISTINCT value, ?2 FROM json_each(?1)
		WHERE true ON CONFLICT (content_id) DO NOTHING`, list(ids), tx.Now)
}

// contentGoing is a content whose lease has ended.
type contentGoing struct {
	ID      int64   `db:"id"`
	AgentID int64   `db:"agent_id"`
	Owner   string  `db:"owner"`
	Pieces  *string `db:"pieces"`
	Named   bool    `db:"named"`
	Used    bool    `db:"used"`
}

func (s *Files) sweepContents(ctx context.Context) (more bool, err error) {
	err = s.RO.GetContext(ctx, &more, `SELECT EXISTS (SELECT 1 FROM content_leases WHERE until <= ?)`, ckpt.At(s.Opt.Now()))
	if err != nil || !more {
		return false, sqlite.ReadError(err)
	}
	err = s.sweepWith(func(tx *ledger.Tx) error {
		more = false
		var rows []contentGoing
		// All contents of one agent, whose lists are searched once.
		err := tx.List(&rows, `WITH one AS (SELECT c.agent_id FROM content_leases l
			JOIN contents c ON c.id = l.content_id WHERE l.until <= ?1 LIMIT 1),
			some AS MATERIALIZED (SELECT l.content_id AS id FROM content_leases l JOIN contents c ON c.id = l.content_id
			WHERE l.until <= ?1 AND c.agent_id = (SELECT agent_id FROM one) LIMIT 0 + ?2),
			named AS MATERIALIZED (SELECT DISTINCT f.content_id AS id FROM trees t JOIN tree_files f ON f.tree_id = t.id
			WHERE t.agent_id = (SELECT agent_id FROM one) AND f.content_id IN (SELECT id FROM some))
			SELECT c.id, c.agent_id, (SELECT owner FROM agents a WHERE a.id = c.agent_id) AS owner, c.pieces, c.id IN (SELECT id FROM named) AS named,
			EXISTS (SELECT 1 FROM content_uses u WHERE u.used = c.id) AS used FROM some JOIN contents c ON c.id = some.id`, tx.Now, batchRows)
		if err != nil {
			return err
		}
		for i := range rows {
			if err := removeContent(tx, &rows[i]); err != nil {
				return err
			}
		}
		more = len(rows) > 0
		if more {
			return nil
		}
		return tx.Exec(`DELETE FROM content_leases WHERE until <= ? AND NOT EXISTS (SELECT 1 FROM contents c WHERE c.id = content_id)`, tx.Now)
	})
	return more, err
}

// removeContent removes a content whose lease has ended and that no tree names. If other contents
// use bytes of its row, these bytes stay as long as those contents.
func removeContent(tx *ledger.Tx, c *contentGoing) error {
	if err := tx.Exec(`DELETE FROM content_leases WHERE content_id = ?`, c.ID); err != nil || c.Named {
		return err
	}
	tx.Tally.Add(c.Owner, -sqlite.RowLength("2026-01-01T00:00:00.000Z"))
	if err := tx.Exec(`DELETE FROM content_secrets WHERE content_id = ?`, c.ID); err != nil {
		return err
	}
	if c.Used {
		if err := tx.Exec(`UPDATE contents SET sha256 = NULL, pieces = NULL WHERE id = ?`, c.ID); err != nil {
			return err
		}
	} else if err := deleteContent(tx, c.Owner, c.ID); err != nil {
		return err
	}
	if c.Pieces == nil {
		return nil
	}
	pieces, err := blob.ReadPieces(*c.Pieces)
	if err != nil {
		return nil // a damaged list names nothing that could be freed; verify reports it
	}
	for _, used := range usesOf(pieces) {
		if err := tx.Exec(`DELETE FROM content_uses WHERE used = ? AND used_by = ?`, used, c.ID); err != nil {
			return err
		}
		tx.Tally.Add(c.Owner, -sqlite.RowLength())
		var idle bool
		_, err := tx.Get(&idle, `SELECT EXISTS (SELECT 1 FROM contents WHERE id = ?1 AND sha256 IS NULL) AND NOT EXISTS (SELECT 1
			FROM content_uses WHERE used = ?1)`, used)
		if err != nil {
			return err
		}
		if idle {
			if err := deleteContent(tx, c.Owner, used); err != nil {
				return err
			}
		}
	}
	return nil
}

func deleteContent(tx *ledger.Tx, owner string, id int64) error {
	var bytes int64
	_, err := tx.Change(&bytes, `DELETE FROM contents WHERE id = ? RETURNING `+usage.OfContent, id)
	tx.Tally.Add(owner, -bytes)
	return err
}

// Budgets.

// SelectStored is how many bytes the contents of an agent use.
const SelectStored = `SELECT coalesce(sum(length(data)), 0) FROM contents WHERE agent_id = ?`

// makeRoom removes the oldest trees of an agent that would exceed its limit for contents, and
// refuses the request if that is not enough.
func (s *Files) makeRoom(ctx context.Context, sc ckpt.Scope, name string, size int64) error {
	most := s.Opt.MaxAgentFiles
	if most <= 0 {
		return nil
	}
	agent, err := s.FindAgent(ctx, sc, name)
	if ckpt.CodeOf(err) == ckpt.CodeNotFound {
		return nil
	}
	if err != nil {
		return err
	}
	over, err := s.overBudget(ctx, agent.ID, size)
	if err != nil || over <= 0 {
		return err
	}
	s.sweeping.Lock()
	defer s.sweeping.Unlock()
	if over, err = s.trim(ctx, agent, size); err != nil || over <= 0 {
		return err
	}
	return ckpt.Errorf(ckpt.CodeQuota,
		"the files of agent %s take %d bytes more than the %d that an agent may have: "+
			"unpin or delete checkpoints, or leave files out", name, over, most)
}

// overBudget is by how many bytes an agent's contents would exceed the budget with size more bytes.
func (s *Files) overBudget(ctx context.Context, agent, size int64) (int64, error) {
	if known, ok := s.stored.Load(agent); ok {
		if over := known.(int64) + size - s.Opt.MaxAgentFiles; over <= 0 {
			return over, nil
		}
	}
	var stored int64
	if err := s.RO.GetContext(ctx, &stored, SelectStored, agent); err != nil {
		return 0, sqlite.ReadError(err)
	}
	s.stored.Store(agent, stored)
	return stored + size - s.Opt.MaxAgentFiles, nil
}

// noteStored counts bytes that were stored for an agent.
func (s *Files) noteStored(agent, bytes int64) {
	if known, ok := s.stored.Load(agent); ok {
		s.stored.Store(agent, known.(int64)+bytes)
	}
}

// trim removes trees of the oldest unpinned routine checkpoints of an agent until its contents fit.
// It returns by how much they still do not fit. The caller holds the lock.
func (s *Files) trim(ctx context.Context, agent *ledger.AgentRow, size int64) (over int64, err error) {
	for ctx.Err() == nil {
		if over, err = s.overBudget(ctx, agent.ID, size); err != nil || over <= 0 {
			return over, err
		}
		let := 0
		err := s.sweepWith(func(tx *ledger.Tx) error {
			var err error
			let, err = s.letGoOldest(tx, agent)
			return err
		})
		if err != nil || let == 0 {
			return over, err
		}
		for _, step := range []func(context.Context) (bool, error){s.sweepTrees, s.sweepContents} {
			for more := true; more && ctx.Err() == nil; {
				if more, err = step(ctx); err != nil {
					return over, err
				}
			}
		}
	}
	return over, ctx.Err()
}

// letGoOldest removes the trees from the oldest checkpoint of an agent that may lose them. It never
// takes them from the newest checkpoint of a run that has trees.
func (s *Files) letGoOldest(tx *ledger.Tx, agent *ledger.AgentRow) (int, error) {
	var at struct {
		N     int64  `db:"n"`
		RunID int64  `db:"run_id"`
		Run   string `db:"run"`
		ID    string `db:"id"`
	}
	found, err := tx.Get(&at, `SELECT c.n, c.run_id, r.name AS run, c.id FROM runs r JOIN checkpoint_trees x ON x.run_id = r.id
		JOIN checkpoints c ON c.run_id = x.run_id AND c.kind = 'routine' AND c.seq = x.seq AND c.n = x.n
		WHERE r.agent_id = ? AND c.pinned = 0 AND x.tree_id IS NOT NULL
		AND EXISTS (SELECT 1 FROM checkpoint_trees y WHERE y.run_id = x.run_id AND y.seq > x.seq AND y.tree_id IS NOT NULL)
		ORDER BY c.n LIMIT 1`, agent.ID)
	if err != nil || !found {
		return 0, err
	}
	var ids []int64
	if err := tx.List(&ids, `SELECT tree_id FROM checkpoint_trees WHERE n = ? AND tree_id IS NOT NULL`, at.N); err != nil {
		return 0, err
	}
	why := fmt.Sprintf("the files of an agent may take %d bytes", s.Opt.MaxAgentFiles)
	if err := tx.Exec(`UPDATE checkpoint_trees SET tree_id = NULL, gone = ? WHERE n = ?`, why, at.N); err != nil {
		return 0, err
	}
	for _, id := range ids {
		if err := endLeases(tx, id); err != nil {
			return 0, err
		}
	}
	e := ledger.DaemonEntry(agent, "let_go_of_files")
	e.Run, e.Subject, e.Reason = at.Run, at.ID, why
	return len(ids), tx.Audit(e)
}

// trimAgents brings agents that are over the budget within it, for example after the budget was
// reduced.
func (s *Files) trimAgents(ctx context.Context) error {
	if s.Opt.MaxAgentFiles <= 0 {
		return nil
	}
	var over []struct {
		Owner string `db:"owner"`
		Name  string `db:"name"`
	}
	err := s.RO.SelectContext(ctx, &over, `SELECT a.owner, a.name FROM contents c JOIN agents a ON a.id = c.agent_id
		GROUP BY a.id HAVING sum(length(c.data)) > ?`, s.Opt.MaxAgentFiles)
	if err != nil {
		return sqlite.ReadError(err)
	}
	for _, o := range over {
		agent, err := s.FindAgent(ctx, ckpt.Scope{Caller: ckpt.Caller{Owner: o.Owner}}, o.Name)
		if err == nil {
			_, err = s.trim(ctx, agent, 0)
		}
		if err != nil {
			return err
		}
	}
	return nil
}
