package hook

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	ckpt "github.com/ckptsidecar/ckptsidecar"
)

func TestWrites(t *testing.T) {
	creates := func(path string) Written { return Written{path, false} }
	edits := func(path string) Written { return Written{path, true} }
	for _, c := range []struct {
		tool, args string
		want       []Written
	}{
		{"Write", `{"file_path":"/p/a.go","content":"x"}`, []Written{creates("/p/a.go")}},
		{"Edit", `{"file_path":"sub/b.go","old_string":"1"}`, []Written{edits("sub/b.go")}},
		{"Edit", `{"file_path":"sub/b.go","old_string":""}`, []Written{creates("sub/b.go")}},
		{"MultiEdit", `{"file_path":"c","edits":[{"old_string":"1"},{"old_string":""}]}`, []Written{edits("c")}},
		{"MultiEdit", `{"file_path":"c","edits":[{"old_string":""}]}`, []Written{creates("c")}},
		{"NotebookEdit", `{"notebook_path":"/p/n.ipynb"}`, []Written{edits("/p/n.ipynb")}},
		{"write_file", `{"absolute_path":"/p/c"}`, []Written{creates("/p/c")}},
		{"replace", `{"file_path":"/p/d"}`, []Written{edits("/p/d")}},
		{"replace", `{"file_path":"/p/d","old_string":""}`, []Written{creates("/p/d")}},
		{"apply_patch", `{"input":"*** Begin Patch\n*** Add File: e\n+x\n*** Update File: f/g\n*** Move to: h\n*** Delete File: i\n*** End Patch\n"}`,
			[]Written{creates("e"), edits("f/g"), creates("h"), edits("i")}},
		{"Write", `{"file_path":7}`, nil},
		{"Write", `{"content":"*** Add File: e\n"}`, nil},
		{"Read", `{"file_path":"/p/a"}`, nil},
		{"Bash", `{"command":"touch a","path":"a"}`, nil},
		{"Write", `nonsense`, nil},
	} {
		if got := Writes(c.tool, ckpt.JSON(c.args)); !slices.Equal(got, c.want) {
			t.Errorf("%s %s: %v and not %v", c.tool, c.args, got, c.want)
		}
	}
}

// TestLargeArgumentsStillNameTheirFiles: what is kept of them is short, and names the same files.
func TestLargeArgumentsStillNameTheirFiles(t *testing.T) {
	large := strings.Repeat("+0123456789abcde\n", 5000)
	for _, c := range []struct {
		tool string
		args map[string]any
		want []Written
	}{
		{"MultiEdit", map[string]any{"file_path": "a", "edits": []map[string]string{{"old_string": "", "new_string": large}, {"old_string": "x"}}},
			[]Written{{"a", false}}},
		{"MultiEdit", map[string]any{"file_path": "a", "edits": []map[string]string{{"old_string": "x", "new_string": large}}}, []Written{{"a", true}}},
		{"Write", map[string]any{"content": large, "file_path": "/p/a.go"}, []Written{{"/p/a.go", false}}},
		{"Edit", map[string]any{"old_string": "x", "new_string": large, "file_path": "a"}, []Written{{"a", true}}},
		{"Edit", map[string]any{"old_string": "", "new_string": large, "file_path": "a"}, []Written{{"a", false}}},
		{"Write", map[string]any{"content": "", "file_path": large}, nil},
		{"Bash", map[string]any{"command": large, "path": "/p/a.go"}, nil},
		{"apply_patch", map[string]any{"begin": "x", "input": "*** Add File: e\n" + large + "*** Update File: f/g\r\n*** Move to: h\n" + large},
			[]Written{{"e", false}, {"f/g", true}, {"h", false}}},
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
			t.Errorf("%s: %v and not %v", c.tool, got, c.want)
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

// TestChanged reads what Claude Code says of the files that a shell has changed, also of a large result.
func TestChanged(t *testing.T) {
	const diff = `"bashEditDiff":{"files":[{"filePath":"/p/new","hunks":[],"created":true},{"filePath":"/p/old","hunks":[]}],"moreFiles":1,"changedFiles":["/p/new","/p/old","/p/more"]}`
	want := []Written{{"/p/new", false}, {"/p/old", true}, {"/p/more", true}}
	for name, result := range map[string]string{"small": `{"stdout":"x",` + diff + `}`, "large": `{"stdout":"` + strings.Repeat("x", maxKept) + `",` + diff + `}`} {
		kept := keptResult(ckpt.JSON(result))
		if got := Changed(kept); !slices.Equal(got, want) || len(kept) > maxKept {
			t.Errorf("%s: %v and not %v, in %d bytes", name, got, want, len(kept))
		}
	}
	if got := Changed(ckpt.JSON(`"text"`)); got != nil {
		t.Errorf("a text names %v", got)
	}
}
