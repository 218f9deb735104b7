package rewind

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"maps"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	ckpt "github.com/ckptsidecar/ckptsidecar"
	"github.com/ckptsidecar/ckptsidecar/internal/testenv"
	"github.com/ckptsidecar/ckptsidecar/internal/tree"
)

// childOf is the environment variable by which the test makes a child process restore, and die.
const childOf = "REWIND_TEST_CHILD"

func TestMain(m *testing.M) {
	if folder := os.Getenv(childOf); folder != "" {
		os.Exit(child(folder))
	}
	testenv.Main(m)
}

// task is what the child does.
type task struct {
	Root, Journal string
	Plan          *Plan
	Contents      map[string][]byte
	Continue      bool
	Back          []ckpt.TreeEntry // the files before the restore, which is taken back
	DieAt         int64            // the step before which it is killed; 0 for never
}

func child(file string) int {
	text, err := os.ReadFile(file)
	if err != nil {
		return 3
	}
	var t task
	if json.Unmarshal(text, &t) != nil {
		return 3
	}
	f, err := OpenFolder(t.Root)
	if err != nil {
		return 3
	}
	var steps atomic.Int64
	f.step = func(string) {
		if steps.Add(1) == t.DieAt {
			self, _ := os.FindProcess(os.Getpid())
			_ = self.Kill()
			select {}
		}
	}
	contents := func(_ context.Context, sum string) ([]byte, error) { return t.Contents[sum], nil }
	j := NewJournal(t.Journal, Journal{ID: "0badcafe", Root: t.Root}, t.Plan)
	if t.Back != nil {
		if j, err = ReadJournal(t.Journal); err != nil || j == nil {
			return 4
		}
		err = takeBack(f, j, t.Back, contents)
	} else if t.Continue {
		if j, err = ReadJournal(t.Journal); err != nil || j == nil {
			return 4
		}
		err = j.Continue(context.Background(), f, contents)
	} else {
		err = j.Apply(context.Background(), f, contents)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 5
	}
	fmt.Println(steps.Load())
	return 0
}

// takeBack takes back an unfinished restore, or finishes to do so.
func takeBack(f *Folder, j *Journal, undo []ckpt.TreeEntry, contents Contents) (err error) {
	if j.Phase == Staging {
		if j, err = j.Abandon(f); err != nil || j == nil {
			return err
		}
	}
	p := Back(j, undo, f, Options{})
	if len(p.Refused()) > 0 {
		return fmt.Errorf("the way back is refused: %+v", p.Refused())
	}
	head := *j
	head.ID, head.Trash = "0badcaff", j.StagedFiles()
	return NewJournal(j.path, head, p).InPlaceOf(j).Apply(context.Background(), f, contents)
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// world describes a folder: by path, the text of a file, or "-> " and the target of a link.
type world map[string]string

func (w world) make(t testing.TB, root string) {
	t.Helper()
	for path, text := range w {
		full := filepath.Join(root, filepath.FromSlash(path))
		must(t, os.MkdirAll(filepath.Dir(full), 0o755))
		if target, link := strings.CutPrefix(text, "-> "); link {
			must(t, os.Symlink(target, full))
			continue
		}
		mode := fs.FileMode(0o644)
		if strings.HasPrefix(text, "#!") {
			mode = 0o755
		}
		must(t, os.WriteFile(full, []byte(text), mode))
		must(t, os.Chmod(full, mode))
	}
}

func (w world) entries() []ckpt.TreeEntry {
	var x ckpt.Tree
	for path, text := range w {
		if target, link := strings.CutPrefix(text, "-> "); link {
			x.Entries = append(x.Entries, ckpt.TreeEntry{Path: path, Mode: ckpt.LinkMode, Size: int64(len(target)), Target: target})
			continue
		}
		mode := "0644"
		if strings.HasPrefix(text, "#!") {
			mode = "0755"
		}
		sum := sha256.Sum256([]byte(text))
		x.Entries = append(x.Entries, ckpt.TreeEntry{Path: path, Mode: mode, Size: int64(len(text)), SHA256: hex.EncodeToString(sum[:])})
	}
	tree.Sort(&x)
	return x.Entries
}

func (w world) contents(into map[string][]byte) {
	for _, text := range w {
		sum := sha256.Sum256([]byte(text))
		into[hex.EncodeToString(sum[:])] = []byte(text)
	}
}

// readWorld returns the content of a folder.
func readWorld(t testing.TB, root string) world {
	t.Helper()
	w := world{}
	must(t, filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		name, _ := filepath.Rel(root, path)
		name = filepath.ToSlash(name)
		if d.Type()&fs.ModeSymlink != 0 {
			target, err := os.Readlink(path)
			w[name] = "-> " + target
			return err
		}
		text, err := os.ReadFile(path)
		w[name] = string(text)
		return err
	}))
	return w
}

// wishOf restores a folder from the state now to the state before.
func wishOf(before, now world) *Wish {
	return &Wish{Target: before.entries(), Whole: true, Later: [][]ckpt.FileChange{tree.Diff(before.entries(), now.entries())}}
}

func open(t testing.TB, root string) *Folder {
	t.Helper()
	f, err := OpenFolder(root)
	must(t, err)
	t.Cleanup(func() { _ = f.Close() })
	return f
}

func apply(t testing.TB, root string, p *Plan, worlds ...world) error {
	t.Helper()
	all := map[string][]byte{}
	for _, w := range worlds {
		w.contents(all)
	}
	contents := func(_ context.Context, sum string) ([]byte, error) {
		data, known := all[sum]
		if !known {
			return nil, errors.New("there is no such content")
		}
		return data, nil
	}
	j := NewJournal(filepath.Join(t.TempDir(), "journal"), Journal{ID: "0badcafe", Root: root}, p)
	err := j.Apply(t.Context(), open(t, root), contents)
	if left, readErr := ReadJournal(j.path); err == nil && (left != nil || readErr != nil) {
		t.Errorf("a journal is left: %+v, %v", left, readErr)
	}
	return err
}

var before = world{
	"a": "1", "b/c": "2", "b/d": "#!3", "e/f/g": "4", "h": "-> a", "i": "5", "j/k": "6", "l": "7", "same": "8", "x/y": "9",
}

// now has each kind of change.
var now = world{
	"a": "changed", "b/c": "2", "b/d": "#!3 changed", "h": "-> i", "i/n": "a folder now", "j": "a file now", "l": "-> a", "same": "8",
	"new": "created", "n/e/w": "created", "x": "-> b",
}

func TestRestoreBringsBackEveryKindOfChange(t *testing.T) {
	needLinks(t)
	root := t.TempDir()
	now.make(t, root)
	old, err := os.Stat(filepath.Join(root, "same"))
	must(t, err)
	p := Make(wishOf(before, now), open(t, root), Options{Remove: true})
	if refused := p.Refused(); len(refused) > 0 {
		t.Fatalf("refused: %+v", refused)
	}
	must(t, apply(t, root, p, before, now))
	if d := cmp.Diff(before, readWorld(t, root)); d != "" {
		t.Error(d)
	}
	info, err := os.Stat(filepath.Join(root, "b", "d"))
	must(t, err)
	if info.Mode().Perm() != 0o755 {
		t.Errorf("the mode is %v", info.Mode())
	}
	if is, err := os.Stat(filepath.Join(root, "same")); err != nil || !is.ModTime().Equal(old.ModTime()) {
		t.Errorf("the file that is the same was touched: %v", err)
	}
	if _, err := os.Stat(filepath.Join(root, "n")); err == nil {
		t.Error("an emptied folder is left")
	}
	if again := Make(wishOf(before, now), open(t, root), Options{Remove: true}); len(again.Items) != 0 {
		t.Errorf("there is still something to do: %+v", again.Items)
	}
}

func needLinks(t testing.TB) {
	t.Helper()
	if runtime.GOOS == "windows" {
		t.Skip("links and modes are of Unix")
	}
}

func TestNothingElseIsTouched(t *testing.T) {
	root := t.TempDir()
	was := world{"a": "1", "mine": "old"}
	is := world{"a": "2", "mine": "edited by me, and in no tree", "alsomine": "created by me", "new": "created by the run", "shell": "created by a shell"}
	is.make(t, root)
	w := &Wish{
		Target: was.entries(), Whole: true, Wrote: map[string]bool{"new": true},
		Later: [][]ckpt.FileChange{tree.Diff(was.entries(), world{"a": "2", "mine": "old", "new": "created by the run", "shell": "created by a shell"}.entries())},
	}
	p := Make(w, open(t, root), Options{})
	must(t, apply(t, root, p, was))
	want := maps.Clone(is)
	want["a"] = "1"
	delete(want, "new")
	if d := cmp.Diff(want, readWorld(t, root)); d != "" {
		t.Error(d)
	}
	if len(p.Stays) != 1 || p.Stays[0].Path != "shell" {
		t.Errorf("what stays is %+v", p.Stays)
	}
}

func TestChangedSinceIsRefused(t *testing.T) {
	was, run, is := world{"a": "1", "b": "1"}, world{"a": "2", "b": "2"}, world{"a": "mine", "b": "2"}
	w := wishOf(was, run)
	for name, c := range map[string]struct {
		o    Options
		want world
	}{
		"refused":   {Options{}, is},
		"aside":     {Options{Aside: true}, world{"a": "1", "b": "1", "a.before-0badcafe": "mine"}},
		"overwrite": {Options{Overwrite: true}, was},
		"paths":     {Options{Paths: []string{"b"}}, world{"a": "mine", "b": "1"}},
	} {
		t.Run(name, func(t *testing.T) {
			root := t.TempDir()
			is.make(t, root)
			p := Make(w, open(t, root), c.o)
			if name == "refused" {
				if len(p.Refused()) != 1 || p.Refused()[0].Path != "a" {
					t.Errorf("refused: %+v", p.Refused())
				}
				return
			}
			must(t, apply(t, root, p, was))
			if d := cmp.Diff(c.want, readWorld(t, root)); d != "" {
				t.Error(d)
			}
		})
	}
	root := t.TempDir()
	run.make(t, root)
	w.Others = map[string]string{"b": "another"}
	if refused := Make(w, open(t, root), Options{}).Refused(); len(refused) != 1 || refused[0].Path != "b" {
		t.Errorf("what another run has written: %+v", refused)
	}
	is.make(t, root)
	w.Others, w.Fresh = nil, map[string]time.Time{"a": time.Now()} // the run's own tool wrote it after the newest tree
	if refused := Make(w, open(t, root), Options{}).Refused(); len(refused) != 0 {
		t.Errorf("what the run has written last: %+v", refused)
	}
	w.Fresh["a"] = time.Now().Add(-time.Hour) // and somebody has edited it since
	if refused := Make(w, open(t, root), Options{}).Refused(); len(refused) != 1 || refused[0].Path != "a" {
		t.Errorf("what was edited after the run has written it: %+v", refused)
	}
}

// TestWhatIsOnlyAsideComesBack: the undo does not have what was moved aside, for example because it is secret.
func TestWhatIsOnlyAsideComesBack(t *testing.T) {
	was, run, is := world{"a": "1", "b": "1"}, world{"a": "2", "b": "2"}, world{"a": "secret", "b": "secret"}
	root := t.TempDir()
	is.make(t, root)
	f := open(t, root)
	p := Make(wishOf(was, run), f, Options{Aside: true})
	j := &Journal{ID: "0badcafe", Items: p.Items}
	p.Items = slices.DeleteFunc(slices.Clone(p.Items), func(i Item) bool { return i.Path == "b" }) // b is not done yet
	must(t, apply(t, root, p, was))
	must(t, apply(t, root, Back(j, nil, f, Options{})))
	is["a.before-0badcafe"] = "secret"
	if d := cmp.Diff(is, readWorld(t, root)); d != "" {
		t.Error(d)
	}
}

func TestADeletedFolderComesBackThoughNoTreeSawItGo(t *testing.T) {
	root := t.TempDir()
	was := world{"a": "1", "d/e": "2", "d/f/g": "3"}
	world{"a": "1"}.make(t, root)
	p := Make(&Wish{Target: was.entries(), Whole: true}, open(t, root), Options{})
	must(t, apply(t, root, p, was))
	if d := cmp.Diff(was, readWorld(t, root)); d != "" {
		t.Error(d)
	}
}

func TestIncompleteTreesAndLeftOutPaths(t *testing.T) {
	root := t.TempDir()
	is := world{"a": "2", ".env": "secret", "big/x": "large"}
	is.make(t, root)
	w := wishOf(world{"a": "1"}, is)
	w.Whole, w.Gone = false, []ckpt.LeftOut{{Path: ".env", Why: ckpt.LeftOutSecretName}, {Path: "big", Why: ckpt.LeftOutTooDeep}}
	p := Make(w, open(t, root), Options{Remove: true})
	if !p.Partial {
		t.Error("an incomplete tree is taken without a word")
	}
	p = Make(w, open(t, root), Options{Remove: true, Partial: true})
	if p.Partial || len(p.Items) != 1 || p.Items[0].Path != "a" || len(p.Stays) != 2 {
		t.Errorf("%+v", p)
	}
}

// TestFilesThatMayBeOlderStay: a tool has written files that the checkpoint's tree does not have. They are not removed
// if they may have existed already.
func TestFilesThatMayBeOlderStay(t *testing.T) {
	was, is := world{"a": "1"}, world{"a": "1", "ignored": "edited", "ignored before": "edited", "new": "created"}
	all := map[string]bool{"ignored": true, "ignored before": true, "new": true}
	fresh := map[string]time.Time{"ignored": time.Now(), "ignored before": time.Now(), "new": time.Now()}
	edited := map[string]bool{"ignored": true, "ignored before": true}
	listed := map[string]bool{"ignored before": true, "new": true}
	for name, c := range map[string]struct {
		whole bool
		o     Options
		stay  []string
	}{
		"whole":              {true, Options{}, []string{"ignored", "ignored before"}},
		"whole, remove":      {true, Options{Remove: true}, []string{"ignored"}},
		"incomplete":         {false, Options{Partial: true}, []string{"ignored", "ignored before", "new"}},
		"incomplete, remove": {false, Options{Partial: true, Remove: true}, []string{"ignored"}},
	} {
		root := t.TempDir()
		is.make(t, root)
		w := &Wish{Target: was.entries(), Whole: c.whole, Wrote: all, Edited: edited, Fresh: fresh, Listed: listed}
		p := Make(w, open(t, root), c.o)
		var stay []string
		for _, s := range p.Stays {
			stay = append(stay, s.Path)
		}
		if !slices.Equal(stay, c.stay) || len(p.Items)+len(stay) != 3 || len(p.Refused()) != 0 {
			t.Errorf("%s: %q stay, and %+v", name, stay, p.Items)
		}
	}
}

// TestWhatCannotBeReplacedStays: a file has become too large to be kept for an undo. That need not prevent the restore.
func TestWhatCannotBeReplacedStays(t *testing.T) {
	root := t.TempDir()
	was, is := world{"a": "1", "log": "1"}, world{"a": "2", "log": strings.Repeat("x", ckpt.MaxTreeFile+1)}
	is.make(t, root)
	w := wishOf(was, world{"a": "2"})
	if refused := Make(w, open(t, root), Options{}).Refused(); len(refused) != 1 || refused[0].Path != "log" {
		t.Errorf("refused: %+v", refused)
	}
	for _, o := range []Options{{Aside: true}, {Overwrite: true}} {
		p := Make(w, open(t, root), o)
		if len(p.Items) != 1 || p.Items[0].Path != "a" || p.Items[0].Refuse != "" || len(p.Stays) != 1 || p.Stays[0].Path != "log" {
			t.Errorf("%+v: %+v", o, p)
		}
	}
}

// TestOtherFileSystemsAreNotEntered: since the checkpoint, something was mounted at a folder.
func TestOtherFileSystemsAreNotEntered(t *testing.T) {
	needLinks(t)
	root := t.TempDir()
	is := world{"a": "2", "d/mounted": "x"}
	is.make(t, root)
	was := world{"a": "1", "d/f": "1"}
	f := open(t, root)
	f.device++
	p := Make(wishOf(was, world{"a": "2"}), f, Options{})
	if len(p.Stays) != 1 || p.Stays[0].Path != "d/f" || len(p.Items) != 1 {
		t.Fatalf("%+v", p)
	}
	must(t, apply(t, root, p, was))
	is["a"] = "1"
	if d := cmp.Diff(is, readWorld(t, root)); d != "" {
		t.Error(d)
	}
	if left := Make(&Wish{Target: was.entries(), Whole: true}, f, Options{}); len(left.Items) != 0 {
		t.Errorf("what is hidden counts as gone: %+v", left.Items)
	}
}

// TestManyPathsAreNotComparedWithEachOther counts what is allocated, because that does not depend on the machine.
func TestManyPathsAreNotComparedWithEachOther(t *testing.T) {
	const many = 300
	name := strings.Repeat("n", 100)
	j := &Journal{}
	w := &Wish{Whole: true, Later: [][]ckpt.FileChange{nil}}
	for i := range many {
		j.Items = append(j.Items, Item{Path: fmt.Sprintf("a/%s%d", name, i), Do: Write}, Item{Path: fmt.Sprintf("b/%s%d", name, i), Do: Remove})
		w.Gone = append(w.Gone, ckpt.LeftOut{Path: fmt.Sprintf("c/%s%d", name, i), Why: ckpt.LeftOutTooLarge})
		w.Later[0] = append(w.Later[0], ckpt.FileChange{Path: fmt.Sprintf("d/%s%d", name, i)})
	}
	f := open(t, t.TempDir())
	for what, do := range map[string]func(){"order": func() { j.order() }, "plan": func() { Make(w, f, Options{}) }} {
		if n := testing.AllocsPerRun(1, do); n > many*many/2 {
			t.Errorf("%s: %v allocations", what, n)
		}
	}
}

func TestWaysAreNotLinksAndFoldersAreNotLost(t *testing.T) {
	needLinks(t)
	outside := t.TempDir()
	world{"f": "outside"}.make(t, outside)
	root := t.TempDir()
	was, run := world{"d/f": "1", "e": "1"}, world{"d/f": "2", "e": "2"}
	must(t, os.Symlink(outside, filepath.Join(root, "d")))
	world{"e/mine": "x"}.make(t, root)
	for _, o := range []Options{{}, {Overwrite: true, Remove: true}, {Aside: true}} {
		p := Make(wishOf(was, run), open(t, root), o)
		if len(p.Refused()) != 2 {
			t.Errorf("%+v: %+v", o, p.Items)
		}
	}
	if text, err := os.ReadFile(filepath.Join(outside, "f")); err != nil || string(text) != "outside" {
		t.Errorf("%q, %v", text, err)
	}
}

// TestParentsSwappedForLinksNeverLeadOutside: a parent folder becomes a link at each step of a restore. Nothing
// outside changes.
func TestParentsSwappedForLinksNeverLeadOutside(t *testing.T) {
	needLinks(t)
	was, run := world{"d/f": "1", "d/g": "1", "d/new/h": "1"}, world{"d/f": "2", "d/gone": "3"}
	for at := 1; ; at++ {
		outside, root := t.TempDir(), t.TempDir()
		there := world{"f": "outside", "g": "outside", "gone": "3"}
		there.make(t, outside)
		run.make(t, root)
		f := open(t, root)
		p := Make(wishOf(was, run), f, Options{Remove: true})
		var steps atomic.Int64
		f.step = func(string) {
			if steps.Add(1) == int64(at) {
				must(t, os.Rename(filepath.Join(root, "d"), filepath.Join(root, "moved")))
				must(t, os.Symlink(outside, filepath.Join(root, "d")))
			}
		}
		all := map[string][]byte{}
		was.contents(all)
		j := NewJournal(filepath.Join(t.TempDir(), "journal"), Journal{ID: "0badcafe", Root: root}, p)
		err := j.Apply(t.Context(), f, func(_ context.Context, sum string) ([]byte, error) { return all[sum], nil })
		if d := cmp.Diff(there, readWorld(t, outside)); d != "" {
			t.Fatalf("swapped before step %d (%v):\n%s", at, err, d)
		}
		if steps.Load() < int64(at) {
			return
		}
	}
}

// TestParentsSwappedForLinksNeverLeadElsewhere: a parent folder becomes a link to another folder of the root at each
// step of a restore. That folder does not change.
func TestParentsSwappedForLinksNeverLeadElsewhere(t *testing.T) {
	needLinks(t)
	was, run := world{"d/f": "1", "d/g": "1", "d/mine": "1", "n/h": "1"}, world{"d/f": "2", "d/gone": "3", "d/mine": "2"}
	for at := 1; ; at++ {
		root := t.TempDir()
		there := world{"f": "other", "g": "other", "gone": "3", "mine": "other", "h": "other"}
		there.make(t, filepath.Join(root, "other"))
		run.make(t, root)
		world{"d/mine": "mine"}.make(t, root)
		f := open(t, root)
		p := Make(wishOf(was, run), f, Options{Remove: true, Aside: true})
		var steps atomic.Int64
		which := ""
		f.step = func(what string) {
			if steps.Add(1) != int64(at) {
				return
			}
			which = what
			for _, folder := range []string{"d", "n"} {
				if os.Rename(filepath.Join(root, folder), filepath.Join(root, folder+"-moved")) == nil {
					must(t, os.Symlink("other", filepath.Join(root, folder)))
				}
			}
		}
		all := map[string][]byte{}
		was.contents(all)
		j := NewJournal(filepath.Join(t.TempDir(), "journal"), Journal{ID: "0badcafe", Root: root}, p)
		err := j.Apply(t.Context(), f, func(_ context.Context, sum string) ([]byte, error) { return all[sum], nil })
		if d := cmp.Diff(there, readWorld(t, filepath.Join(root, "other"))); d != "" {
			t.Errorf("swapped before step %d, %s (%v):\n%s", at, which, err, d)
		}
		if steps.Load() < int64(at) {
			return
		}
	}
}

// TestFoldersMovedAwayAreLeftAlone: a folder is moved away at each step of a restore, and another one replaces it.
// The moved folder stays as it was at that moment, except for staged files that were already open.
func TestFoldersMovedAwayAreLeftAlone(t *testing.T) {
	was, run := world{"d/f": "1", "d/g": "1", "d/new/h": "1"}, world{"d/f": "2", "d/gone": "3"}
	for at := 1; ; at++ {
		away, root := t.TempDir(), t.TempDir()
		run.make(t, root)
		f := open(t, root)
		p := Make(wishOf(was, run), f, Options{Remove: true})
		var steps atomic.Int64
		var mu sync.Mutex // so that the move happens at one moment
		var then world
		f.step = func(string) {
			mu.Lock()
			defer mu.Unlock()
			if steps.Add(1) == int64(at) {
				must(t, os.Rename(filepath.Join(root, "d"), filepath.Join(away, "d")))
				then = readWorld(t, away)
				must(t, os.Mkdir(filepath.Join(root, "d"), 0o755))
			}
		}
		all := map[string][]byte{}
		was.contents(all)
		j := NewJournal(filepath.Join(t.TempDir(), "journal"), Journal{ID: "0badcafe", Root: root}, p)
		err := j.Apply(t.Context(), f, func(_ context.Context, sum string) ([]byte, error) { return all[sum], nil })
		must(t, f.Close())
		mine := func(path, _ string) bool { return strings.Contains(path, "/.ckpt-") }
		maps.DeleteFunc(then, mine)
		now := readWorld(t, away)
		maps.DeleteFunc(now, mine)
		if d := cmp.Diff(then, now); then != nil && d != "" {
			t.Fatalf("moved before step %d (%v):\n%s", at, err, d)
		}
		if steps.Load() < int64(at) {
			return
		}
	}
}

// TestStagedFilesAreNotForgotten: a folder is moved away at each step of a restore, within the root or out of it. As long as a staged
// file is in the folder, the journal stays. When the folder is in reach, the next look removes the file, and then the journal.
func TestStagedFilesAreNotForgotten(t *testing.T) {
	was, run := world{"d/f": "1", "d/g": "1", "d/new/h": "1"}, world{"d/f": "2", "d/gone": "3"}
	for _, within := range []bool{true, false} {
		left := 0
		for at := 1; ; at++ {
			away, root := t.TempDir(), t.TempDir()
			if within {
				away = root
			}
			run.make(t, root)
			f := open(t, root)
			p := Make(wishOf(was, run), f, Options{Remove: true})
			var steps atomic.Int64
			f.step = func(string) {
				if steps.Add(1) == int64(at) {
					must(t, os.Rename(filepath.Join(root, "d"), filepath.Join(away, "moved")))
					must(t, os.Mkdir(filepath.Join(root, "d"), 0o755))
				}
			}
			all := map[string][]byte{}
			was.contents(all)
			path := filepath.Join(t.TempDir(), "journal")
			j := NewJournal(path, Journal{ID: "0badcafe", Root: root}, p)
			err := j.Apply(t.Context(), f, func(_ context.Context, sum string) ([]byte, error) { return all[sum], nil })
			must(t, f.Close())
			staged := func() (n int) {
				for _, folder := range []string{root, away} {
					for path := range readWorld(t, folder) {
						if strings.Contains(path, ".ckpt-0badcafe-") {
							n++
						}
					}
				}
				return n
			}
			j, readErr := ReadJournal(path)
			must(t, readErr)
			if staged() > 0 && j == nil {
				t.Errorf("moved before step %d, within %t (%v): %d staged files are left, and the journal is gone", at, within, err, staged())
			}
			if j != nil && j.Phase == Left {
				left++
				if !within {
					must(t, os.RemoveAll(filepath.Join(root, "d")))
					must(t, os.Rename(filepath.Join(away, "moved"), filepath.Join(root, "d")))
				}
				again, err := OpenFolder(root)
				must(t, err)
				still, err := j.Sweep(again)
				must(t, errors.Join(err, again.Close()))
				if _, err := os.Lstat(path); len(still) > 0 || err == nil || staged() > 0 {
					t.Errorf("moved before step %d, within %t: after the next look, %q and %d staged files are left, and the journal %v", at, within, still, staged(), err)
				}
			}
			if steps.Load() < int64(at) {
				break
			}
		}
		if !within && left == 0 {
			t.Error("no staged file was ever out of reach")
		}
	}
}

func TestFoldedPathsAreRefused(t *testing.T) {
	root := t.TempDir()
	w := &Wish{Target: world{"Read.me": "1", "README": "1", "readme": "2"}.entries(), Whole: true, Folds: true}
	p := Make(w, open(t, root), Options{})
	if refused := p.Refused(); len(refused) != 2 {
		t.Errorf("%+v", p.Items)
	}
}

func TestDamagedContentAppliesNothing(t *testing.T) {
	root := t.TempDir()
	was, is := world{"a": "1", "b": "1"}, world{"a": "2", "b": "2"}
	is.make(t, root)
	f := open(t, root)
	p := Make(wishOf(was, is), f, Options{})
	j := NewJournal(filepath.Join(t.TempDir(), "journal"), Journal{ID: "0badcafe", Root: root}, p)
	err := j.Apply(t.Context(), f, func(context.Context, string) ([]byte, error) { return []byte("damaged"), nil })
	if ckpt.CodeOf(err) != ckpt.CodeCorrupt || !strings.Contains(err.Error(), "a") {
		t.Errorf("the error is %v", err)
	}
	if d := cmp.Diff(is, readWorld(t, root)); d != "" {
		t.Error(d)
	}
	if left, err := ReadJournal(j.path); left != nil || err != nil {
		t.Errorf("%+v, %v", left, err)
	}
}

func TestAnEditMeanwhileStopsARestore(t *testing.T) {
	root := t.TempDir()
	was, is := world{"a": "1", "b": "1"}, world{"a": "2", "b": "2"}
	is.make(t, root)
	p := Make(wishOf(was, is), open(t, root), Options{})
	must(t, os.WriteFile(filepath.Join(root, "b"), []byte("edited"), 0o644))
	var changed *ChangedError
	if err := apply(t, root, p, was); !errors.As(err, &changed) || changed.Items[0].Path != "b" {
		t.Errorf("the error is %v", err)
	}
	if d := cmp.Diff(world{"a": "2", "b": "edited"}, readWorld(t, root)); d != "" {
		t.Error(d)
	}
}

// run starts the child, which may be killed before a step. It reports whether the child finished.
func (k *task) run(t testing.TB) (steps int, ended bool) {
	t.Helper()
	text, err := json.Marshal(k)
	must(t, err)
	file := filepath.Join(t.TempDir(), "task")
	must(t, os.WriteFile(file, text, 0o600))
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), childOf+"="+file, "GORACE=atexit_sleep_ms=10")
	var errs strings.Builder
	cmd.Stderr = &errs
	out, err := cmd.Output()
	var exit *exec.ExitError
	if errors.As(err, &exit) && exit.ExitCode() >= 3 {
		t.Fatalf("the child ended with %d: %s", exit.ExitCode(), &errs)
	}
	if err != nil {
		return 0, false
	}
	steps, err = strconv.Atoi(strings.TrimSpace(string(out)))
	must(t, err)
	return steps, true
}

// killed restores in a process that is killed before a step, and then finishes or undoes the restore. It reports
// whether the process finished before that step.
func killed(t testing.TB, was, is world, at int64, back bool) (ended bool) {
	t.Helper()
	needLinks(t)
	root, dir := filepath.Join(t.TempDir(), "root"), t.TempDir()
	must(t, os.Mkdir(root, 0o755))
	is.make(t, root)
	f := open(t, root)
	p := Make(wishOf(was, is), f, Options{Remove: true})
	if len(p.Refused()) > 0 {
		t.Fatalf("refused: %+v", p.Refused())
	}
	k := &task{Root: root, Journal: filepath.Join(dir, "journal"), Plan: p, Contents: map[string][]byte{}, DieAt: at}
	was.contents(k.Contents)
	is.contents(k.Contents)
	_, ended = k.run(t)
	oldOrNew(t, root, was, is, at)
	j, err := ReadJournal(k.Journal)
	must(t, err)
	want := was
	switch {
	case j == nil && !ended && at > 1 && len(readWorld(t, root)) > 0:
		if d := cmp.Diff(was, readWorld(t, root)); d != "" {
			t.Fatalf("killed before step %d: no journal, and\n%s", at, d)
		}
	case j == nil && !ended:
		want = is // it was killed before it had begun
	case j != nil && back:
		contents := func(_ context.Context, sum string) ([]byte, error) { return k.Contents[sum], nil }
		if err := takeBack(f, j, is.entries(), contents); err != nil {
			t.Fatalf("killed before step %d: %v", at, err)
		}
		want = is
	case j != nil:
		k.Continue, k.DieAt = true, 0
		k.run(t)
	}
	if d := cmp.Diff(want, readWorld(t, root)); d != "" {
		t.Fatalf("killed before step %d, then back %v:\n%s", at, back, d)
	}
	if left, err := ReadJournal(k.Journal); left != nil || err != nil {
		t.Fatalf("a journal is left: %+v, %v", left, err)
	}
	return ended
}

// oldOrNew checks that every file of a killed restore is old or new.
func oldOrNew(t testing.TB, root string, was, is world, at int64) {
	t.Helper()
	for path, text := range readWorld(t, root) {
		if strings.HasPrefix(filepath.Base(path), ".ckpt-") {
			continue
		}
		if text != was[path] && text != is[path] {
			t.Fatalf("killed before step %d: %s is %q, which is neither old nor new", at, path, text)
		}
	}
	here := readWorld(t, root)
	for path, text := range was {
		if is[path] == text && here[path] != text {
			t.Fatalf("killed before step %d: %s is lost", at, path)
		}
	}
}

func TestKilledAtEveryStep(t *testing.T) {
	if testing.Short() {
		t.Skip("it starts many processes")
	}
	for _, back := range []bool{false, true} {
		for at := int64(1); !killed(t, before, now, at, back); at++ {
			if at > 500 {
				t.Fatal("it does not end")
			}
		}
	}
}

// TestKilledOnTheWayBack: a restore is killed, taking it back is killed before each step, and taken up again.
func TestKilledOnTheWayBack(t *testing.T) {
	if testing.Short() {
		t.Skip("it starts many processes")
	}
	needLinks(t)
	contents := map[string][]byte{}
	before.contents(contents)
	now.contents(contents)
	begin := func(dieAt int64) (k *task, f *Folder, steps int) {
		root := t.TempDir()
		now.make(t, root)
		f = open(t, root)
		k = &task{Root: root, Journal: filepath.Join(t.TempDir(), "journal"), Contents: contents, DieAt: dieAt}
		k.Plan = Make(wishOf(before, now), f, Options{Remove: true})
		steps, _ = k.run(t)
		return k, f, steps
	}
	_, _, all := begin(0)
	for _, dieAt := range []int{all - 8, all} { // some or all files are moved
		for at, ended := int64(1), false; !ended; at++ {
			k, f, _ := begin(int64(dieAt))
			k.Back, k.DieAt = now.entries(), at
			_, ended = k.run(t)
			j, err := ReadJournal(k.Journal)
			must(t, err)
			if j != nil {
				err = takeBack(f, j, now.entries(), func(_ context.Context, sum string) ([]byte, error) { return contents[sum], nil })
			}
			if d := cmp.Diff(now, readWorld(t, k.Root)); d != "" || err != nil {
				t.Fatalf("killed before step %d, then before step %d of the way back: %v\n%s", dieAt, at, err, d)
			}
		}
	}
}

var (
	long     = flag.Bool("long", os.Getenv("CKPTSIDECAR_LONG") != "", "kill 500 restores instead of 25")
	killSeed = flag.Uint64("kill-seed", uint64(time.Now().UnixNano()), "of the moments at which is killed")
)

// TestRandomKills restores random worlds and kills at random.
func TestRandomKills(t *testing.T) {
	rounds := 25
	if *long {
		rounds = 500
	}
	t.Logf("-kill-seed %d", *killSeed)
	r := rand.New(rand.NewPCG(*killSeed, 21))
	died := 0
	for range rounds {
		was, is := randomWorld(r), randomWorld(r)
		if !killed(t, was, is, 1+r.Int64N(60), r.IntN(2) == 0) {
			died++
		}
	}
	t.Logf("%d of %d restores were killed on their way", died, rounds)
	if died < rounds/10 {
		t.Errorf("only %d of %d restores were killed on their way", died, rounds)
	}
}

func randomWorld(r *rand.Rand) world {
	w := world{}
	for range 4 + r.IntN(12) {
		parts := make([]string, 1+r.IntN(3))
		for i := range parts {
			parts[i] = string(rune('a' + r.IntN(4)))
		}
		path := strings.Join(parts, "/")
		clash := func(other string) bool {
			return strings.HasPrefix(other, path+"/") || strings.HasPrefix(path, other+"/")
		}
		if slices.ContainsFunc(slices.Collect(maps.Keys(w)), clash) {
			continue
		}
		w[path] = []string{"1", "2", "#!3", "-> a", strings.Repeat("long", 5000)}[r.IntN(5)]
	}
	return w
}

// TestAWayBackThatCannotBeginLeavesTheRestore: a restore has changed files, and the contents for its undo are not
// available. The journal of the restore is valid again, even if the process died in the meantime, so that the
// restore can be finished.
func TestAWayBackThatCannotBeginLeavesTheRestore(t *testing.T) {
	for _, died := range []bool{false, true} {
		root := t.TempDir()
		f, err := OpenFolder(root)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = f.Close() })
		path := filepath.Join(t.TempDir(), "journal")
		item := Item{Path: "a", Do: Write, After: &ckpt.TreeEntry{Path: "a", Mode: "0644", Size: 1, SHA256: strings.Repeat("0", 64)}}
		restore := NewJournal(path, Journal{ID: "0badcafe", Root: root}, &Plan{Items: []Item{item}})
		restore.Phase = Moving
		if err := restore.write(); err != nil {
			t.Fatal(err)
		}
		back := NewJournal(path, Journal{ID: "0badcaff", Root: root}, &Plan{Items: []Item{item}}).InPlaceOf(restore)
		if died {
			if err := back.begin(f); err != nil {
				t.Fatal(err)
			}
			left, err := ReadJournal(path)
			if err != nil || left.ID != back.ID {
				t.Fatal(left, err)
			}
			if former, err := left.Abandon(f); err != nil || former.ID != restore.ID {
				t.Fatal(former, err)
			}
		} else if err := back.Apply(t.Context(), f, func(context.Context, string) ([]byte, error) { return nil, errors.New("no daemon") }); err == nil {
			t.Fatal("it went back without contents")
		}
		stands, err := ReadJournal(path)
		if err != nil || stands == nil || stands.ID != restore.ID || stands.Phase != Moving || len(stands.Trash) != 1 {
			t.Errorf("died %t: %+v, %v", died, stands, err)
		}
	}
}

// TestFolds: which file systems ignore the case of letters. A name must have a letter to tell.
func TestFolds(t *testing.T) {
	exact := func(one, other string) bool { return one == other }
	for _, c := range []struct {
		path  string
		names []string
		same  func(one, other string) bool
		want  bool
	}{
		{"/home/ann/2048", []string{"1.2", "README"}, strings.EqualFold, true},
		{"/home/ann/2048", []string{"README"}, exact, false},
		{"/home/ann/2048", nil, strings.EqualFold, true},
		{"/home/ann/2048", nil, exact, false},
		{"/home/Ann/src", []string{"42"}, strings.EqualFold, true},
		{"/mnt/2048", nil, strings.EqualFold, false}, // /mnt/2048 is in another file system than /mnt
		{"/2048", nil, strings.EqualFold, false},
	} {
		here := func(folder string) bool { return folder != filepath.FromSlash("/mnt") }
		if got := foldsIn(filepath.FromSlash(c.path), c.names, here, c.same); got != c.want {
			t.Errorf("%s with %q: %v", c.path, c.names, got)
		}
	}
	root := filepath.Join(t.TempDir(), "2048")
	world{"README": "1"}.make(t, root)
	_, err := os.Lstat(filepath.Join(root, "readme"))
	if got := open(t, root).Folds(); got != (err == nil) {
		t.Errorf("it is %v here", got)
	}
}
