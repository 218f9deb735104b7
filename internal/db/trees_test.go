package db_test

import (
	"bytes"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	ckpt "github.com/ckptsidecar/ckptsidecar"
	"github.com/ckptsidecar/ckptsidecar/internal/db"
	"github.com/ckptsidecar/ckptsidecar/internal/db/audit"
	"github.com/ckptsidecar/ckptsidecar/internal/expect"
	"github.com/ckptsidecar/ckptsidecar/internal/secrets"
	"github.com/ckptsidecar/ckptsidecar/internal/tree"
)

// folder is the files of a root, by path.
type folder map[string]string

func (f folder) entries() []ckpt.TreeEntry {
	var list []ckpt.TreeEntry
	for _, path := range slices.Sorted(maps.Keys(f)) {
		list = append(list, ckpt.TreeEntry{Path: path, Mode: "0644", Size: int64(len(f[path])), SHA256: hashOf(f[path])})
	}
	return list
}

// stream returns contents one after the other. was holds the hash of the
// previous version of some.
func stream(was map[string]string, texts ...string) func() (*ckpt.FileContent, error) {
	return func() (*ckpt.FileContent, error) {
		if len(texts) == 0 {
			return nil, io.EOF
		}
		c := &ckpt.FileContent{SHA256: hashOf(texts[0]), Data: []byte(texts[0])}
		if before, ok := was[texts[0]]; ok {
			c.Was = hashOf(before)
		}
		texts = texts[1:]
		return c, nil
	}
}

func putContents(t testing.TB, s *db.Store, sc ckpt.Scope, agent string, was map[string]string, texts ...string) *ckpt.ContentsStored {
	t.Helper()
	stored, err := s.PutContents(t.Context(), sc, agent, stream(was, texts...))
	if err != nil {
		t.Fatal(err)
	}
	return stored
}

// putFiles stores the contents and the tree of a folder, as a change if base
// names another tree, and returns the id of the tree.
func putFiles(t testing.TB, s *db.Store, sc ckpt.Scope, agent, base string, before, f folder) string {
	t.Helper()
	was, fresh := map[string]string{}, []string{}
	for _, path := range slices.Sorted(maps.Keys(f)) {
		old, there := before[path]
		if base != "" && there && old == f[path] {
			continue
		}
		fresh = append(fresh, f[path])
		if there && old != f[path] {
			was[f[path]] = old
		}
	}
	putContents(t, s, sc, agent, was, fresh...)
	r := ckpt.TreeRequest{Agent: agent, Base: base, Root: "/home/ann/project", Complete: true}
	if base == "" {
		before = nil
	}
	r.Set, r.Removed = tree.Change(before.entries(), f.entries())
	stored, err := s.PutTree(t.Context(), sc, r)
	if err != nil {
		t.Fatal(err)
	}
	want := ckpt.Tree{Root: r.Root, Complete: true, Entries: f.entries()}
	expect.Equal(t, "id of the tree", stored.ID, tree.ID(&want))
	return stored.ID
}

func saveWith(t testing.TB, s *db.Store, sc ckpt.Scope, agent, state string, trees ...string) *ckpt.Saved {
	t.Helper()
	r := request(agent, ckpt.KindRoutine, state)
	r.Trees = trees
	c, err := s.Save(t.Context(), sc, r)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// filesAt reads back all files of a checkpoint.
func filesAt(t testing.TB, s *db.Store, sc ckpt.Scope, agent, checkpoint string) folder {
	t.Helper()
	f := folder{}
	for after := ""; ; {
		page, err := s.FilesOf(t.Context(), sc, ckpt.FilesFilter{Checkpoint: checkpoint, After: after, Limit: 7})
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range page.Files {
			data, err := s.Content(t.Context(), sc, agent, e.SHA256)
			if err != nil {
				t.Fatal(err)
			}
			f[e.Path] = string(data)
		}
		if after = string(page.Next); after == "" {
			return f
		}
	}
}

func sameAs[T any](t testing.TB, what string, got, want T) {
	t.Helper()
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("%s: %s", what, diff)
	}
}

func sweep(t testing.TB, s *db.Store) {
	t.Helper()
	if err := s.SweepFiles(t.Context()); err != nil {
		t.Fatal(err)
	}
}

// scan runs one query with the sqlite3 command.
func scan(t testing.TB, path, query string) string {
	t.Helper()
	return strings.TrimSpace(sqlite3(t, "-readonly", path, query))
}

// filesTables are all tables about files.
var filesTables = []string{"checkpoint_trees", "trees", "tree_files", "contents", "content_uses", "content_leases", "content_secrets"}

// project is a folder with some files that are long enough for a delta to find
// common parts.
func project(n int) folder {
	f := folder{}
	for i := range n {
		f[fmt.Sprintf("src/pkg%d/file%d.go", i%5, i)] = fmt.Sprintf("package pkg%d\n\n%s", i%5,
			strings.Repeat(fmt.Sprintf("func f%d() int { return %d } // words\n", i, i), 20+i%7))
	}
	return f
}

func edited(f folder, r *rand.Rand) folder {
	next := maps.Clone(f)
	paths := slices.Sorted(maps.Keys(f))
	for range 1 + r.IntN(3) {
		path := paths[r.IntN(len(paths))]
		switch r.IntN(6) {
		case 0:
			if len(next) > 3 {
				delete(next, path)
			}
		case 1:
			next[fmt.Sprintf("new/n%d.txt", r.IntN(1000))] = fmt.Sprintf("new text %d", r.IntN(1e9))
		default:
			text := f[path]
			at := r.IntN(len(text) + 1)
			next[path] = text[:at] + fmt.Sprintf("edit %d\n", r.IntN(1e9)) + text[at:]
		}
	}
	return next
}

// TestFilesComeBackAsTheyWere keeps a folder through edits, retention and
// sweeps.
func TestFilesComeBackAsTheyWere(t *testing.T) {
	s, c := open(t)
	r := rand.New(rand.NewPCG(1, 2))
	f, id := project(40), ""
	saved := map[string]folder{}
	var before folder
	for i := range 30 {
		id = putFiles(t, s, ann, "coder", id, before, f)
		cp := saveWith(t, s, ann, "coder", fmt.Sprintf(`{"i":%d}`, i), id)
		sameAs(t, "trees of the save", cp.Trees, []string{id})
		if i%3 == 0 {
			if _, err := s.Patch(t.Context(), ann, cp.ID, ckpt.CheckpointPatch{Pinned: new(true)}); err != nil {
				t.Fatal(err)
			}
		}
		saved[cp.ID] = f
		before, f = f, edited(f, r)
		if i%7 == 0 {
			c.add(2 * time.Hour)
			sweep(t, s)
			expect.Equal(t, "violations", scan(t, s.Opt.Path, `SELECT * FROM audit_violations`), "")
		}
	}
	c.add(2 * time.Hour)
	sweep(t, s)
	page, err := s.Checkpoints(t.Context(), ann, ckpt.CheckpointFilter{Agent: "coder", Limit: 1000})
	if err != nil {
		t.Fatal(err)
	}
	if len(page.Checkpoints) < 10 {
		t.Fatalf("only %d checkpoints are left", len(page.Checkpoints))
	}
	for _, cp := range page.Checkpoints {
		expect.Equal(t, "trees of a listed checkpoint", len(cp.Trees), 1)
		sameAs(t, "the files of "+cp.ID, filesAt(t, s, ann, "coder", cp.ID), saved[cp.ID])
	}
	path := s.Opt.Path
	expect.Equal(t, "trees that are left", scan(t, path, `SELECT count(*) FROM trees WHERE sha256 IS NOT NULL`), fmt.Sprint(len(page.Checkpoints)))
	if scan(t, path, `SELECT count(*) FROM contents WHERE pieces IS NOT NULL`) == "0" {
		t.Error("no content is stored as a change to the one before")
	}
	shut(t, s)
	report := sound(t, path)
	expect.Equal(t, "trees verified", report.Trees, int64(len(page.Checkpoints)))
}

func TestTreesGoWithTheirLastCheckpoint(t *testing.T) {
	s, c := open(t)
	canary := "canary-of-a-file-" + strings.Repeat("x9", 40)
	f := project(10)
	f["secret.txt"] = canary
	first := putFiles(t, s, ann, "coder", "", nil, f)
	one := saveWith(t, s, ann, "coder", `1`, first)
	next := maps.Clone(f)
	delete(next, "secret.txt")
	second := putFiles(t, s, ann, "coder", first, f, next)
	saveWith(t, s, ann, "coder", `2`, second)
	c.add(2 * time.Hour)
	sweep(t, s)
	sameAs(t, "files of the first", filesAt(t, s, ann, "coder", one.ID), f)

	// The fourth save reuses the row of the first, and has no tree.
	saveWith(t, s, ann, "coder", `3`)
	four := saveWith(t, s, ann, "coder", `4`)
	_, err := s.FilesOf(t.Context(), ann, ckpt.FilesFilter{Checkpoint: four.ID})
	wantCode(t, err, ckpt.CodeNotFound)
	expect.Equal(t, "rows that were taken over", scan(t, s.Opt.Path, `SELECT count(*) FROM checkpoints WHERE slot & 0xffffffff <> seq`), "1")
	expect.Equal(t, "names before the sweep", scan(t, s.Opt.Path, `SELECT count(*) FROM audit_trees`), "1")
	sweep(t, s)
	// The second tree also uses the list of the first, but contents that the
	// second lacks are gone.
	_, err = s.Content(t.Context(), ann, "coder", hashOf(canary))
	wantCode(t, err, ckpt.CodeNotFound)
	missing, err := s.MissingContents(t.Context(), ann, "coder", []string{hashOf(canary), hashOf(next["src/pkg0/file0.go"])})
	if err != nil {
		t.Fatal(err)
	}
	sameAs(t, "missing", missing.Missing, []string{hashOf(canary)})
	expect.Equal(t, "violations", scan(t, s.Opt.Path, `SELECT * FROM audit_violations`), "")

	if _, err := s.ClearRun(t.Context(), ann, ckpt.RunRef{Agent: "coder", Run: "main"}); err != nil {
		t.Fatal(err)
	}
	c.add(2 * time.Hour)
	sweep(t, s)
	for _, table := range filesTables {
		expect.Equal(t, "rows of "+table, scan(t, s.Opt.Path, `SELECT count(*) FROM `+table), "0")
	}
	path := s.Opt.Path
	shut(t, s)
	sound(t, path)
}

func TestRunDeleteAndEraseTakeFilesWithThem(t *testing.T) {
	s, c := open(t)
	canary := "canary-of-a-file-" + strings.Repeat("y7", 40)
	for _, agent := range []string{"coder", "other"} {
		id := putFiles(t, s, ann, agent, "", nil, folder{"a.txt": canary + agent, "b.txt": "plain"})
		saveWith(t, s, ann, agent, `1`, id)
	}
	c.add(2 * time.Hour)
	sweep(t, s)
	if _, err := s.DeleteRun(t.Context(), ann, ckpt.RunRef{Agent: "coder", Run: "main"}, false); err != nil {
		t.Fatal(err)
	}
	expect.Equal(t, "whose trees are left", scan(t, s.Opt.Path, `SELECT group_concat(a.name) FROM trees t JOIN agents a ON a.id = t.agent_id`), "other")
	expect.Equal(t, "contents", scan(t, s.Opt.Path, `SELECT count(*) FROM contents`), "2")
	if _, err := s.Erase(t.Context(), ann, "other"); err != nil {
		t.Fatal(err)
	}
	for _, table := range filesTables {
		expect.Equal(t, "rows of "+table, scan(t, s.Opt.Path, `SELECT count(*) FROM `+table), "0")
	}
	path := s.Opt.Path
	shut(t, s)
	sound(t, path)
	for _, name := range []string{path, path + "-wal"} {
		data, err := os.ReadFile(name)
		if err == nil && bytes.Contains(data, []byte("canary-of-a-file")) {
			t.Errorf("%s holds bytes of a file of an erased agent", filepath.Base(name))
		}
	}
}

func TestFilesOfOthersAreNotThere(t *testing.T) {
	s, _ := open(t)
	f := folder{"a.txt": "ann's text"}
	id := putFiles(t, s, ann, "coder", "", nil, f)
	cp := saveWith(t, s, ann, "coder", `1`, id)
	save(t, s, bob, "coder", ckpt.KindRoutine, `1`)
	_, err := s.FilesOf(t.Context(), bob, ckpt.FilesFilter{Checkpoint: cp.ID})
	wantCode(t, err, ckpt.CodeNotFound)
	_, err = s.Content(t.Context(), bob, "coder", hashOf(f["a.txt"]))
	wantCode(t, err, ckpt.CodeNotFound)
	for _, who := range []struct {
		sc    ckpt.Scope
		agent string
	}{{bob, "coder"}, {ann, "another"}} {
		missing, err := s.MissingContents(t.Context(), who.sc, who.agent, []string{hashOf(f["a.txt"])})
		if err != nil {
			t.Fatal(err)
		}
		expect.Equal(t, "missing for another", len(missing.Missing), 1)
	}
	_, err = s.PutTree(t.Context(), bob, ckpt.TreeRequest{Agent: "coder", Root: "/r", Set: f.entries()})
	wantCode(t, err, ckpt.CodeFilesMissing)
	_, err = s.PutTree(t.Context(), bob, ckpt.TreeRequest{Agent: "coder", Base: id, Root: "/r"})
	wantCode(t, err, ckpt.CodeFilesMissing)
	r := request("coder", ckpt.KindRoutine, `2`)
	r.Trees = []string{id}
	_, err = s.Save(t.Context(), bob, r)
	wantCode(t, err, ckpt.CodeFilesMissing)
	sameAs(t, "missing trees", ckpt.AsError(err).Missing, []string{id})
	_, _, err = s.Attach(t.Context(), bob, ckpt.AttachRequest{Checkpoint: cp.ID, Trees: []string{id}})
	wantCode(t, err, ckpt.CodeNotFound)
	if _, err := s.FilesOf(t.Context(), root, ckpt.FilesFilter{Checkpoint: cp.ID}); err != nil {
		t.Fatal(err)
	}
}

func TestAttachOnceWithinAMinute(t *testing.T) {
	s, c := open(t)
	id := putFiles(t, s, ann, "coder", "", nil, folder{"a.txt": "text"})
	other := putFiles(t, s, ann, "coder", "", nil, folder{"a.txt": "other"})
	cp := save(t, s, ann, "coder", ckpt.KindRoutine, `1`)
	attach := func(checkpoint string, epoch *int64, trees ...string) (bool, error) {
		_, replayed, err := s.Attach(t.Context(), ann, ckpt.AttachRequest{Checkpoint: checkpoint, Trees: trees, Run: "main", Epoch: epoch})
		return replayed, err
	}
	_, _, err := s.Attach(t.Context(), ann, ckpt.AttachRequest{Checkpoint: cp.ID, Trees: []string{id}, Run: "another"})
	wantCode(t, err, ckpt.CodeConflict)
	_, err = attach(cp.ID, new(int64(0)), id)
	wantCode(t, err, ckpt.CodeFenced)
	replayed, err := attach(cp.ID, new(int64(1)), id)
	if err != nil || replayed {
		t.Fatal(replayed, err)
	}
	replayed, err = attach(cp.ID, nil, id)
	if err != nil || !replayed {
		t.Fatal(replayed, err)
	}
	_, err = attach(cp.ID, nil, other)
	wantCode(t, err, ckpt.CodeConflict)
	over := request("coder", ckpt.KindRoutine, `1`)
	over.Run = "over"
	last, err := s.Save(t.Context(), ann, over)
	if err != nil {
		t.Fatal(err)
	}
	if _, _, err := s.EndRun(t.Context(), ann, ckpt.RunRef{Agent: "coder", Run: "over"}, ckpt.EndRequest{Status: ckpt.RunCompleted}); err != nil {
		t.Fatal(err)
	}
	_, _, err = s.Attach(t.Context(), ann, ckpt.AttachRequest{Checkpoint: last.ID, Trees: []string{id}, Epoch: new(int64(0))})
	wantCode(t, err, ckpt.CodeFenced)
	if _, _, err = s.Attach(t.Context(), ann, ckpt.AttachRequest{Checkpoint: last.ID, Trees: []string{id}}); err != nil {
		t.Errorf("a run that has ended since takes no files: %v", err)
	}
	late := save(t, s, ann, "coder", ckpt.KindRoutine, `2`)
	c.add(61 * time.Second)
	_, err = attach(late.ID, nil, id)
	wantCode(t, err, ckpt.CodeConflict)
	again := request("coder", ckpt.KindRecovery, `2`)
	again.ID = "019cad25-8e6c-7a5f-9d0e-3f2f6d3c1a01"
	if _, err := s.Save(t.Context(), ann, again); err != nil {
		t.Fatal(err)
	}
	again.Trees = []string{id}
	answer, err := s.Save(t.Context(), ann, again)
	if err != nil || !answer.Replayed || len(answer.Trees) > 0 {
		t.Errorf("a save that is made again with a tree answers %v: %v", answer, err)
	}
	expect.Equal(t, "audit rows", scan(t, s.Opt.Path, `SELECT count(*) FROM audit_log WHERE action = 'attach_files' AND outcome = 'done'`), "2")
	c.add(2 * time.Hour)
	sweep(t, s)
	r := request("coder", ckpt.KindRoutine, `3`)
	r.Trees = []string{other}
	_, err = s.Save(t.Context(), ann, r)
	wantCode(t, err, ckpt.CodeFilesMissing)
	spooled := ann
	spooled.Spooled = ckpt.At(c.Now())
	saved, err := s.Save(t.Context(), spooled, r)
	if err != nil || len(saved.Trees) > 0 {
		t.Fatalf("a save that was put aside is lost with its files: %v", err)
	}
	sameAs(t, "the checkpoint keeps its files", filesAt(t, s, ann, "coder", cp.ID), folder{"a.txt": "text"})
}

func TestAForkHasTheFilesThatItBeganWith(t *testing.T) {
	s, _ := open(t)
	f := folder{"a.txt": "text"}
	cp := saveWith(t, s, ann, "coder", `1`, putFiles(t, s, ann, "coder", "", nil, f))
	r := request("coder", ckpt.KindRoutine, `1`)
	r.Run, r.ForkFrom = "fork", ckpt.Ref(cp.ID)
	forked, err := s.Save(t.Context(), ann, r)
	if err != nil {
		t.Fatal(err)
	}
	sameAs(t, "files of the fork", filesAt(t, s, ann, "coder", forked.ID), f)
}

func TestSecretsInFiles(t *testing.T) {
	token := "gh" + "p_" + strings.Repeat("x9Y8", 9)
	for mode, kept := range map[ckpt.SecretsMode]bool{ckpt.SecretsOff: true, ckpt.SecretsWarn: true, ckpt.SecretsRedact: false, ckpt.SecretsReject: false} {
		t.Run(string(mode), func(t *testing.T) {
			o := options(filepath.Join(t.TempDir(), "ckpt.db"), newClock())
			o.Secrets = secrets.Scan{}
			s := openWith(t, o)
			p := ckpt.DefaultPolicy()
			p.Secrets = mode
			save(t, s, ann, "coder", ckpt.KindRoutine, `0`)
			if _, err := s.SetPolicy(t.Context(), ann, "coder", p); err != nil {
				t.Fatal(err)
			}
			text := "token = " + token + "\n"
			stored := putContents(t, s, ann, "coder", nil, text, "plain")
			if !kept {
				expect.Equal(t, "refused", stored.Refused[0].SHA256, hashOf(text))
				expect.Equal(t, "why", stored.Refused[0].Why, ckpt.LeftOutSecret)
				data, err := os.ReadFile(o.Path + "-wal")
				if err != nil || bytes.Contains(data, []byte(token)) {
					t.Errorf("the secret is in the log, or that cannot be read: %v", err)
				}
				return
			}
			expect.Equal(t, "stored", stored.Stored, 2)
			id := putFiles(t, s, ann, "coder", "", nil, folder{"conf/app.ini": text, "b": "plain"})
			saveWith(t, s, ann, "coder", `1`, id)
			saveWith(t, s, ann, "coder", `2`, id)
			want := "0"
			if mode == ckpt.SecretsWarn {
				want = "1"
			}
			expect.Equal(t, "findings", scan(t, o.Path, `SELECT count(*) FROM audit_findings WHERE rule = 'secret' AND evidence LIKE '%/conf/app.ini%'`), want)
		})
	}
}

func TestDamagedContentIsNeverServed(t *testing.T) {
	s, _ := open(t)
	f := project(4)
	id := putFiles(t, s, ann, "coder", "", nil, f)
	cp := saveWith(t, s, ann, "coder", `1`, id)
	path := s.Opt.Path
	shut(t, s)
	text, exchanged := f["src/pkg0/file0.go"], f["src/pkg2/file2.go"]
	sqlite3(t, path, `DROP TRIGGER contents_are_never_changed; DROP TRIGGER tree_files_are_never_changed;
		UPDATE contents SET data = zeroblob(length(data)) WHERE lower(hex(sha256)) = '`+hashOf(text)+`';
		UPDATE contents SET (data, pieces, size, fresh) = (SELECT data, pieces, size, fresh FROM contents WHERE lower(hex(sha256)) = '`+hashOf(f["src/pkg3/file3.go"])+`')
			WHERE lower(hex(sha256)) = '`+hashOf(exchanged)+`';
		UPDATE tree_files SET mode = '0755' WHERE path = 'src/pkg1/file1.go'`)
	report, err := audit.Verify(t.Context(), path, nil)
	if err != nil {
		t.Fatal(err)
	}
	rules := map[string][]string{}
	for _, p := range report.Problems {
		rules[p.Rule] = append(rules[p.Rule], p.Subject)
	}
	damaged := []string{hashOf(text), hashOf(exchanged)}
	slices.Sort(damaged)
	slices.Sort(rules["content"])
	sameAs(t, "contents that verify names", rules["content"], damaged)
	sameAs(t, "trees that verify names", rules["tree"], []string{id})
	s = openWith(t, options(path, newClock()))
	for _, sum := range damaged {
		_, err = s.Content(t.Context(), ann, "coder", sum)
		wantCode(t, err, ckpt.CodeCorrupt)
		if !strings.Contains(ckpt.AsError(err).Message, sum) {
			t.Errorf("the error does not name the content: %v", err)
		}
	}
	if _, err := s.FilesOf(t.Context(), ann, ckpt.FilesFilter{Checkpoint: cp.ID}); err != nil {
		t.Fatal(err)
	}
	changed := text + "more" // must be stored without the content before it
	putContents(t, s, ann, "coder", map[string]string{changed: text}, changed)
	data, err := s.Content(t.Context(), ann, "coder", hashOf(changed))
	if err != nil || string(data) != changed {
		t.Fatal(err)
	}
}

func TestABudgetTakesTreesFromTheOldest(t *testing.T) {
	for _, pause := range []time.Duration{time.Minute, 2 * time.Hour} { // while the contents are leased, and after that
		t.Run(pause.String(), func(t *testing.T) { budgetTakesTrees(t, pause) })
	}
}

func budgetTakesTrees(t *testing.T, pause time.Duration) {
	c := newClock()
	o := options(filepath.Join(t.TempDir(), "ckpt.db"), c)
	o.MaxAgentFiles = 100 << 10
	s := openWith(t, o)
	save(t, s, ann, "coder", ckpt.KindRoutine, `0`)
	p := ckpt.DefaultPolicy()
	p.RoutineKeep = 100
	if _, err := s.SetPolicy(t.Context(), ann, "coder", p); err != nil {
		t.Fatal(err)
	}
	r := rand.New(rand.NewPCG(3, 4))
	noise := func() string {
		b := make([]byte, 30<<10)
		for i := range b {
			b[i] = byte(r.Uint32())
		}
		return string(b)
	}
	var ids []string
	for i := range 6 {
		cp := saveWith(t, s, ann, "coder", fmt.Sprint(i), putFiles(t, s, ann, "coder", "", nil, folder{"a.bin": noise()}))
		ids = append(ids, cp.ID)
		if i == 0 {
			if _, err := s.Patch(t.Context(), ann, cp.ID, ckpt.CheckpointPatch{Pinned: new(true)}); err != nil {
				t.Fatal(err)
			}
		}
		c.add(pause)
	}
	for _, id := range ids[1:4] {
		_, err := s.FilesOf(t.Context(), ann, ckpt.FilesFilter{Checkpoint: id})
		wantCode(t, err, ckpt.CodeNotFound)
		if !strings.Contains(err.Error(), "the files of an agent may take 102400 bytes") {
			t.Errorf("it does not say why: %v", err)
		}
	}
	for _, i := range []int{0, 4, 5} { // the pinned one, and the newest ones that fit
		if _, err := s.FilesOf(t.Context(), ann, ckpt.FilesFilter{Checkpoint: ids[i]}); err != nil {
			t.Errorf("checkpoint %d: %v", i, err)
		}
	}
	if scan(t, o.Path, `SELECT count(*) FROM audit_log WHERE action = 'let_go_of_files'`) == "0" {
		t.Error("the audit log does not say it")
	}
	_, err := s.PutContents(t.Context(), ann, "coder", stream(nil, noise()+noise()))
	wantCode(t, err, ckpt.CodeQuota)
	shut(t, s)
	sound(t, o.Path)
}

// TestFilesCountForTheirOwner compares the running count of stored and removed
// bytes with a full recount.
func TestFilesCountForTheirOwner(t *testing.T) {
	c := newClock()
	o := options(filepath.Join(t.TempDir(), "ckpt.db"), c)
	o.MaxOwnerBytes = 64 << 20
	s := openWith(t, o)
	check := func(when string) int64 {
		t.Helper()
		counted, _ := s.Usage.Used(ann.Caller.Owner)
		if err := s.Usage.Recount(t.Context(), ann.Caller.Owner); err != nil {
			t.Fatal(err)
		}
		there, _ := s.Usage.Used(ann.Caller.Owner)
		if d := counted - there; d < -2000 || d > 2000 {
			t.Errorf("%s: %d bytes are counted, %d are there", when, counted, there)
		}
		return there
	}
	f := project(30)
	next := edited(f, rand.New(rand.NewPCG(5, 6)))
	first := putFiles(t, s, ann, "coder", "", nil, f)
	check("after a whole tree")
	cp := saveWith(t, s, ann, "coder", `1`, first)
	saveWith(t, s, ann, "coder", `2`, putFiles(t, s, ann, "coder", first, f, next))
	full := check("after a change")
	if _, err := s.Delete(t.Context(), ann, cp.ID); err != nil {
		t.Fatal(err)
	}
	if _, err := s.ClearRun(t.Context(), ann, ckpt.RunRef{Agent: "coder", Run: "main"}); err != nil {
		t.Fatal(err)
	}
	c.add(2 * time.Hour)
	sweep(t, s)
	if left := check("after the sweep"); left > full/4 {
		t.Errorf("%d of %d bytes are left", left, full)
	}
	o.MaxOwnerBytes = 20 << 10
	shut(t, s)
	s = openWith(t, o)
	noise := make([]byte, 40<<10)
	for i := range noise {
		noise[i] = byte(i * i >> 3 * 31)
	}
	r := rand.New(rand.NewPCG(7, 8))
	for i := range noise {
		noise[i] = byte(r.Uint32())
	}
	_, err := s.PutContents(t.Context(), ann, "coder", stream(nil, string(noise)))
	wantCode(t, err, ckpt.CodeQuota)
}

func TestVanishedFilesMakeAFinding(t *testing.T) {
	s, _ := open(t)
	f := project(40)
	first := putFiles(t, s, ann, "coder", "", nil, f)
	cp := saveWith(t, s, ann, "coder", `1`, first)
	few := folder{}
	for _, path := range slices.Sorted(maps.Keys(f))[:10] {
		few[path] = f[path]
	}
	saveWith(t, s, ann, "coder", `2`, putFiles(t, s, ann, "coder", first, f, few))
	got := scan(t, s.Opt.Path, `SELECT severity, message, advice FROM audit_findings WHERE rule = 'files_vanished'`)
	if !strings.Contains(got, "30 of 40 files below /home/ann/project") || !strings.Contains(got, "files restore "+cp.ID) {
		t.Errorf("the finding is %q", got)
	}
}

func TestFilesAsAnAuditorSeesThem(t *testing.T) {
	s, _ := open(t)
	f := folder{"a": "1", "b": "2", "c": "3"}
	first := putFiles(t, s, ann, "coder", "", nil, f)
	one := saveWith(t, s, ann, "coder", `1`, first)
	next := folder{"a": "1", "b": "changed", "d": "new"}
	two := saveWith(t, s, ann, "coder", `2`, putFiles(t, s, ann, "coder", first, f, next))
	expect.Equal(t, "the first", scan(t, s.Opt.Path, `SELECT path, size, change FROM audit_files WHERE checkpoint = '`+one.ID+`' ORDER BY path`), "a|1|\nb|1|\nc|1|")
	expect.Equal(t, "the second", scan(t, s.Opt.Path, `SELECT path, size, sha256, change FROM audit_files WHERE checkpoint = '`+two.ID+`' ORDER BY path`),
		"a|1|"+hashOf("1")+"|\nb|7|"+hashOf("changed")+"|modified\nc|1|"+hashOf("3")+"|removed\nd|3|"+hashOf("new")+"|added")
	expect.Equal(t, "trees", scan(t, s.Opt.Path, `SELECT checkpoint, root, files, complete FROM audit_trees ORDER BY seq`),
		one.ID+"|/home/ann/project|3|1\n"+two.ID+"|/home/ann/project|3|1")
	expect.Equal(t, "violations", scan(t, s.Opt.Path, `SELECT * FROM audit_violations`), "")
	d, err := s.DiffFiles(t.Context(), ann, ckpt.FilesDiffFilter{From: one.ID, To: two.ID})
	if err != nil {
		t.Fatal(err)
	}
	var changes []string
	for _, ch := range d.Changes {
		changes = append(changes, ch.Path+" "+string(ch.Change))
	}
	sameAs(t, "differences", changes, []string{"b modified", "c removed", "d added"})
}

// TestARecoveryCheckpointHasTheFilesOfItsState makes a critical finding, which
// saves the newest state once more.
func TestARecoveryCheckpointHasTheFilesOfItsState(t *testing.T) {
	s, c := open(t)
	f := folder{"a.txt": "text"}
	saveWith(t, s, ann, "coder", `1`, putFiles(t, s, ann, "coder", "", nil, f))
	posted, _, err := s.PostFinding(t.Context(), ann, "coder", ckpt.FindingRequest{Rule: "broken", Severity: ckpt.SeverityCritical, Message: "m", SinceSeq: new(int64(0))})
	if err != nil {
		t.Fatal(err)
	}
	page, err := s.Checkpoints(t.Context(), ann, ckpt.CheckpointFilter{Agent: "coder", Kind: ckpt.KindRecovery})
	if err != nil || len(page.Checkpoints) != 1 {
		t.Fatalf("%+v: %d recovery checkpoints, %v", posted, len(page.Checkpoints), err)
	}
	c.add(2 * time.Hour)
	sweep(t, s)
	sameAs(t, "files of the recovery checkpoint", filesAt(t, s, ann, "coder", page.Checkpoints[0].ID), f)
}

// TestATreeThatIsStoredAgainIsLeased stores a tree that a checkpoint uses. The
// checkpoint is removed before the tree is used again.
func TestATreeThatIsStoredAgainIsLeased(t *testing.T) {
	s, c := open(t)
	f := folder{"a.txt": "text"}
	id := putFiles(t, s, ann, "coder", "", nil, f)
	one := saveWith(t, s, ann, "coder", `1`, id)
	save(t, s, ann, "coder", ckpt.KindRoutine, `2`)
	c.add(2 * time.Hour)
	sweep(t, s)
	putFiles(t, s, ann, "coder", "", nil, f)
	if _, err := s.Delete(t.Context(), ann, one.ID); err != nil {
		t.Fatal(err)
	}
	c.add(50 * time.Minute)
	sweep(t, s)
	again := saveWith(t, s, ann, "coder", `3`, id)
	sameAs(t, "files", filesAt(t, s, ann, "coder", again.ID), f)
}

// TestFilesTravel exports an agent with files, and imports it elsewhere.
func TestFilesTravel(t *testing.T) {
	s, _ := open(t)
	r := rand.New(rand.NewPCG(9, 10))
	f, id := project(30), ""
	var before folder
	saved := map[string]folder{}
	p := ckpt.DefaultPolicy()
	p.RoutineKeep = 100
	save(t, s, ann, "coder", ckpt.KindRoutine, `0`)
	if _, err := s.SetPolicy(t.Context(), ann, "coder", p); err != nil {
		t.Fatal(err)
	}
	for i := range 12 {
		id = putFiles(t, s, ann, "coder", id, before, f)
		saved[saveWith(t, s, ann, "coder", fmt.Sprint(i), id).ID] = f
		before, f = f, edited(f, r)
	}
	text := exportOf(t, s, "coder")
	var without bytes.Buffer
	if err := s.ExportAgents(t.Context(), ann, ckpt.ExportRequest{Agents: []string{"coder"}, NoFiles: true}, &without); err != nil {
		t.Fatal(err)
	}
	bare := without.String()
	const count = `SELECT count(*) > 0 FROM contents`
	if inside(t, bare, count) != "0" || inside(t, text, count) != "1" {
		t.Error("files are in the export that is to have none, or not in the other")
	}
	to, _ := open(t)
	for range 2 { // the second time changes nothing
		if _, err := to.Import(t.Context(), ann, ckpt.ImportRequest{}, strings.NewReader(text)); err != nil {
			t.Fatal(err)
		}
	}
	for id, want := range saved {
		sameAs(t, "the files of "+id, filesAt(t, to, ann, "coder", id), want)
	}
	if again, was := rowsIn(t, exportOf(t, to, "coder")), rowsIn(t, text); again != was {
		t.Errorf("the export of the import is another:\n%s", cmp.Diff(strings.Split(was, "\n"), strings.Split(again, "\n")))
	}
	size := func(s *db.Store) string {
		return scan(t, s.Opt.Path, `SELECT sum(length(data)) FROM contents`)
	}
	expect.Equal(t, "bytes of contents", size(to), size(s))
	for _, wrong := range []string{
		`UPDATE contents SET sha256 = zeroblob(32) WHERE id = (SELECT min(id) FROM contents WHERE sha256 IS NOT NULL)`,
		`UPDATE trees SET complete = 0`,
		`UPDATE tree_files SET mode = '0755' WHERE mode = '0644'`,
		`UPDATE tree_files SET path = '../' || path WHERE path LIKE 'src/pkg0%'`,
		`DELETE FROM contents WHERE id = 1`,
	} {
		other, _ := open(t)
		if _, err := other.Import(t.Context(), ann, ckpt.ImportRequest{}, strings.NewReader(forged(t, text, wrong))); ckpt.CodeOf(err) != ckpt.CodeInvalid {
			t.Errorf("an export with %s answers %v", wrong, err)
		}
		expect.Equal(t, "runs after a refused import", scan(t, other.Opt.Path, `SELECT count(*) FROM runs`), "0")
	}
	path := to.Opt.Path
	shut(t, to)
	sound(t, path)
}
