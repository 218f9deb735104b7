package filescmd

import (
	"runtime"
	"slices"
	"testing"

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
		if got := writtenBy(&ckpt.Step{Name: c.name, Args: ckpt.JSON(c.args)}, "/p", "/p"); !slices.Equal(got, c.want) {
			t.Errorf("%s %s: %q and not %q", c.name, c.args, got, c.want)
		}
	}
}
