package files

import (
	"context"
	"encoding/hex"
	"encoding/json"
	"errors"
	"maps"
	"slices"

	"github.com/jmoiron/sqlx"

	ckpt "github.com/ckptsidecar/ckptsidecar"
	"github.com/ckptsidecar/ckptsidecar/internal/db/ledger"
	"github.com/ckptsidecar/ckptsidecar/internal/db/sqlite"
	"github.com/ckptsidecar/ckptsidecar/internal/tree"
)

// TreeRow is a stored tree.
type TreeRow struct {
	ID         int64     `db:"id"`
	AgentID    int64     `db:"agent_id"`
	Sum        string    `db:"sha256"`
	Base       *int64    `db:"base"`
	Root       string    `db:"root"`
	GitHead    string    `db:"git_head"`
	CapturedAt ckpt.Time `db:"captured_at"`
	Complete   bool      `db:"complete"`
	LeftOut    string    `db:"left_out"`
	Files      int       `db:"files"`
	Bytes      int64     `db:"bytes"`
}

// TreeColumns are the columns of a TreeRow.
const TreeColumns = `t.id, t.agent_id, t.sha256, t.base, t.root, t.git_head, t.captured_at, t.complete, t.left_out, t.files, t.bytes`

// Tree converts the row to the form for callers, without its files.
func (r *TreeRow) Tree() (*ckpt.Tree, error) {
	t := &ckpt.Tree{ID: r.Sum, Root: r.Root, GitHead: r.GitHead, CapturedAt: r.CapturedAt, Complete: r.Complete, Files: r.Files, Bytes: r.Bytes}
	if err := json.Unmarshal([]byte(r.LeftOut), &t.LeftOut); err != nil {
		return nil, ckpt.Wrap(ckpt.CodeCorrupt, err, "tree %s is damaged in what it left out and is not served; run ckptsidecar verify", r.Sum)
	}
	return t, nil
}

// entry is a stored file of a tree.
type entry struct {
	Path    string  `db:"path"`
	Mode    string  `db:"mode"`
	Content *int64  `db:"content_id"`
	Target  *string `db:"target"`
	Size    *int64  `db:"size"`
	SHA256  []byte  `db:"sha256"`
}

const (
	// entryColumns are the columns of an entry, whose content may be missing.
	entryColumns = `f.path, f.mode, f.content_id, f.target, c.size, c.sha256`
	listOf       = ` FROM tree_lists f LEFT JOIN contents c ON c.id = f.content_id WHERE f.tree_id = `
)

// asTold converts the entry to the form for callers.
func (e *entry) asTold() ckpt.TreeEntry {
	told := ckpt.TreeEntry{Path: e.Path, Mode: e.Mode}
	if e.Target != nil {
		told.Target, told.Size = *e.Target, int64(len(*e.Target))
	}
	if e.Size != nil {
		told.Size, told.SHA256 = *e.Size, hex.EncodeToString(e.SHA256)
	}
	return told
}

// Entries reads the files of a tree, by path.
func Entries(ctx context.Context, q sqlx.QueryerContext, id int64) ([]ckpt.TreeEntry, error) {
	var rows []entry
	if err := sqlx.SelectContext(ctx, q, &rows, `SELECT `+entryColumns+listOf+`? ORDER BY f.path`, id); err != nil {
		return nil, err
	}
	entries := make([]ckpt.TreeEntry, len(rows))
	for i := range rows {
		entries[i] = rows[i].asTold()
	}
	return entries, nil
}

// PutTree stores a tree. It stays for at least an hour, and after that as long as a checkpoint
// names it. The error names contents that do not exist.
func (s *Files) PutTree(ctx context.Context, sc ckpt.Scope, r ckpt.TreeRequest) (*ckpt.TreeStored, error) {
	if err := mayWrite(sc, r.Agent); err != nil {
		return nil, err
	}
	s.AuditForeign(sc, "put_tree", r.Agent, "")
	for {
		p := &planting{Files: s, sc: sc, request: &r, doubts: s.States.Doubts.Load()}
		if err := p.build(ctx); err != nil {
			return nil, err
		}
		err := s.Submit(&ledger.Op{Owner: sc.Caller.Owner, Size: p.size(), Entry: ledger.Entry(sc, "put_tree", r.Agent), Do: p.put})
		if errors.Is(err, errDoubted) && ctx.Err() == nil {
			continue // the next try reads the base again
		}
		if err != nil {
			return nil, err
		}
		return p.stored, nil
	}
}

// errDoubted says that another program has written since the base was read.
var errDoubted = ckpt.Errorf(ckpt.CodeBusy, "another program wrote to the database at the same time: try again")

// planting is a tree that is about to be stored.
type planting struct {
	*Files
	sc      ckpt.Scope
	request *ckpt.TreeRequest
	doubts  int64    // the store's count of doubts before anything was read
	base    *TreeRow // the base that the request names; nil for none
	own     map[string]ckpt.TreeEntry
	since   int // files in the lists of all trees that change the same list
	tree    ckpt.Tree
	leftOut string
	stored  *ckpt.TreeStored
}

// build makes the whole tree and checks it, outside the writer.
func (p *planting) build(ctx context.Context) error {
	r := p.request
	var base []ckpt.TreeEntry
	p.own = map[string]ckpt.TreeEntry{}
	if r.Base != "" {
		if err := ckpt.CheckSHA256("id of the base", r.Base); err != nil {
			return err
		}
		agent, err := p.FindAgent(ctx, p.sc, r.Agent)
		if ckpt.CodeOf(err) == ckpt.CodeNotFound {
			return missing("trees", []string{r.Base})
		}
		if err != nil {
			return err
		}
		err = p.Reading(ctx, func(q *sqlx.Tx) error {
			base, err = p.readBase(ctx, q, agent.ID)
			return err
		})
		if err != nil {
			return err
		}
	}
	for i := range r.Set {
		if err := tree.CheckEntry(r.Set[i], ckpt.MaxTreeFile); err != nil {
			return err
		}
	}
	entries, err := tree.Apply(base, r.Set, r.Removed)
	if err != nil {
		return err
	}
	p.tree = ckpt.Tree{Root: r.Root, GitHead: r.GitHead, CapturedAt: r.CapturedAt, Complete: r.Complete,
		LeftOut: slices.Clone(r.LeftOut), Entries: entries}
	if p.tree.CapturedAt.IsZero() {
		p.tree.CapturedAt = ckpt.At(p.Opt.Now())
	}
	tree.Sort(&p.tree)
	if err := tree.Check(&p.tree, tree.Limits{}); err != nil {
		return err
	}
	p.tree.ID = tree.ID(&p.tree)
	for i := range r.Set {
		p.own[r.Set[i].Path] = r.Set[i]
	}
	for _, path := range r.Removed {
		p.own[path] = ckpt.TreeEntry{Path: path, Mode: modeGone}
	}
	leftOut, err := json.Marshal(append([]ckpt.LeftOut{}, p.tree.LeftOut...))
	p.leftOut = string(leftOut)
	return err
}

// readBase reads the list of the base, and how the base itself differs from the whole list that it
// changes: the new tree changes that list too. A damaged base is not used: the client gets the
// error that it does not exist.
func (p *planting) readBase(ctx context.Context, q *sqlx.Tx, agent int64) ([]ckpt.TreeEntry, error) {
	var row TreeRow
	err := q.GetContext(ctx, &row, `SELECT `+TreeColumns+` FROM trees t WHERE t.agent_id = ? AND t.sha256 = ?`, agent, p.request.Base)
	if ledger.IsNoRows(err) {
		return nil, missing("trees", []string{p.request.Base})
	}
	if err != nil {
		return nil, err
	}
	p.base = &row
	if known := p.known.get(&row, p.doubts, p.Opt.Now()); known != nil {
		maps.Copy(p.own, known.own)
		p.since = known.since
		return known.entries, nil
	}
	entries, err := Entries(ctx, q, row.ID)
	if err != nil {
		return nil, err
	}
	if t, err := row.Tree(); err != nil || !isTree(t, entries) {
		p.Log.Error("a tree is damaged, and nothing is stored as a change to it; run ckptsidecar verify", "tree", row.Sum)
		return nil, missing("trees", []string{p.request.Base})
	}
	list := row.ID
	if row.Base != nil {
		list = *row.Base
	}
	err = q.GetContext(ctx, &p.since, `SELECT count(*) FROM trees t JOIN tree_files f ON f.tree_id = t.id WHERE t.base = ?`, list)
	if err != nil || row.Base == nil {
		return entries, err
	}
	var own []entry
	err = q.SelectContext(ctx, &own, `SELECT `+entryColumns+` FROM tree_files f
		LEFT JOIN contents c ON c.id = f.content_id WHERE f.tree_id = ?`, row.ID)
	for i := range own {
		p.own[own[i].Path] = own[i].asTold()
	}
	return entries, err
}

// isTree says whether a tree with these entries has the right id.
func isTree(t *ckpt.Tree, entries []ckpt.TreeEntry) bool {
	whole := *t
	whole.Entries = entries
	return tree.ID(&whole) == t.ID
}

// size is about how many bytes it stores.
func (p *planting) size() int64 {
	n := int64(len(p.leftOut) + len(p.tree.Root))
	for path := range p.own {
		n += sqlite.RowLength(path)
	}
	return n
}

// put stores the tree in the transaction.
func (p *planting) put(tx *ledger.Tx) error {
	tx.Touches()
	agent, err := p.MakeAgent(tx, p.sc.Whose(), p.request.Agent)
	if err != nil {
		return err
	}
	p.stored = &ckpt.TreeStored{ID: p.tree.ID, Files: p.tree.Files, Bytes: p.tree.Bytes, Expires: ckpt.At(tx.Now.Add(lease))}
	var id int64
	there, err := tx.Get(&id, `SELECT id FROM trees WHERE agent_id = ? AND sha256 = ?`, agent.ID, p.tree.ID)
	if err != nil {
		return err
	}
	if there {
		return tx.Exec(`UPDATE trees SET until = ? WHERE id = ?`, leased(tx.Now), id) // also for a named tree: its checkpoint may go first
	}
	if p.base != nil {
		if p.States.Doubts.Load() != p.doubts {
			return errDoubted
		}
		var same bool
		_, err := tx.Get(&same, `SELECT EXISTS (SELECT 1 FROM trees WHERE id = ? AND agent_id = ? AND sha256 = ?)`, p.base.ID, agent.ID, p.base.Sum)
		if err != nil {
			return err
		}
		if !same {
			return missing("trees", []string{p.base.Sum})
		}
	}
	return p.insert(tx, agent)
}

// changesList says whether the tree is stored as the difference from the list of its base. It is
// stored whole if half of it differs, or if the trees that differ from that list together use twice
// as much as the list: each repeats the changes of those before it.
func (p *planting) changesList() bool {
	n := max(len(p.tree.Entries), 2)
	return p.base != nil && 2*len(p.own) <= n && p.since+len(p.own) <= 2*n
}

// insert writes the tree: as a whole list, or as the difference from one.
func (p *planting) insert(tx *ledger.Tx, agent *ledger.AgentRow) error {
	var listID *int64
	rows := make([]ckpt.TreeEntry, 0, len(p.own))
	if p.changesList() {
		if listID = p.base.Base; listID == nil {
			listID = &p.base.ID
		}
		for _, path := range slices.Sorted(maps.Keys(p.own)) {
			rows = append(rows, p.own[path])
		}
	} else {
		rows = p.tree.Entries
	}
	ids, err := contentsOf(tx, agent.ID, rows)
	if err != nil {
		return err
	}
	var id int64
	err = tx.InsertGet(&id, `INSERT INTO trees (agent_id, sha256, base, root, git_head, captured_at, complete, left_out, files, bytes, until)
		VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?) RETURNING id`, agent.ID, p.tree.ID, listID, p.tree.Root, p.tree.GitHead,
		p.tree.CapturedAt, p.tree.Complete,
		p.leftOut, p.tree.Files, p.tree.Bytes, leased(tx.Now))
	if err != nil {
		return err
	}
	known := &knownTree{
		row: TreeRow{ID: id, AgentID: agent.ID, Sum: p.tree.ID, Base: listID}, entries: p.tree.Entries, doubts: p.doubts, used: tx.Now.Time,
	}
	if listID != nil {
		known.own, known.since = p.own, p.since+len(p.own)
	}
	tx.OnCommit(func() { p.known.put(known) })
	return insertFiles(tx, agent.Owner, id, rows, ids)
}

// contentsOf finds the contents that some entries name, and refuses if some do not exist.
func contentsOf(tx *ledger.Tx, agent int64, entries []ckpt.TreeEntry) (map[string]int64, error) {
	wanted := map[string]int64{}
	for _, e := range entries {
		if e.SHA256 != "" {
			wanted[e.SHA256] = e.Size
		}
	}
	ids := make(map[string]int64, len(wanted))
	sums := slices.Sorted(maps.Keys(wanted))
	var rows []struct {
		Sum  string `db:"sum"`
		ID   int64  `db:"id"`
		Size int64  `db:"size"`
	}
	err := tx.List(&rows, SelectSizes, list(sums), agent)
	if err != nil {
		return nil, err
	}
	for _, r := range rows {
		if r.Size != wanted[r.Sum] {
			return nil, ckpt.Errorf(ckpt.CodeInvalid, "the content %s has %d bytes, and the tree says %d", r.Sum, r.Size, wanted[r.Sum])
		}
		ids[r.Sum] = r.ID
	}
	for _, e := range entries { // refuse a content that is listed with two sizes
		if e.SHA256 != "" && e.Size != wanted[e.SHA256] {
			return nil, ckpt.Errorf(ckpt.CodeInvalid, "the content %s has two sizes in the tree", e.SHA256)
		}
	}
	if len(ids) == len(wanted) {
		return ids, nil
	}
	var lacking []string
	for _, sum := range sums {
		if ids[sum] == 0 {
			lacking = append(lacking, sum)
		}
	}
	return nil, missing("contents", lacking)
}

// fileRow is a row of tree_files, for json_each.
type fileRow [4]any

// insertFiles writes the list of a tree in one statement.
func insertFiles(tx *ledger.Tx, owner string, id int64, entries []ckpt.TreeEntry, contents map[string]int64) error {
	rows := make([]fileRow, len(entries))
	var bytes int64
	for i, e := range entries {
		rows[i] = fileRow{e.Path, e.Mode, nil, nil}
		if e.SHA256 != "" {
			rows[i][2] = contents[e.SHA256]
		}
		if e.Mode == ckpt.LinkMode {
			rows[i][3] = e.Target
		}
		bytes += sqlite.RowLength(e.Path, e.Mode, e.Target)
	}
	text := list(rows)
	tx.Tally.Add(owner, bytes-sqlite.RowLength(text)) // the statement is counted by its argument
	return tx.Insert(`INSERT INTO tree_files (tree_id, path, mode, content_id, target)
		SELECT ?1, value ->> 0, value ->> 1, value ->> 2, value ->> 3 FROM json_each(?2)`, id, text)
}

// FilesOf lists one page of the files of a checkpoint.
func (s *Files) FilesOf(ctx context.Context, sc ckpt.Scope, f ckpt.FilesFilter) (*ckpt.FilesPage, error) {
	limit, err := pageOf(f.Limit)
	if err != nil {
		return nil, err
	}
	c, err := s.Checkpoint(ctx, sc, f.Checkpoint, false)
	if err != nil {
		return nil, err
	}
	page := &ckpt.FilesPage{Trees: []ckpt.Tree{}, Files: []ckpt.TreeEntry{}}
	err = s.Reading(ctx, func(q *sqlx.Tx) error {
		trees, err := treesOf(ctx, q, c)
		if err != nil {
			return err
		}
		chosen := trees[0].ID
		for i := range trees {
			t, err := trees[i].Tree()
			if err != nil {
				return err
			}
			page.Trees = append(page.Trees, *t)
			if f.Tree == t.ID {
				page.Tree, chosen = t.ID, trees[i].ID
			}
		}
		if f.Tree == "" {
			page.Tree = page.Trees[0].ID
		}
		if page.Tree == "" {
			return ckpt.Errorf(ckpt.CodeNotFound, "checkpoint %s has no tree %s", c.ID, f.Tree)
		}
		var rows []entry
		err = q.SelectContext(ctx, &rows, `SELECT `+entryColumns+listOf+`? AND f.path > ? ORDER BY f.path LIMIT 0 + ?`, chosen, f.After, limit+1)
		if len(rows) > limit {
			rows = rows[:limit]
			page.Next = ckpt.Ref(rows[limit-1].Path)
		}
		for i := range rows {
			page.Files = append(page.Files, rows[i].asTold())
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	return page, nil
}

func pageOf(limit int) (int, error) {
	if limit == 0 {
		return ckpt.MaxFilesPage, nil
	}
	if limit < 0 || limit > ckpt.MaxFilesPage {
		return 0, ckpt.Errorf(ckpt.CodeInvalid, "a page has 1 to %d files, not %d", ckpt.MaxFilesPage, limit)
	}
	return limit, nil
}

// treesOf are the trees of a checkpoint, in the order in which it names them. For a checkpoint
// without trees, the error says why.
func treesOf(ctx context.Context, q *sqlx.Tx, c *ckpt.Checkpoint) ([]TreeRow, error) {
	var trees []TreeRow
	err := q.SelectContext(ctx, &trees, `SELECT `+TreeColumns+` FROM (SELECT c.run_id, c.n`+ledger.OwnedTables+`?) k
		JOIN checkpoint_trees x ON x.n = k.n AND x.run_id = k.run_id JOIN trees t ON t.id = x.tree_id AND t.sha256 IS NOT NULL ORDER BY x.place`,
		c.ID, c.Owner)
	if err != nil || len(trees) > 0 {
		return trees, err
	}
	var why string
	err = q.GetContext(ctx, &why, `SELECT coalesce(max(x.gone), '') FROM (SELECT c.run_id, c.n`+ledger.OwnedTables+`?) k
		JOIN checkpoint_trees x ON x.n = k.n AND x.run_id = k.run_id`, c.ID, c.Owner)
	switch {
	case err != nil:
		return nil, err
	case why != "":
		return nil, ckpt.Errorf(ckpt.CodeNotFound, "checkpoint %s no longer has its files: %s", c.ID, why)
	}
	return nil, ckpt.Errorf(ckpt.CodeNotFound, "checkpoint %s was saved without files", c.ID)
}

// DiffFiles says how the files of two checkpoints differ.
func (s *Files) DiffFiles(ctx context.Context, sc ckpt.Scope, f ckpt.FilesDiffFilter) (*ckpt.FilesDiff, error) {
	limit, err := pageOf(f.Limit)
	if err != nil {
		return nil, err
	}
	from, err := s.Checkpoint(ctx, sc, f.From, false)
	if err != nil {
		return nil, err
	}
	to, err := s.Checkpoint(ctx, sc, f.To, false)
	if err != nil {
		return nil, err
	}
	var before, after []ckpt.TreeEntry
	d := &ckpt.FilesDiff{Root: f.Root, Changes: []ckpt.FileChange{}}
	err = s.Reading(ctx, func(q *sqlx.Tx) error {
		a, err := treeAt(ctx, q, from, d.Root)
		if err != nil {
			return err
		}
		d.Root = a.Root
		b, err := treeAt(ctx, q, to, d.Root)
		if err != nil {
			return err
		}
		d.From, d.To = a.Sum, b.Sum
		if before, err = Entries(ctx, q, a.ID); err == nil {
			after, err = Entries(ctx, q, b.ID)
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	for _, change := range tree.Diff(before, after) {
		if change.Path <= f.After {
			continue
		}
		if len(d.Changes) == limit {
			d.Next = ckpt.Ref(d.Changes[limit-1].Path)
			break
		}
		d.Changes = append(d.Changes, change)
	}
	return d, nil
}

// treeAt is the tree of a checkpoint for a root, or its only tree.
func treeAt(ctx context.Context, q *sqlx.Tx, c *ckpt.Checkpoint, root string) (*TreeRow, error) {
	trees, err := treesOf(ctx, q, c)
	if err != nil {
		return nil, err
	}
	if root == "" && len(trees) > 1 {
		return nil, ckpt.Errorf(ckpt.CodeInvalid, "checkpoint %s has files of %d roots: name one", c.ID, len(trees))
	}
	for i := range trees {
		if root == "" || trees[i].Root == root {
			return &trees[i], nil
		}
	}
	return nil, ckpt.Errorf(ckpt.CodeNotFound, "checkpoint %s has no files of the root %s", c.ID, root)
}
