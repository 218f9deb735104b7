package files

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"

	ckpt "github.com/ckptsidecar/ckptsidecar"
	"github.com/ckptsidecar/ckptsidecar/internal/db/ledger"
	"github.com/ckptsidecar/ckptsidecar/internal/secrets"
)

// named is a tree that a checkpoint names.
type named struct {
	ID    int64  `db:"id"`
	Sum   string `db:"sha256"`
	Root  string `db:"root"`
	Base  *int64 `db:"base"`
	Files int64  `db:"files"`
	Lives bool   `db:"lives"`
}

// find looks up trees by their ids. It refuses a tree that does not exist or whose lease has ended,
// and two trees of one root.
func (s *Files) find(tx *ledger.Tx, agent *ledger.AgentRow, sums []string) ([]named, error) {
	trees := make([]named, len(sums))
	var lacking []string
	for i, sum := range sums {
		there := false
		if agent != nil {
			var err error
			there, err = tx.Get(&trees[i], `SELECT id, sha256, root, base, files, until IS NULL OR until > ?3
				OR EXISTS (SELECT 1 FROM checkpoint_trees x WHERE x.tree_id = t.id) AS lives FROM trees t
				WHERE agent_id = ?1 AND sha256 = ?2`, agent.ID, sum, tx.Now)
			if err != nil {
				return nil, err
			}
		}
		if !there || !trees[i].Lives {
			lacking = append(lacking, sum)
		}
		if slices.ContainsFunc(trees[:i], func(t named) bool { return t.Root == trees[i].Root }) {
			return nil, ckpt.Errorf(ckpt.CodeInvalid, "two trees have the root %s: a checkpoint takes one tree for each root", trees[i].Root)
		}
	}
	if len(lacking) > 0 {
		return nil, missing("trees", lacking)
	}
	return trees, nil
}

// MayName refuses trees that a save names and that do not exist.
func (s *Files) MayName(tx *ledger.Tx, agent *ledger.AgentRow, sums []string) error {
	_, err := s.find(tx, agent, sums)
	return err
}

// Name lets a checkpoint that was just inserted name trees. The first checkpoint of a fork that
// names none gets those of the checkpoint that it was forked from.
func (s *Files) Name(tx *ledger.Tx, agent *ledger.AgentRow, run *ledger.RunRow, c *ledger.CheckpointRow, sums []string, forkFrom ckpt.Ref) error {
	if len(sums) == 0 {
		return inherit(tx, agent, run, c, forkFrom)
	}
	trees, err := s.find(tx, agent, sums)
	if err != nil {
		return err
	}
	for i, t := range trees {
		err := tx.Insert(`INSERT INTO checkpoint_trees (n, place, run_id, seq, tree_id) VALUES (?, ?, ?, ?, ?)`, c.N, i+1, run.ID, c.Seq, t.ID)
		if err == nil {
			err = s.tellSecrets(tx, agent, run, c.ID, &t)
		}
		if err == nil {
			err = s.tellVanished(tx, agent, run, c, &t)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func inherit(tx *ledger.Tx, agent *ledger.AgentRow, run *ledger.RunRow, c *ledger.CheckpointRow, from ckpt.Ref) error {
	if from == "" {
		return nil
	}
	var ids []int64
	err := tx.List(&ids, `SELECT x.tree_id FROM (SELECT c.run_id, c.n, r.agent_id`+ledger.OwnedTables+`?) k
		JOIN checkpoint_trees x ON x.n = k.n AND x.run_id = k.run_id JOIN trees t ON t.id = x.tree_id
		WHERE k.agent_id = ? AND t.sha256 IS NOT NULL ORDER BY x.place`, from, agent.Owner, agent.ID)
	if err != nil {
		return err
	}
	for i, id := range ids {
		err := tx.Insert(`INSERT INTO checkpoint_trees (n, place, run_id, seq, tree_id) VALUES (?, ?, ?, ?, ?)`, c.N, i+1, run.ID, c.Seq, id)
		if err != nil {
			return err
		}
	}
	return nil
}

// Imported refuses an import whose contents take an agent over its limit.
func (s *Files) Imported(tx *ledger.Tx, agent *ledger.AgentRow) error {
	tx.OnCommit(func() { s.stored.Delete(agent.ID) })
	most := s.Opt.MaxAgentFiles
	if most <= 0 {
		return nil
	}
	var stored int64
	if _, err := tx.Get(&stored, SelectStored, agent.ID); err != nil || stored <= most {
		return err
	}
	return ckpt.Errorf(ckpt.CodeQuota, "the files of agent %s would take %d bytes more than the %d that an agent may have: "+
		"export without files", agent.Name, stored-most, most)
}

// tellSecrets makes findings of what looks like a secret in a tree and was not reported yet.
func (s *Files) tellSecrets(tx *ledger.Tx, agent *ledger.AgentRow, run *ledger.RunRow, checkpoint string, t *named) error {
	var rows []struct {
		ID   int64  `db:"content_id"`
		Kind string `db:"kind"`
		Path string `db:"path"`
	}
	err := tx.List(&rows, `SELECT s.content_id, s.kind, min(f.path) AS path FROM content_secrets s
		JOIN contents c ON c.id = s.content_id AND c.agent_id = ?1 JOIN tree_lists f ON f.tree_id = ?2 AND f.content_id = s.content_id
		GROUP BY s.content_id ORDER BY path LIMIT 20`, agent.ID, t.ID)
	if err != nil || len(rows) == 0 {
		return err
	}
	w, err := s.WatchRun(tx, agent, run, nil)
	if err != nil {
		return err
	}
	for _, row := range rows {
		found := []secrets.Secret{{In: "file", Path: "/" + row.Path, Kind: row.Kind}}
		if err := s.ReportSecrets(tx, agent, run, w, checkpoint, found); err != nil {
			return err
		}
		if err := tx.Exec(`DELETE FROM content_secrets WHERE content_id = ?`, row.ID); err != nil {
			return err
		}
	}
	return nil
}

// vanishedFrom is how many files a tree must have had before a finding reports that most of them
// vanished.
const vanishedFrom = 20

// tellVanished makes a finding if more than half of the files vanished since the last tree of the
// root. A moved file does not count as vanished. It closes such a finding if the tree has at least
// half of the files again.
func (s *Files) tellVanished(tx *ledger.Tx, agent *ledger.AgentRow, run *ledger.RunRow, c *ledger.CheckpointRow, t *named) error {
	err := s.Mend(tx, agent, run, ckpt.RuleFilesVanished, func(evidence ckpt.JSON) bool {
		var e struct {
			Root string `json:"root"`
			Of   int64  `json:"of"`
		}
		return json.Unmarshal(evidence, &e) == nil && e.Root == t.Root && 2*t.Files >= e.Of
	})
	if err != nil {
		return err
	}
	var before struct {
		Tree       int64  `db:"id"`
		Files      int64  `db:"files"`
		Checkpoint string `db:"checkpoint"`
	}
	found, err := tx.Get(&before, `SELECT t.id, t.files, c.id AS checkpoint FROM checkpoint_trees x JOIN trees t ON t.id = x.tree_id
		JOIN checkpoints c ON c.run_id = x.run_id AND c.kind IN ('routine', 'pre_operation', 'recovery') AND c.seq = x.seq AND c.n = x.n
		WHERE x.run_id = ? AND x.seq < ? AND t.root = ? ORDER BY x.seq DESC LIMIT 1`, run.ID, c.Seq, t.Root)
	if err != nil || !found || before.Files <= vanishedFrom || 2*t.Files >= before.Files {
		return err
	}
	var gone int64
	_, err = tx.Get(&gone, `SELECT count(*) FROM tree_lists b WHERE b.tree_id = ?1
		AND NOT EXISTS (SELECT 1 FROM tree_lists f WHERE f.tree_id = ?2 AND f.path = b.path)`, before.Tree, t.ID)
	if err != nil || 2*gone <= before.Files {
		return err
	}
	evidence, err := json.Marshal(map[string]any{"root": t.Root, "vanished": gone, "of": before.Files, "before": before.Checkpoint, "after": c.ID})
	if err != nil {
		return err
	}
	return s.Warn(tx, agent, run, &ckpt.Finding{Rule: ckpt.RuleFilesVanished, Checkpoint: ckpt.Ref(before.Checkpoint), Evidence: evidence,
		Message: fmt.Sprintf("%d of %d files below %s vanished since checkpoint %s.", gone, before.Files, t.Root, before.Checkpoint),
		Advice: ckpt.Ref(fmt.Sprintf(
			"See what can be restored with ckptsidecar files restore %s --root %q; add --yes to restore it.", before.Checkpoint, t.Root))})
}

// Attach gives a checkpoint its trees after it was saved: once, and within a minute, also if the run
// has ended since. Repeating the call with the same trees returns the first result.
func (s *Files) Attach(_ context.Context, sc ckpt.Scope, r ckpt.AttachRequest) (c *ckpt.Checkpoint, replayed bool, err error) {
	if err := checkAttach(&r); err != nil {
		return nil, false, err
	}
	e := ledger.ChangeEntry(sc, "attach_files", r.Checkpoint)
	err = s.Submit(&ledger.Op{Owner: sc.Caller.Owner, Size: int64(100 * len(r.Trees)), Entry: e, Do: func(tx *ledger.Tx) error {
		replayed = false
		at, agent, run, err := s.attachable(tx, sc, &r)
		if err != nil {
			return err
		}
		var there []string
		err = tx.List(&there, `SELECT coalesce(t.sha256, '') FROM checkpoint_trees x LEFT JOIN trees t ON t.id = x.tree_id
			WHERE x.n = ? AND x.run_id = ? ORDER BY x.place`, at.N, run.ID)
		switch {
		case err != nil:
			return err
		case slices.Equal(there, r.Trees):
			replayed = true
		case len(there) > 0:
			return ckpt.Errorf(ckpt.CodeConflict, "checkpoint %s already has its files", r.Checkpoint)
		case tx.Now.Sub(at.CreatedAt.Value.Time).Abs() > attachWithin:
			return ckpt.Errorf(ckpt.CodeConflict,
				"checkpoint %s was saved at %s, and takes files only for one minute: "+
					"save a new checkpoint with its files", r.Checkpoint, at.CreatedAt.Value)
		default:
			if err := s.MayComplete(run, sc, r.Epoch); err != nil {
				return err
			}
			err = s.Name(tx, agent, run, &ledger.CheckpointRow{N: at.N, ID: at.ID, Seq: at.Seq}, r.Trees, "")
			if err != nil {
				return err
			}
			e := e
			e.Owner, e.Agent, e.Run, e.Detail = agent.Owner, agent.Name, run.Name, map[string]any{"trees": r.Trees}
			if err := tx.Audit(e); err != nil {
				return err
			}
		}
		c, err = tx.Reread(agent.Owner, r.Checkpoint)
		return err
	}})
	if err != nil {
		return nil, false, err
	}
	if replayed && c.Owner != sc.Caller.Owner {
		s.AuditForeignOf(sc, "attach_files", c.Owner, c.Agent, c.ID)
	}
	c.Trees = slices.Clone(r.Trees)
	return c, replayed, nil
}

func checkAttach(r *ckpt.AttachRequest) error {
	if err := ckpt.CheckID(r.Checkpoint); err != nil {
		return err
	}
	if len(r.Trees) == 0 {
		return ckpt.Errorf(ckpt.CodeInvalid, "trees is missing: name the trees of the checkpoint")
	}
	if r.Run != "" {
		if err := ckpt.CheckRunName(r.Run); err != nil {
			return err
		}
	}
	return ckpt.CheckTrees(r.Trees)
}

// attachedRow is a checkpoint that gets its trees.
type attachedRow struct {
	ledger.HeldRow
	RunID int64  `db:"run_id"`
	Owner string `db:"owner"`
}

// attachable finds a checkpoint that the scope may change, with its agent and run.
func (s *Files) attachable(tx *ledger.Tx, sc ckpt.Scope, r *ckpt.AttachRequest) (*ledger.HeldRow, *ledger.AgentRow, *ledger.RunRow, error) {
	var rows []attachedRow
	err := tx.List(&rows, `SELECT c.slot, c.n, c.id, c.seq, c.created_at, c.run_id,
		a.owner`+ledger.ReadTables+`WHERE c.id = ?1 AND (?2 = '' OR a.owner = ?2) ORDER BY a.owner <> ?3 LIMIT 2`,
		r.Checkpoint, ledger.WhoseByID(sc), sc.Caller.Owner)
	if err != nil {
		return nil, nil, nil, err
	}
	row, err := ledger.OneOf(rows, func(r *attachedRow) string { return r.Owner }, sc.Caller.Owner, r.Checkpoint)
	if err != nil {
		return nil, nil, nil, err
	}
	run, agent, err := s.RunWithAgent(tx, row.RunID)
	if err != nil {
		return nil, nil, nil, err
	}
	if r.Run != "" && r.Run != run.Name {
		return nil, nil, nil, ckpt.Errorf(ckpt.CodeConflict, "checkpoint %s belongs to run %s, not to %s", r.Checkpoint, run.Name, r.Run)
	}
	return &row.HeldRow, agent, run, nil
}
