package filescmd

import (
	"encoding/json"
	"maps"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"testing"
	"time"

	ckpt "github.com/ckptsidecar/ckptsidecar"
	"github.com/ckptsidecar/ckptsidecar/internal/hook"
)

func TestWrittenBy(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("the paths are those of Unix")
	}
	for _, c := range []struct {
		name, args string
		want       []string
	}{
		{"Write", `{"file_path":"/p/a.go","content":"x"}`, []string{"a.go"}},
		{"Edit", `{"file_path":"sub/b.go"}`, []string{"sub/b.go"}},
		{"apply_patch", `{"input":"*** Begin Patch\n*** Add File: e\n+x\n*** Update File: f/g\n*** Move to: h\n*** End Patch\n"}`, []string{"e", "f/g", "h"}},
		{"Write", `{"file_path":"/elsewhere/a"}`, nil},
		{"Write", `{"file_path":"/p/../q"}`, nil},
		{"Write", `{"file_path":"/p/.git/config"}`, nil},
	} {
		var got []string
		for _, file := range writtenBy(&ckpt.Step{Name: c.name, Args: ckpt.JSON(c.args)}, "/p", "/p") {
			got = append(got, file.Path)
		}
		if !slices.Equal(got, c.want) {
			t.Errorf("%s %s: %q and not %q", c.name, c.args, got, c.want)
		}
	}
}

func TestFirstWrites(t *testing.T) {
	at := func(n int) time.Time { return time.UnixMilli(int64(n)) }
	f := firstWrites{at: map[string]time.Time{}, edited: map[string]bool{}}
	for _, path := range []string{"edited, then created", "created, then edited", "edited and created at once"} {
		first := path[0] == 'e'
		second := !first
		f.note(path, at(3), true)
		f.note(path, at(2), second)
		f.note(path, at(1), first)
		f.note(path, at(4), second)
	}
	f.note("edited and created at once", at(1), false)
	want := map[string]bool{"edited, then created": true, "created, then edited": false, "edited and created at once": true}
	if !maps.Equal(f.edited, want) {
		t.Errorf("edited first: %v", f.edited)
	}
}

// TestWrittenThroughALink: the root has no links in its path, and a tool may name a file by a path with links.
func TestWrittenThroughALink(t *testing.T) {
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	root, link := filepath.Join(dir, "real", "project"), filepath.Join(dir, "link")
	if err := os.MkdirAll(filepath.Join(root, "sub"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("real", link); err != nil {
		t.Skipf("no links can be made: %v", err)
	}
	for path, want := range map[string][]hook.Written{
		filepath.Join(link, "project", "a"):              {{Path: "a"}},
		filepath.Join(link, "project", "sub", "b"):       {{Path: "sub/b"}},
		filepath.Join(link, "project", "gone", "d", "c"): {{Path: "gone/d/c"}},
		filepath.Join(link, "other", "a"):                nil,
		filepath.Join(dir, "gone", "project", "a"):       nil,
	} {
		args, err := json.Marshal(map[string]string{"file_path": path})
		if err != nil {
			t.Fatal(err)
		}
		if got := writtenBy(&ckpt.Step{Name: "Write", Args: args}, root, root); !slices.Equal(got, want) {
			t.Errorf("%s: %v and not %v", path, got, want)
		}
	}
	made := ckpt.JSON(`{"bashEditDiff":{"files":[{"filePath":"` + filepath.ToSlash(filepath.Join(root, "made")) + `","created":true}],"changedFiles":["` + filepath.ToSlash(filepath.Join(root, "made")) + `"]}}`)
	if got := writtenBy(&ckpt.Step{Name: "Bash", Args: ckpt.JSON(`{"command":"make"}`), Result: made}, root, root); !slices.Equal(got, []hook.Written{{Path: "made"}}) {
		t.Errorf("a shell has written %v", got)
	}
}
