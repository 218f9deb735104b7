package copy

import (
	ckpt "github.com/ckptsidecar/ckptsidecar"
	"github.com/ckptsidecar/ckptsidecar/internal/db/blob"
	"github.com/ckptsidecar/ckptsidecar/internal/db/files"
	"github.com/ckptsidecar/ckptsidecar/internal/db/ledger"
	"github.com/ckptsidecar/ckptsidecar/internal/delta"
	"github.com/ckptsidecar/ckptsidecar/internal/tree"
)

// files imports the trees that the imported checkpoints name, with their contents.
func (im *importing) files(agent *ledger.AgentRow, a *agentSeen) error {
	named := false
	for _, r := range a.runs {
		if r.present {
			continue
		}
		var names []struct {
			Place int64 `db:"place"`
			Seq   int64 `db:"seq"`
			Tree  int64 `db:"tree_id"`
			Good  bool  `db:"good"`
		}
		err := im.q.SelectContext(im.ctx, &names, `SELECT x.place, x.seq, coalesce(x.tree_id, 0) AS tree_id, EXISTS (SELECT 1 FROM checkpoints c
			WHERE c.run_id = x.run_id AND c.seq = x.seq AND c.n = x.n) AS good FROM checkpoint_trees x WHERE x.run_id = ? ORDER BY x.n, x.place`, r.ID)
		if err != nil {
			return err
		}
		for _, name := range names {
			if !name.Good {
				return refused("the export has files of a checkpoint that it does not have")
			}
			id, err := im.tree(agent, a, name.Tree, true)
			if err != nil {
				return err
			}
			err = im.tx.Insert(`INSERT INTO checkpoint_trees (n, place, run_id, seq, tree_id) SELECT c.n, ?1, c.run_id, c.seq, ?2 FROM checkpoints c
				WHERE c.run_id = ?3 AND c.kind IN ('routine', 'pre_operation', 'recovery') AND c.seq = ?4`, name.Place, id, r.run.ID, name.Seq)
			if err != nil {
				return err
			}
			named = true
		}
	}
	if !named {
		return nil
	}
	return im.filesImported(im.tx, agent)
}

// tree is the number here of a tree of the file. A tree that only others change stays while they do.
func (im *importing) tree(agent *ledger.AgentRow, a *agentSeen, old int64, named bool) (id int64, err error) {
	if id, known := im.numbers[treeNo][old]; known {
		return id, nil
	}
	var row struct {
		files.TreeRow
		Sum *string `db:"sum"`
	}
	err = im.q.GetContext(im.ctx, &row, `SELECT t.id, t.agent_id, t.sha256 AS sum, t.base, t.root, t.git_head, t.captured_at, t.complete, t.left_out,
		t.files, t.bytes FROM trees t WHERE t.id = ? AND t.agent_id = ?`, old, a.id)
	if ledger.IsNoRows(err) || err == nil && named && row.Sum == nil {
		return 0, refused("the export lacks files that a checkpoint names")
	}
	if err != nil {
		return 0, err
	}
	defer func() { im.numbers[treeNo][old] = id }()
	list := old // the rows of the file that the tree here gets
	var base any
	if row.Sum != nil {
		if err := im.checkTree(&row.TreeRow, *row.Sum); err != nil {
			return 0, err
		}
		there, err := im.tx.Get(&id, `SELECT id FROM trees WHERE agent_id = ? AND sha256 = ?`, agent.ID, *row.Sum)
		if err != nil || there {
			return id, err
		}
	}
	rows := `SELECT path, mode, content_id, target FROM tree_files WHERE tree_id = ? ORDER BY path`
	if row.Base != nil {
		to, err := im.tree(agent, a, *row.Base, false)
		if err != nil {
			return 0, err
		}
		var whole bool
		if _, err := im.tx.Get(&whole, `SELECT base IS NULL FROM trees WHERE id = ?`, to); err != nil {
			return 0, err
		}
		if base = to; !whole { // it is there in another form
			base, rows = nil, `SELECT path, mode, content_id, target FROM tree_lists WHERE tree_id = ? ORDER BY path`
		}
	}
	var until any
	if !named {
		until = im.tx.Now // the sweep looks whether it is named
	}
	err = im.tx.InsertGet(&id, `INSERT INTO trees (agent_id, sha256, base, root, git_head, captured_at, complete, left_out, files, bytes, until)
		VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?) RETURNING id`, agent.ID, row.Sum, base, row.Root, row.GitHead, row.CapturedAt, row.Complete,
		row.LeftOut, row.Files, row.Bytes, until)
	if err != nil {
		return 0, err
	}
	return id, im.list(agent, a, id, rows, list)
}

// checkTree checks a tree as if it were stored now.
func (im *importing) checkTree(row *files.TreeRow, sum string) error {
	row.Sum = sum
	t, err := row.Tree()
	if err == nil {
		t.Entries, err = files.Entries(im.ctx, im.q, row.ID)
	}
	for i := 0; err == nil && i < len(t.Entries); i++ {
		err = tree.CheckEntry(t.Entries[i], ckpt.MaxTreeFile)
	}
	if err == nil {
		err = tree.Check(t, tree.Limits{})
	}
	if err == nil && tree.ID(t) != sum {
		err = refused("the files do not match the id")
	}
	if err != nil {
		return refused("the tree %s of the export is wrong: %v", cut(sum), plain(err))
	}
	return nil
}

// list writes the files of a tree.
func (im *importing) list(agent *ledger.AgentRow, a *agentSeen, id int64, query string, old int64) error {
	var rows []struct {
		Path    string  `db:"path"`
		Mode    string  `db:"mode"`
		Content *int64  `db:"content_id"`
		Target  *string `db:"target"`
	}
	if err := im.q.SelectContext(im.ctx, &rows, query, old); err != nil {
		return err
	}
	for i := range rows {
		f := &rows[i]
		var content any
		if f.Content != nil {
			to, err := im.content(agent, a, *f.Content)
			if err != nil {
				return err
			}
			content = to
		}
		err := im.tx.Insert(`INSERT INTO tree_files (tree_id, path, mode, content_id, target) VALUES (?, ?, ?, ?, ?)`, id, f.Path, f.Mode, content, f.Target)
		if err != nil {
			return err
		}
	}
	return nil
}

// content is the number here of a content of the file.
func (im *importing) content(agent *ledger.AgentRow, a *agentSeen, old int64) (id int64, err error) {
	if id, known := im.numbers[contentNo][old]; known {
		return id, nil
	}
	var row files.Row
	err = im.q.GetContext(im.ctx, &row, `SELECT `+files.Columns+` FROM contents WHERE id = ? AND agent_id = ?`, old, a.id)
	if ledger.IsNoRows(err) {
		return 0, refused("the export lacks the content of a file")
	}
	if err != nil {
		return 0, err
	}
	if row.SHA256 != nil {
		there, err := im.tx.Get(&id, `SELECT id FROM contents WHERE agent_id = ? AND sha256 = ?`, agent.ID, row.SHA256)
		if err != nil || there {
			im.numbers[contentNo][old] = id
			return id, err
		}
	}
	used, err := im.used(agent, a, &row)
	if err != nil {
		return 0, err
	}
	sum := any(row.SHA256)
	if row.SHA256 == nil {
		sum = nil
	}
	err = im.tx.InsertGet(&id, `INSERT INTO contents (agent_id, sha256, size, pieces, fresh, data) VALUES (?, ?, ?, ?, ?, ?) RETURNING id`,
		agent.ID, sum, row.Size, row.Pieces, row.Fresh, append([]byte{}, row.Data...))
	if err != nil {
		return 0, err
	}
	im.numbers[contentNo][old], im.mine[id] = id, true
	if len(used) == 0 {
		return id, nil
	}
	return id, im.tx.Insert(`INSERT INTO content_uses (used, used_by) SELECT value, ?2 FROM json_each(?1)`, jsonList(used), id)
}

// used replaces the numbers in the list of pieces of a content, and returns the contents whose rows it uses. If one of
// them was here before, its row may have other bytes: then the content is stored whole.
func (im *importing) used(agent *ledger.AgentRow, a *agentSeen, row *files.Row) (list []int64, err error) {
	if row.Pieces == nil {
		return nil, nil
	}
	pieces, err := blob.ReadPieces(*row.Pieces)
	if err != nil {
		return nil, err
	}
	seen, whole := map[int64]bool{}, false
	for i := range pieces {
		p := &pieces[i]
		if p.Segment == delta.New {
			continue
		}
		if p.Segment == row.ID {
			return nil, refused("the export has a content that uses itself")
		}
		if p.Segment, err = im.content(agent, a, p.Segment); err != nil {
			return nil, err
		}
		whole = whole || !im.mine[p.Segment]
		if !seen[p.Segment] {
			seen[p.Segment] = true
			list = append(list, p.Segment)
		}
	}
	if whole {
		data, err := files.Decode(im.ctx, im.q, row)
		if err != nil {
			return nil, err
		}
		row.Pieces, row.Fresh, row.Data = nil, int64(len(data)), blob.DeflateSmall(data)
		return nil, nil
	}
	text := blob.WritePieces(pieces)
	row.Pieces = &text
	return list, nil
}
