package files

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	ckpt "github.com/ckptsidecar/ckptsidecar"
	"github.com/ckptsidecar/ckptsidecar/internal/tree"
)

func empty(root string) *Index { return ReadIndex(filepath.Join(root, "no", "such", "index"), root) }

func folder(t testing.TB) string {
	t.Helper()
	root, err := filepath.EvalSymlinks(t.TempDir())
	must(t, err)
	return root
}

func scanned(t testing.TB, s *Scanner, before *Index) *Found {
	t.Helper()
	found, err := s.Scan(t.Context(), before)
	must(t, err)
	must(t, tree.Check(&found.Tree, tree.Limits{}))
	return found
}

func names(f *Found) (list []string) {
	for _, e := range f.Tree.Entries {
		list = append(list, e.Path)
	}
	return list
}

func why(f *Found, path string) ckpt.LeftOutBecause {
	for _, l := range f.Tree.LeftOut {
		if l.Path == path {
			return l.Why
		}
	}
	return ""
}

func want(t testing.TB, f *Found, paths ...string) {
	t.Helper()
	if got := names(f); !slices.Equal(got, paths) {
		t.Errorf("the tree has %q, not %q; left out is %v", got, paths, f.Tree.LeftOut)
	}
}

// later makes a scanner whose clock is well after all writes.
func later(root string) *Scanner {
	return &Scanner{Root: root, Now: func() time.Time { return time.Now().Add(time.Hour) }}
}

func TestScanReadsOnlyWhatChanged(t *testing.T) {
	root := folder(t)
	for _, path := range []string{"a", "b/c", "d"} {
		write(t, root, path, path)
	}
	s := later(root)
	first := scanned(t, s, empty(root))
	want(t, first, "a", "b/c", "d")
	if first.Read != 3 {
		t.Errorf("%d files were read", first.Read)
	}
	index := filepath.Join(t.TempDir(), "x.index")
	must(t, empty(root).Remember(first).Write(index))
	before := ReadIndex(index, root)
	if again := scanned(t, s, before); again.Read != 0 || again.Tree.ID != first.Tree.ID {
		t.Errorf("%d files were read, the tree is %s, and was %s", again.Read, again.Tree.ID, first.Tree.ID)
	}
	write(t, root, "b/c", "changed")
	if again := scanned(t, s, before); again.Read != 1 || again.Tree.ID == first.Tree.ID {
		t.Errorf("%d files were read, the tree is %s, and was %s", again.Read, again.Tree.ID, first.Tree.ID)
	}
	for _, at := range []int{0, 20, 60} { // a damaged index counts as no index
		text, err := os.ReadFile(index)
		must(t, err)
		text[at] ^= 1
		must(t, os.WriteFile(index, text, 0o600))
		if again := scanned(t, s, ReadIndex(index, root)); again.Read != 3 {
			t.Errorf("%d files were read with a damaged index", again.Read)
		}
		must(t, before.Write(index))
	}
}

// TestScanSeesAnEditWithinATick: an edit of the same size within one clock tick of the file system is noticed,
// because a file that had just changed when it was read is read again.
func TestScanSeesAnEditWithinATick(t *testing.T) {
	root := folder(t)
	write(t, root, "a", "one")
	info, err := os.Stat(filepath.Join(root, "a"))
	must(t, err)
	s := &Scanner{Root: root, Now: func() time.Time { return info.ModTime().Add(time.Second) }}
	first := scanned(t, s, empty(root))
	before := empty(root).Remember(first)
	r := before.records["a"]
	if !r.recent {
		t.Fatal("the file is not known as recent")
	}
	write(t, root, "a", "two")
	must(t, os.Chtimes(filepath.Join(root, "a"), info.ModTime(), info.ModTime()))
	now, err := os.Lstat(filepath.Join(root, "a"))
	must(t, err)
	_, r.inode, r.changed = identity(now) // only the bytes differ
	before.records["a"] = r
	if again := scanned(t, s, before); again.Tree.ID == first.Tree.ID {
		t.Error("the edit was not seen")
	}
	s.Now = func() time.Time { return info.ModTime().Add(time.Hour) }
	if settled := before.Remember(scanned(t, s, before)); settled.records["a"].recent {
		t.Error("the file is recent for ever")
	}
}

func TestScanLeavesOut(t *testing.T) {
	root := folder(t)
	for path, text := range map[string]string{
		"a": "1", ".env": "TOKEN=1", "x/.env.local": "2", "x/server.key": "3", "id_rsa": "4", "id_ed25519.pub": "5", ".npmrc": "6",
		"x/server.key.before-0badcafe": "7", "big": strings.Repeat("x", 101), "z": "9",
	} {
		write(t, root, path, text)
	}
	s := later(root)
	s.Limits = tree.Limits{File: 100, Tree: 1000, Files: 100}
	found := scanned(t, s, empty(root))
	want(t, found, "a", "z")
	for path, reason := range map[string]ckpt.LeftOutBecause{
		".env": ckpt.LeftOutSecretName, "x/.env.local": ckpt.LeftOutSecretName, "x/server.key": ckpt.LeftOutSecretName,
		"x/server.key.before-0badcafe": ckpt.LeftOutSecretName, "id_rsa": ckpt.LeftOutSecretName,
		"id_ed25519.pub": ckpt.LeftOutSecretName, ".npmrc": ckpt.LeftOutSecretName, "big": ckpt.LeftOutTooLarge,
	} {
		if got := why(found, path); got != reason {
			t.Errorf("%s is left out for %q and not for %q", path, got, reason)
		}
	}
	if !found.Tree.Complete {
		t.Error("the tree is incomplete, though all that it misses is named")
	}
	s.Limits.Files = 1
	found = scanned(t, s, empty(root))
	want(t, found, "a")
	if found.Tree.Complete || why(found, "z") != ckpt.LeftOutTooMany {
		t.Errorf("over the number of files: %+v", found.Tree)
	}
	s.Limits = tree.Limits{File: 100, Tree: 1, Files: 100}
	found = scanned(t, s, empty(root))
	want(t, found, "a")
	if found.Tree.Complete || why(found, "z") != ckpt.LeftOutTreeFull {
		t.Errorf("over the bytes of a tree: %+v", found.Tree)
	}
}

func TestScanKeepsTrackedFilesWithNamesOfSecrets(t *testing.T) {
	root := folder(t)
	git(t, root, "init", "-q")
	write(t, root, ".env.example", "TOKEN=")
	git(t, root, "add", ".")
	write(t, root, ".env", "TOKEN=1")
	found := scanned(t, later(root), empty(root))
	want(t, found, ".env.example")
	if why(found, ".env") != ckpt.LeftOutSecretName {
		t.Errorf("left out is %v", found.Tree.LeftOut)
	}
}

func TestScanCallsAChangingFileUnstable(t *testing.T) {
	root := folder(t)
	write(t, root, "a", "1")
	write(t, root, "b", "1")
	s := later(root)
	n := 0
	s.AfterRead = func(path string) {
		if path == "b" {
			n++
			write(t, root, "b", strings.Repeat("x", n+1))
		}
	}
	found := scanned(t, s, empty(root))
	want(t, found, "a")
	if n != tries || found.Tree.Complete || why(found, "b") != ckpt.LeftOutUnstable {
		t.Errorf("after %d tries: %+v", n, found.Tree)
	}
}

func TestScanFollowsNoLink(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("links need a right there")
	}
	outside := folder(t)
	write(t, outside, "secret", "outside")
	root := folder(t)
	git(t, root, "init", "-q")
	write(t, root, "d/secret", "inside")
	write(t, root, "f", "inside")
	git(t, root, "add", ".")
	must(t, os.RemoveAll(filepath.Join(root, "d")))
	must(t, os.Symlink(outside, filepath.Join(root, "d"))) // git still lists d/secret
	must(t, os.Remove(filepath.Join(root, "f")))
	must(t, os.Symlink(filepath.Join(outside, "secret"), filepath.Join(root, "f")))
	found := scanned(t, later(root), empty(root))
	want(t, found, "d", "f")
	for _, e := range found.Tree.Entries {
		if !e.IsLink() {
			t.Errorf("%s is kept as a file: %+v", e.Path, e)
		}
	}
}

// TestScanFollowsNoLinkThatIsPutThereMeanwhile: the folder in the path becomes a link after the scan has checked
// it.
func TestScanFollowsNoLinkThatIsPutThereMeanwhile(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("links need a right there")
	}
	outside := folder(t)
	write(t, outside, "b", "outside")
	root := folder(t)
	write(t, root, "a", "1")
	write(t, root, "d/b", "inside")
	top, err := os.OpenRoot(root)
	must(t, err)
	defer top.Close()
	must(t, os.Rename(filepath.Join(root, "d"), filepath.Join(root, "e")))
	must(t, os.Symlink(outside, filepath.Join(root, "d")))
	if _, data, err := readOnce(root, top, Listed{Path: "d/b"}, 100, nil); err == nil {
		t.Errorf("%q was read through a link", data)
	}
}

func TestScanRunsNothingOfTheRepository(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("the planted programs are shell scripts")
	}
	root := folder(t)
	git(t, root, "init", "-q")
	write(t, root, "a", "1")
	git(t, root, "add", ".")
	ran := filepath.Join(t.TempDir(), "ran")
	script := filepath.Join(root, "evil.sh")
	write(t, root, "evil.sh", "#!/bin/sh\necho \"$0 $*\" >> "+ran+"\ncat\n")
	must(t, os.Chmod(script, 0o755))
	for key, value := range map[string]string{
		"core.fsmonitor": script, "filter.x.clean": script, "filter.x.smudge": script, "filter.x.process": script, "core.sshCommand": script,
		"core.pager": script, "diff.external": script, "core.hooksPath": root + "/hooks", "core.editor": script, "core.askPass": script,
		"alias.ls-files": "!" + script, "credential.helper": "!" + script, "uploadpack.packObjectsHook": script, "gpg.program": script,
	} {
		git(t, root, "-c", "core.fsmonitor=false", "config", key, value)
	}
	write(t, root, ".gitattributes", "* filter=x\n")
	for _, hook := range []string{"post-index-change", "fsmonitor-watchman", "reference-transaction"} {
		write(t, root, "hooks/"+hook, "#!/bin/sh\necho hook >> "+ran+"\n")
		must(t, os.Chmod(filepath.Join(root, "hooks", hook), 0o755))
	}
	write(t, root, "a", "2")
	found := scanned(t, later(root), empty(root))
	if !slices.Contains(names(found), "a") || found.GitError != "" {
		t.Errorf("the tree has %q: %s", names(found), found.GitError)
	}
	if text, err := os.ReadFile(ran); err == nil {
		t.Errorf("a program of the repository was run:\n%s", text)
	}
	// This checks that the trap works: plain ls-files falls into it.
	git(t, root, "ls-files", "-co", "--exclude-standard")
	if _, err := os.Stat(ran); err != nil {
		t.Log("plain ls-files of this git runs no core.fsmonitor; the test shows less")
	}
}

func TestScanOfRepositoriesInRepositories(t *testing.T) {
	root := folder(t)
	sub := folder(t)
	git(t, sub, "init", "-q")
	write(t, sub, "s", "1")
	git(t, sub, "add", ".")
	git(t, sub, "commit", "-qm", "s")
	git(t, root, "init", "-q")
	git(t, root, "-c", "protocol.file.allow=always", "submodule", "add", "-q", sub, "module")
	write(t, root, ".gitignore", "*.log\n")
	write(t, root, "a", "1")
	git(t, root, "add", ".")
	git(t, root, "commit", "-qm", "a")
	write(t, root, "module/new", "1")
	write(t, root, "n/x.log", "ignored")
	git(t, root, "init", "-q", "nested")
	write(t, root, "nested/.gitignore", "o\n")
	write(t, root, "nested/o", "ignored")
	write(t, root, "nested/p", "1")
	git(t, root, "init", "-q", "nested/deeper")
	write(t, root, "nested/deeper/q.log", "not ignored: another repository")
	write(t, root, "broken/.git/HEAD", "nonsense")
	write(t, root, "broken/r", "1")
	want(t, scanned(t, later(root), empty(root)), ".gitignore", ".gitmodules", "a", "broken/r", "module/new", "module/s",
		"nested/.gitignore", "nested/deeper/q.log", "nested/p")
	tree := filepath.Join(folder(t), "worktree")
	git(t, root, "worktree", "add", "-q", tree)
	found := scanned(t, later(tree), empty(tree))
	want(t, found, ".gitignore", ".gitmodules", "a")
	if head := strings.TrimSpace(git(t, root, "rev-parse", "HEAD")); found.Tree.GitHead != head {
		t.Errorf("the commit of the worktree is %q and not %q", found.Tree.GitHead, head)
	}
	git(t, root, "pack-refs", "--all")
	if head := strings.TrimSpace(git(t, root, "rev-parse", "HEAD")); gitHead(root) != head || gitHead(filepath.Join(root, "nested")) != "" {
		t.Errorf("the commits are %q and %q", gitHead(root), gitHead(filepath.Join(root, "nested")))
	}
}

// withSubmodule makes a repository whose submodule has one file.
func withSubmodule(t testing.TB, path string) (root string) {
	t.Helper()
	sub := folder(t)
	git(t, sub, "init", "-q")
	write(t, sub, path, "1")
	git(t, sub, "add", ".")
	git(t, sub, "commit", "-qm", "s")
	root = folder(t)
	git(t, root, "init", "-q")
	git(t, root, "-c", "protocol.file.allow=always", "submodule", "add", "-q", sub, "module")
	return root
}

// TestScanOfASubmoduleWithoutItsRepository: a submodule was removed, and its files were restored.
func TestScanOfASubmoduleWithoutItsRepository(t *testing.T) {
	root := withSubmodule(t, "s")
	write(t, root, ".gitignore", "*.log\n")
	write(t, root, "f", "tracked")
	git(t, root, "add", ".")
	must(t, os.RemoveAll(filepath.Join(root, "module")))
	write(t, root, "module/s", "1")
	write(t, root, "module/new", "1")
	must(t, os.Remove(filepath.Join(root, "f")))
	write(t, root, "f/a", "a folder has replaced the file")
	write(t, root, "f/b.log", "ignored")
	want(t, scanned(t, later(root), empty(root)), ".gitignore", ".gitmodules", "f/a", "module/new", "module/s")
	must(t, os.Remove(filepath.Join(root, "f", "a")))
	must(t, os.RemoveAll(filepath.Join(root, "module")))
	must(t, os.Mkdir(filepath.Join(root, "module"), 0o755)) // as after a clone without submodules
	want(t, scanned(t, later(root), empty(root)), ".gitignore", ".gitmodules")
}

// TestScanVisitsEachPathOnce: a file of a submodule is also named by the caller, as before a restore, or was known
// before a listing failed.
func TestScanVisitsEachPathOnce(t *testing.T) {
	root := withSubmodule(t, ".env.example")
	s := later(root)
	s.Also = []string{"module/.env.example", "module/.env.example"}
	first := scanned(t, s, empty(root))
	want(t, first, ".gitmodules", "module/.env.example")
	git(t, root, "init", "-q", "nested")
	write(t, root, "nested/r", "1")
	must(t, os.WriteFile(filepath.Join(root, "nested", ".git", "config"), []byte("[broken"), 0o644))
	want(t, scanned(t, s, empty(root).Remember(first)), ".gitmodules", "module/.env.example", "nested/r")
}

func TestScanWhereGitFailsLosesNothing(t *testing.T) {
	root := folder(t)
	git(t, root, "init", "-q")
	write(t, root, "target/kept", "tracked, in a folder that a walk skips")
	write(t, root, "a", "1")
	git(t, root, "add", ".")
	s := later(root)
	first := scanned(t, s, empty(root))
	want(t, first, "a", "target/kept")
	must(t, os.WriteFile(filepath.Join(root, ".git", "config"), []byte("[broken"), 0o644))
	again := scanned(t, s, empty(root).Remember(first))
	want(t, again, "a", "target/kept")
	if again.GitError == "" {
		t.Error("git has listed a broken repository")
	}
	t.Setenv("PATH", t.TempDir())
	again = scanned(t, s, empty(root).Remember(again))
	want(t, again, "a", "target/kept")
	must(t, os.RemoveAll(filepath.Join(root, "target")))
	again = scanned(t, s, empty(root).Remember(again))
	want(t, again, "a")
	if again.Vanished != 1 {
		t.Errorf("%d files vanished", again.Vanished)
	}
}

// TestScanOfAFolderThatTheRepositoryAroundItIgnores: somebody wants the files of this folder, so they are kept.
func TestScanOfAFolderThatTheRepositoryAroundItIgnores(t *testing.T) {
	root := folder(t)
	git(t, root, "init", "-q")
	write(t, root, ".gitignore", "work/\n")
	root = filepath.Join(root, "work")
	write(t, root, ".gitignore", "*.log\n")
	write(t, root, "a", "1")
	write(t, root, "b.log", "1")
	found := scanned(t, later(root), empty(root))
	want(t, found, ".gitignore", "a")
	if found.GitError == "" {
		t.Error("nothing is said about git")
	}
}

// TestScanWhereGitIsSlow: the first tree does not have what git tracks in a folder that a walk skips. It must not look
// as if that file did not exist.
func TestScanWhereGitIsSlow(t *testing.T) {
	root := folder(t)
	git(t, root, "init", "-q")
	write(t, root, "target/kept", "1")
	write(t, root, "a", "1")
	git(t, root, "add", ".")
	slow := &askedGit{done: make(chan struct{}), err: errGitSlow}
	close(slow.done)
	s := later(root)
	s.asked = slow
	first := scanned(t, s, empty(root))
	want(t, first, "a")
	if first.Tree.Complete {
		t.Error("the tree is complete, though git has not listed anything")
	}
	second := scanned(t, s, empty(root).Remember(first))
	s.asked = slow
	third := scanned(t, s, empty(root).Remember(second))
	want(t, third, "a", "target/kept")
	if !second.Tree.Complete || !third.Tree.Complete {
		t.Errorf("complete are %v and %v", second.Tree.Complete, third.Tree.Complete)
	}
}

func TestScanWhereGitFailsInASubmoduleLosesNothing(t *testing.T) {
	root := withSubmodule(t, "target/kept")
	first := scanned(t, later(root), empty(root))
	want(t, first, ".gitmodules", "module/target/kept")
	must(t, os.WriteFile(filepath.Join(root, ".git", "modules", "module", "config"), []byte("[broken"), 0o644))
	write(t, root, "module/new", "1")
	want(t, scanned(t, later(root), empty(root).Remember(first)), ".gitmodules", "module/new", "module/target/kept")
}

func TestScanOfARootThatIsGone(t *testing.T) {
	root := filepath.Join(folder(t), "project")
	write(t, root, "a", "1")
	first := scanned(t, later(root), empty(root))
	must(t, os.RemoveAll(root))
	again := scanned(t, later(root), empty(root).Remember(first))
	want(t, again, "a")
	if again.Tree.Complete {
		t.Error("the tree is complete")
	}
	if _, err := later(root).Scan(t.Context(), empty(root)); ckpt.CodeOf(err) != ckpt.CodeNotFound {
		t.Errorf("without an index: %v", err)
	}
}

func TestScanStopsInTime(t *testing.T) {
	root := folder(t)
	write(t, root, "a", "1")
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if found, err := later(root).Scan(ctx, empty(root)); err == nil {
		t.Errorf("it found %+v", found.Tree)
	}
}

func TestScanIncludesAndExcludes(t *testing.T) {
	root := folder(t)
	git(t, root, "init", "-q")
	for path, text := range map[string]string{".gitignore": "out/\n*.log\n", "a": "", "out/x": "", "out/y": "", "b.log": "", "big/data": "", "c.tmp": ""} {
		write(t, root, path, text)
	}
	s := later(root)
	s.Choice = &Choice{Include: []string{"/out/", "!/out/y"}, Exclude: []string{"big/", "*.tmp"}}
	first := scanned(t, s, empty(root))
	want(t, first, ".gitignore", "a", "out/x", "out/y")
	s.Choice = nil // as before
	index := filepath.Join(t.TempDir(), "x.index")
	must(t, empty(root).Remember(first).Write(index))
	want(t, scanned(t, s, ReadIndex(index, root)), ".gitignore", "a", "out/x", "out/y")
	s.Choice = &Choice{Include: []string{"b.log"}}
	want(t, scanned(t, s, empty(root)), ".gitignore", "a", "b.log", "big/data", "c.tmp")
}

func TestScanLeavesOutPathsThatNoTreeHolds(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("only there may names be any bytes")
	}
	root := folder(t)
	write(t, root, "a", "1")
	write(t, root, "x\xff", "1")
	write(t, root, "GIT~1/config", "1")
	write(t, root, `c\.git\x`, "1")
	write(t, root, "line\nfeed", "1")
	found := scanned(t, later(root), empty(root))
	want(t, found, "a", "line\nfeed")
	if len(found.Tree.LeftOut) != 3 || why(found, "x\uFFFD") != ckpt.LeftOutPath {
		t.Errorf("left out is %q", found.Tree.LeftOut)
	}
}

func TestCheckRoot(t *testing.T) {
	home := folder(t)
	t.Setenv("HOME", home)
	t.Setenv("USERPROFILE", home)
	if err := CheckRoot(filepath.Join(home, "project")); err != nil {
		t.Error(err)
	}
	for _, root := range []string{home, filepath.Dir(home), filepath.VolumeName(home) + string(filepath.Separator), "relative", home + "/../x"} {
		if CheckRoot(root) == nil {
			t.Errorf("%s may be a root", root)
		}
	}
}

func TestLockIsForOne(t *testing.T) {
	path := filepath.Join(t.TempDir(), "x", "y.index")
	unlock, err := Lock(path, 0)
	must(t, err)
	if _, err := Lock(path, 0); err == nil {
		t.Error("two have the lock")
	}
	unlock()
	unlock, err = Lock(path, 0)
	must(t, err)
	unlock()
}

func FuzzReadIndex(f *testing.F) {
	e := encoder{}
	e.index(&Index{Root: "/r", Stored: map[string]string{"a": "b"}, records: map[string]record{"x": {entry: ckpt.TreeEntry{Path: "x"}}}})
	f.Add(e.b)
	f.Fuzz(func(_ *testing.T, text []byte) {
		d := decoder{b: text}
		d.index()
	})
}

// TestScanAtItsLimits reaches each limit of a tree, and exceeds it by one.
func TestScanAtItsLimits(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("paths and links are shorter there")
	}
	long := func(n int) string { // a path of this many bytes
		parts := []string{}
		for ; n > 201; n -= 201 {
			parts = append(parts, strings.Repeat("d", 200))
		}
		return strings.Join(append(parts, strings.Repeat("f", n)), "/")
	}
	for _, tt := range []struct {
		name  string
		most  tree.Limits
		make  func(root string)
		in    []string
		out   map[string]ckpt.LeftOutBecause
		whole bool
	}{
		{"bytes of a file", tree.Limits{}, func(root string) {
			write(t, root, "at", strings.Repeat("x", ckpt.MaxTreeFile))
			write(t, root, "over", strings.Repeat("x", ckpt.MaxTreeFile+1))
		}, []string{"at"}, map[string]ckpt.LeftOutBecause{"over": ckpt.LeftOutTooLarge}, true},
		{"bytes of a link's target", tree.Limits{}, func(root string) {
			must(t, os.Symlink(strings.Repeat("x", ckpt.MaxTreeTarget-1), filepath.Join(root, "at"))) // the longest on Linux
		}, []string{"at"}, nil, true},
		{"bytes of a path", tree.Limits{}, func(root string) {
			at, err := os.OpenRoot(root)
			must(t, err)
			defer at.Close()
			for _, path := range []string{long(3000), long(3000) + "g"} {
				must(t, at.MkdirAll(filepath.Dir(path), 0o755))
				must(t, at.WriteFile(path, nil, 0o644))
			}
		}, []string{long(3000), long(3000) + "g"}, nil, true},
		{"files of a tree", tree.Limits{File: 10, Tree: 100, Files: 3}, func(root string) {
			for _, path := range []string{"1", "2", "3", "4"} {
				write(t, root, path, "x")
			}
		}, []string{"1", "2", "3"}, map[string]ckpt.LeftOutBecause{"4": ckpt.LeftOutTooMany}, false},
		{"bytes of a tree", tree.Limits{File: 10, Tree: 20, Files: 9}, func(root string) {
			for _, path := range []string{"1", "2", "3"} {
				write(t, root, path, strings.Repeat(path, 10))
			}
		}, []string{"1", "2"}, map[string]ckpt.LeftOutBecause{"3": ckpt.LeftOutTreeFull}, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			root := folder(t)
			tt.make(root)
			s := later(root)
			s.Limits = tt.most
			found := scanned(t, s, empty(root))
			want(t, found, tt.in...)
			if found.Tree.Complete != tt.whole || len(found.Tree.LeftOut) != len(tt.out) {
				t.Errorf("complete is %v, left out is %v", found.Tree.Complete, found.Tree.LeftOut)
			}
			for path, reason := range tt.out {
				if got := why(found, path); got != reason {
					t.Errorf("%s is left out for %q and not for %q", path, got, reason)
				}
			}
		})
	}
}

// TestScanNamesNotAllThatIsLeftOut: so many paths are left out that they cannot all be listed. The tree says that
// it is incomplete, and the daemon accepts it.
func TestScanNamesNotAllThatIsLeftOut(t *testing.T) {
	root := folder(t)
	name := strings.Repeat("n", 200)
	for i := range mostLeftOut/200 + 1 {
		write(t, root, fmt.Sprintf("%s%d.pem", name, i), "x")
	}
	found := scanned(t, later(root), empty(root))
	size := 0
	for _, l := range found.Tree.LeftOut {
		size += len(l.Path)
	}
	if found.Tree.Complete || size > mostLeftOut || size < mostLeftOut-300 {
		t.Errorf("complete is %v, %d bytes are named", found.Tree.Complete, size)
	}
}

// TestWithoutNamesNotAllThatIsLeftOut: the daemon refuses a content, and the tree names as many paths as it may
// already.
func TestWithoutNamesNotAllThatIsLeftOut(t *testing.T) {
	sum := strings.Repeat("0", 64)
	found := &Found{Tree: ckpt.Tree{Root: "/r", Complete: true, Entries: []ckpt.TreeEntry{{Path: "a", Mode: "0644", SHA256: sum}}}}
	for i := range ckpt.MaxTreeLeftOut {
		found.Tree.LeftOut = append(found.Tree.LeftOut, ckpt.LeftOut{Path: fmt.Sprintf("%06d", i), Why: ckpt.LeftOutTooLarge})
	}
	found.Without(map[string]ckpt.LeftOutBecause{sum: ckpt.LeftOutSecret})
	must(t, tree.Check(&found.Tree, tree.Limits{}))
	if found.Tree.Complete {
		t.Error("the tree is complete")
	}
}

// TestScanOfRepositoriesThatAreTooDeep: nested repositories are searched 32 levels deep, and the next one is listed
// as left out.
func TestScanOfRepositoriesThatAreTooDeep(t *testing.T) {
	root := folder(t)
	in, deepest := "", ""
	for depth := range maxNesting + 2 {
		must(t, os.MkdirAll(filepath.Join(root, in), 0o755))
		git(t, filepath.Join(root, in), "init", "-q")
		write(t, root, in+"f", "x")
		if depth == maxNesting {
			deepest = in + "f"
		}
		in += "r/"
	}
	found := scanned(t, later(root), empty(root))
	list := names(found)
	if len(list) != maxNesting+1 || !slices.Contains(list, deepest) {
		t.Errorf("the tree has %q", list)
	}
	if got := why(found, strings.TrimSuffix(deepest, "f")+"r"); got != ckpt.LeftOutTooDeep {
		t.Errorf("left out is %v", found.Tree.LeftOut)
	}
}

// TestScanOfAPathThatIsTooLong: a path that is too long for the system only makes the tree incomplete.
func TestScanOfAPathThatIsTooLong(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("other systems make no such path")
	}
	for _, withGit := range []bool{false, true} {
		root := folder(t)
		if withGit {
			git(t, root, "init", "-q")
		}
		write(t, root, "a", "x")
		at, err := os.OpenRoot(root)
		must(t, err)
		defer at.Close()
		deep := strings.TrimSuffix(strings.Repeat(strings.Repeat("d", 200)+"/", 25), "/")
		must(t, at.MkdirAll(deep, 0o755))
		must(t, at.WriteFile(deep+"/f", []byte("x"), 0o644))
		found := scanned(t, later(root), empty(root))
		want(t, found, "a")
		if found.Tree.Complete {
			t.Errorf("with git %v, the tree is complete", withGit)
		}
	}
}

// TestScanNamesAFileSystemOnce: what is mounted below the root can have any number of files.
func TestScanNamesAFileSystemOnce(t *testing.T) {
	root := folder(t)
	w := &scan{
		Scanner: later(root), ahead: lookAhead(root, nil), looked: map[string]bool{},
		folders: map[string]folderState{"": folderPlain, "mnt": folderPlain, "mnt/x": folderElsewhere},
	}
	w.look(t.Context(), []Listed{{"mnt/x/a", false}, {"mnt/x/b/c", false}, {"mnt/x/d", false}})
	if left := w.found.Tree.LeftOut; len(left) != 1 || left[0] != (ckpt.LeftOut{Path: "mnt/x", Why: ckpt.LeftOutElsewhere}) {
		t.Errorf("left out is %v", left)
	}
}

// TestScanNamesWhatItCannotOpen: git only warns of folders that it cannot open, and a file in a folder that cannot be
// looked at still exists.
func TestScanNamesWhatItCannotOpen(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("it makes paths that only Linux has, and runs a script instead of git")
	}
	root := folder(t)
	git(t, root, "init", "-q")
	at, err := os.OpenRoot(root)
	must(t, err)
	defer at.Close()
	deep := strings.Repeat(strings.Repeat("d", 200)+"/", 20) + strings.Repeat("d", ckpt.MaxTreePath-4020-2)
	must(t, at.MkdirAll(deep, 0o755))
	must(t, at.WriteFile(deep+"/f", []byte("x"), 0o644)) // the path of its folder is too long with that of the root
	found := scanned(t, later(root), empty(root))
	want(t, found)
	if got := why(found, deep); got != ckpt.LeftOutUnreadable {
		t.Errorf("left out for %q", got)
	}
	// Ignored, and included.
	top, _, _ := strings.Cut(deep, "/")
	write(t, root, ".gitignore", "/"+top+"/\nclosed/\n")
	write(t, root, "closed/f", "x")
	must(t, os.Chmod(filepath.Join(root, "closed"), 0))
	_, err = os.ReadDir(filepath.Join(root, "closed"))
	closed := err != nil // root may read it
	for pattern, complete := range map[string]bool{"*.log": true, "/" + top + "/": false, "/closed/": true} {
		s := later(root)
		s.Choice = &Choice{Include: []string{pattern}}
		found = scanned(t, s, empty(root))
		left := why(found, "closed") == ckpt.LeftOutUnreadable
		if found.Tree.Complete != complete || left != (closed && pattern == "/closed/") {
			t.Errorf("with %.10s included, complete is %v, left out is %v", pattern, found.Tree.Complete, found.Tree.LeftOut)
		}
	}
	must(t, os.Chmod(filepath.Join(root, "closed"), 0o755))

	root = filepath.Join(folder(t), "sub")
	write(t, root, "../.git/HEAD", "")
	write(t, root, "a", "x")
	write(t, root, "closed/f", "x")
	bin := t.TempDir()
	write(t, bin, "git", "#!/bin/sh\nprintf '? a\\0'\n"+
		"echo \"warning: could not open directory 'sub/closed/': Permission denied\" >&2\n"+
		"echo \"warning: could not open directory 'sub/gone/': No such file or directory\" >&2\n")
	must(t, os.Chmod(filepath.Join(bin, "git"), 0o755))
	t.Setenv("PATH", bin)
	found = scanned(t, later(root), empty(root))
	want(t, found, "a")
	if !found.Tree.Complete || len(found.Tree.LeftOut) != 1 || why(found, "closed") != ckpt.LeftOutUnreadable {
		t.Errorf("complete is %v, left out is %v", found.Tree.Complete, found.Tree.LeftOut)
	}
}
