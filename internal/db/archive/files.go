package archive

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/jmoiron/sqlx"

	ckpt "github.com/ckptsidecar/ckptsidecar"
	"github.com/ckptsidecar/ckptsidecar/internal/db/blob"
	"github.com/ckptsidecar/ckptsidecar/internal/db/files"
	"github.com/ckptsidecar/ckptsidecar/internal/jsontext"
	"github.com/ckptsidecar/ckptsidecar/internal/tree"
)

// The rows of lines of files.
type (
	contentLine struct {
		SHA256 string `json:"sha256"`
		Was    string `json:"was,omitempty"` // the previous version
	}
	treeLine struct {
		ID string `json:"id"`
		ckpt.TreeRequest
	}
	treesLine struct {
		Checkpoint string   `json:"checkpoint"`
		Trees      []string `json:"trees"`
	}
)

// files writes the contents, the trees, and which checkpoints name them. It writes a tree as a
// change to the last tree of the same root. It leaves out a tree that cannot be read, and reports
// it.
func (e *exporting) files(ctx context.Context, q *sqlx.Tx) error {
	var names []struct {
		files.TreeRow
		N          int64  `db:"n"`
		Checkpoint string `db:"checkpoint"`
		Run        string `db:"run"`
		Seq        int64  `db:"seq"`
	}
	err := q.SelectContext(ctx, &names, `SELECT `+files.TreeColumns+`, c.n, c.id AS checkpoint, `+lifeKey+` AS run, c.seq FROM runs r
		JOIN checkpoint_trees x ON x.run_id = r.id
		JOIN checkpoints c ON c.run_id = x.run_id AND c.kind IN ('routine', 'pre_operation', 'recovery') AND c.seq = x.seq AND c.n = x.n
		JOIN trees t ON t.id = x.tree_id WHERE r.agent_id = ?1 AND (?2 = '' OR r.name = ?2 OR r.base = ?2) AND t.sha256 IS NOT NULL ORDER BY c.n, x.place`,
		e.agent.ID, e.run)
	if err != nil {
		return err
	}
	w := &filesWriter{exporting: e, contents: map[string]bool{}, trees: map[string]bool{}, last: map[string]*ckpt.Tree{}}
	for i := range names {
		if err := w.tree(ctx, q, &names[i].TreeRow, names[i].Run, names[i].Checkpoint, names[i].Seq); err != nil {
			return err
		}
	}
	for i := 0; i < len(names); {
		line := treesLine{Checkpoint: names[i].Checkpoint}
		run := names[i].Run
		for n := names[i].N; i < len(names) && names[i].N == n; i++ {
			if w.trees[names[i].Sum] {
				line.Trees = append(line.Trees, names[i].Sum)
			}
		}
		if len(line.Trees) > 0 {
			w.line(lineTrees, run, line, nil)
		}
	}
	return e.x.err
}

// filesWriter writes the files of an agent.
type filesWriter struct {
	*exporting
	contents map[string]bool // contents that were met; false if damaged
	trees    map[string]bool // the same for trees
	last     map[string]*ckpt.Tree
}

func (w *filesWriter) line(kind, run string, row any, base64 *string) {
	text, err := json.Marshal(row)
	if err != nil {
		w.x.fail(err)
		return
	}
	w.x.line(&exportLine{Type: kind, Run: run, Row: text, Base64: base64})
}

func (w *filesWriter) tree(ctx context.Context, q *sqlx.Tx, row *files.TreeRow, run, checkpoint string, seq int64) error {
	if _, met := w.trees[row.Sum]; met {
		return w.x.err
	}
	w.trees[row.Sum] = false
	t, err := row.Tree()
	if err == nil {
		t.Entries, err = files.Entries(ctx, q, row.ID)
	}
	if err == nil && tree.ID(t) != t.ID {
		err = ckpt.Errorf(ckpt.CodeCorrupt, "the files of tree %s do not match its id", t.ID)
	}
	before := w.last[row.Root]
	if before == nil {
		before = &ckpt.Tree{}
	}
	line := treeLine{ID: row.Sum}
	if err == nil {
		line.Set, line.Removed = tree.Change(before.Entries, t.Entries)
		err = w.contentsOf(ctx, q, before, line.Set)
	}
	if ckpt.CodeOf(err) == ckpt.CodeCorrupt {
		w.store.Log.Warn("damaged files were left out of an export", "checkpoint", checkpoint, "error", err)
		w.x.damaged(run, lineTree, row.Sum, 0, err)
		return w.x.err
	}
	if err != nil {
		return err
	}
	line.Base, line.Root, line.GitHead = before.ID, t.Root, t.GitHead
	line.CapturedAt, line.Complete, line.LeftOut = t.CapturedAt, t.Complete, t.LeftOut
	w.line(lineTree, "", line, nil)
	w.trees[row.Sum], w.last[row.Root] = true, t
	return w.x.err
}

// contentsOf writes the contents of some entries that were not written yet. The content of the
// previous tree at the same path is the previous version.
func (w *filesWriter) contentsOf(ctx context.Context, q *sqlx.Tx, before *ckpt.Tree, entries []ckpt.TreeEntry) error {
	was := map[string]string{}
	for _, e := range before.Entries {
		was[e.Path] = e.SHA256
	}
	for _, e := range entries {
		good, met := w.contents[e.SHA256]
		switch {
		case e.SHA256 == "" || good:
			continue
		case met:
			return ckpt.Errorf(ckpt.CodeCorrupt, "the content %s is damaged", e.SHA256)
		}
		w.contents[e.SHA256] = false
		data, err := files.Read(ctx, q, w.agent.ID, e.SHA256)
		if err != nil {
			return err
		}
		text := base64.StdEncoding.EncodeToString(data)
		w.line(lineContent, "", contentLine{SHA256: e.SHA256, Was: was[e.Path]}, &text)
		if w.x.err != nil {
			return w.x.err
		}
		w.contents[e.SHA256] = true
	}
	return nil
}

// checkFiles checks a line about files. It returns false for any other line.
func (c *checking) checkFiles(line *exportLine) (bool, error) {
	switch line.Type {
	case lineContent, lineTree, lineTrees:
	default:
		return false, nil
	}
	seen := &c.agent.files
	if seen.contents == nil {
		seen.contents, seen.trees = map[string]bool{}, map[string]bool{}
	}
	switch line.Type {
	case lineContent:
		content, err := readContent(line)
		if err != nil {
			return true, err
		}
		seen.contents[content.SHA256] = true
	case lineTree:
		t, err := readTree(line)
		if err != nil {
			return true, err
		}
		if t.Base != "" && !seen.trees[t.Base] {
			return true, fmt.Errorf("the tree %s, which is its base, does not come before it", t.Base)
		}
		for _, e := range t.Set {
			if err := tree.CheckEntry(e, ckpt.MaxTreeFile); err != nil {
				return true, err
			}
			if e.SHA256 != "" && !seen.contents[e.SHA256] {
				return true, fmt.Errorf("the content %s does not come before it", e.SHA256)
			}
		}
		seen.trees[t.ID] = true
	case lineTrees:
		t, err := readTrees(line)
		if err != nil {
			return true, err
		}
		if err := checkLifeKey(line.Run); err != nil {
			return true, err
		}
		if !c.has[t.Checkpoint] {
			return true, fmt.Errorf("checkpoint %s does not come before it", cut(t.Checkpoint))
		}
		for _, id := range t.Trees {
			if !seen.trees[id] {
				return true, fmt.Errorf("the tree %s does not come before it", id)
			}
		}
	}
	return true, nil
}

func readContent(line *exportLine) (*ckpt.FileContent, error) {
	var row contentLine
	if err := jsontext.Decode(line.Row, &row); err != nil {
		return nil, err
	}
	if line.Base64 == nil {
		return nil, errors.New("state_base64 is missing")
	}
	data, err := base64.StdEncoding.DecodeString(*line.Base64)
	if err != nil {
		return nil, errors.New("state_base64 is not base64")
	}
	if blob.HashOf(data) != row.SHA256 {
		return nil, errors.New("the content does not match its sha256")
	}
	if len(data) > ckpt.MaxTreeFile {
		return nil, fmt.Errorf("the content %s is too large", row.SHA256)
	}
	if row.Was != "" {
		err = ckpt.CheckSHA256("hash of the version before", row.Was)
	}
	return &ckpt.FileContent{SHA256: row.SHA256, Was: row.Was, Data: data}, err
}

func readTree(line *exportLine) (*treeLine, error) {
	var row treeLine
	if err := jsontext.Decode(line.Row, &row); err != nil {
		return nil, err
	}
	return &row, ckpt.CheckSHA256("id of the tree", row.ID)
}

func readTrees(line *exportLine) (*treesLine, error) {
	var row treesLine
	if err := jsontext.Decode(line.Row, &row); err != nil {
		return nil, err
	}
	if len(row.Trees) == 0 {
		return nil, errors.New("it names no tree")
	}
	return &row, ckpt.CheckTrees(row.Trees)
}
