package copy

import (
	"maps"
	"slices"

	ckpt "github.com/ckptsidecar/ckptsidecar"
	"github.com/ckptsidecar/ckptsidecar/internal/db/files"
	"github.com/ckptsidecar/ckptsidecar/internal/db/ledger"
	"github.com/ckptsidecar/ckptsidecar/internal/tree"
)

// files copies the trees that the checkpoints of runs name, with the lists that they change and their contents. It
// leaves out a tree that cannot be read, and says so.
func (x *exporting) files(agent *ledger.AgentRow, list []int64) error {
	var names []struct {
		files.TreeRow
		Run int64 `db:"run_id"`
	}
	err := x.q.SelectContext(x.ctx, &names, `SELECT `+files.TreeColumns+`, x.run_id FROM checkpoint_trees x JOIN trees t ON t.id = x.tree_id
		WHERE x.run_id IN (SELECT value FROM json_each(?)) AND t.sha256 IS NOT NULL ORDER BY x.n, x.place`, jsonList(list))
	if err != nil {
		return err
	}
	whole, lists, good := map[int64]bool{}, map[int64]bool{}, map[string]bool{}
	for i := range names {
		row := &names[i].TreeRow
		is, met := whole[row.ID]
		if !met {
			err := x.wholeTree(agent.ID, row, good)
			if err != nil && ckpt.CodeOf(err) != ckpt.CodeCorrupt {
				return err
			}
			if whole[row.ID] = err == nil; err != nil {
				x.note(trees, names[i].Run, err)
			}
			is = err == nil
		} else if !is {
			x.said.Damaged[x.number(runNo, names[i].Run)] = "file_tree " + row.Sum
		}
		if is {
			lists[row.ID] = true
			if row.Base != nil {
				lists[*row.Base] = true
			}
		}
	}
	copied := jsonList(slices.Sorted(maps.Keys(lists)))
	var used []int64
	err = x.q.SelectContext(x.ctx, &used, `WITH own AS (SELECT DISTINCT content_id AS id FROM tree_files
			WHERE tree_id IN (SELECT value FROM json_each(?)) AND content_id IS NOT NULL)
		SELECT id FROM own UNION SELECT u.used FROM own JOIN content_uses u ON u.used_by = own.id ORDER BY 1`, copied)
	if err != nil {
		return err
	}
	for _, t := range []*table{contents, contentUses} {
		if err := x.rows(t, 0, agent.ID, 0, jsonList(used)); err != nil {
			return err
		}
	}
	for _, t := range []*table{trees, treeFiles} {
		if err := x.rows(t, 0, agent.ID, 0, copied); err != nil {
			return err
		}
	}
	maps.DeleteFunc(whole, func(_ int64, is bool) bool { return !is })
	for _, id := range list {
		if err := x.rows(checkpointTrees, id, agent.ID, id, jsonList(slices.Sorted(maps.Keys(whole)))); err != nil {
			return err
		}
	}
	return nil
}

// wholeTree checks a tree and its contents. good are the contents that were checked.
func (x *exporting) wholeTree(agent int64, row *files.TreeRow, good map[string]bool) error {
	t, err := row.Tree()
	if err == nil {
		t.Entries, err = files.Entries(x.ctx, x.q, row.ID)
	}
	if err == nil && tree.ID(t) != t.ID {
		err = ckpt.Errorf(ckpt.CodeCorrupt, "the files of tree %s do not match its id", t.ID)
	}
	if err != nil {
		return err
	}
	for _, e := range t.Entries {
		is, met := good[e.SHA256]
		if e.SHA256 == "" || is {
			continue
		}
		if met {
			return ckpt.Errorf(ckpt.CodeCorrupt, "the content %s is damaged", e.SHA256)
		}
		_, err := files.Read(x.ctx, x.q, agent, e.SHA256)
		if good[e.SHA256] = err == nil; err != nil {
			return err
		}
	}
	return nil
}
