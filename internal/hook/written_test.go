package hook

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	ckpt "github.com/ckptsidecar/ckptsidecar"
)

func TestWrites(t *testing.T) {
	for _, c := range []struct {
		tool, args string
		want       []string
	}{
		{"Write", `{"file_path":"/p/a.go","content":"x"}`, []string{"/p/a.go"}},
		{"Edit", `{"file_path":"sub/b.go"}`, []string{"sub/b.go"}},
		{"NotebookEdit", `{"notebook_path":"/p/n.ipynb"}`, []string{"/p/n.ipynb"}},
		{"write_file", `{"absolute_path":"/p/c"}`, []string{"/p/c"}},
		{"replace", `{"file_path":"/p/d"}`, []string{"/p/d"}},
		{"apply_patch", `{"input":"*** Begin Patch\n*** Add File: e\n+x\n*** Update File: f/g\n*** Move to: h\n*** End Patch\n"}`, []string{"e", "f/g", "h"}},
		{"Write", `{"file_path":7}`, nil},
		{"Write", `{"content":"*** Add File: e\n"}`, nil},
		{"Read", `{"file_path":"/p/a"}`, nil},
		{"Bash", `{"command":"touch a","path":"a"}`, nil},
		{"Write", `nonsense`, nil},
	} {
		if got := Writes(c.tool, ckpt.JSON(c.args)); !slices.Equal(got, c.want) {
			t.Errorf("%s %s: %q and not %q", c.tool, c.args, got, c.want)
		}
	}
}

// TestLargeArgumentsStillNameTheirFiles: what is kept of them is short, and names the same files.
func TestLargeArgumentsStillNameTheirFiles(t *testing.T) {
	large := strings.Repeat("+0123456789abcde\n", 5000)
	for _, c := range []struct {
		tool string
		args map[string]string
		want []string
	}{
		{"Write", map[string]string{"content": large, "file_path": "/p/a.go"}, []string{"/p/a.go"}},
		{"Write", map[string]string{"content": "", "file_path": large}, nil},
		{"Bash", map[string]string{"command": large, "path": "/p/a.go"}, nil},
		{"apply_patch", map[string]string{"begin": "x", "input": "*** Add File: e\n" + large + "*** Update File: f/g\r\n*** Move to: h\n" + large},
			[]string{"e", "f/g", "h"}},
	} {
		args, err := json.Marshal(c.args)
		if err != nil {
			t.Fatal(err)
		}
		short := keptArgs(c.tool, args)
		if len(short) > maxKept || !strings.Contains(string(short), `"cut":true`) {
			t.Errorf("%s: %d bytes of %d are kept", c.tool, len(short), len(args))
		}
		if got := Writes(c.tool, short); !slices.Equal(got, c.want) {
			t.Errorf("%s: %q and not %q", c.tool, got, c.want)
		}
	}
	patch, err := json.Marshal(map[string]string{"input": strings.Repeat("*** Add File: <a>\n", 20_000)})
	if err != nil {
		t.Fatal(err)
	}
	short := keptArgs("apply_patch", patch)
	if n := len(Writes("apply_patch", short)); len(short) > 3*maxKept || n < 500 {
		t.Errorf("of a patch of many files %d are named, in %d bytes", n, len(short))
	}
}
