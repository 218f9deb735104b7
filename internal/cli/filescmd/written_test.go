package filescmd

import (
	"maps"
	"runtime"
	"slices"
	"testing"
	"time"

	ckpt "github.com/ckptsidecar/ckptsidecar"
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
