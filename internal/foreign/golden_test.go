package foreign

import (
	"bytes"
	"encoding/json"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	ckpt "github.com/ckptsidecar/ckptsidecar"
)

var update = flag.Bool("update", false, "write the golden files anew")

var options = Options{Owner: "uid:1000"}

// shownPlan is a plan in the form of a golden file: states by name and length.
type shownPlan struct {
	Plan
	Saves []shownSave
}

type shownSave struct {
	ID, Kind, State string
	Labels          ckpt.Labels
	Metadata        json.RawMessage
	Program         *ckpt.Program
}

func show(t *testing.T, r Result) []byte {
	t.Helper()
	shown := struct {
		Plans    []shownPlan
		Problems []string
	}{}
	for _, p := range r.Plans {
		s := shownPlan{Plan: p}
		for i, save := range p.Saves {
			s.Saves = append(s.Saves, shownSave{save.ID, string(save.Kind), p.Sources[i], save.Labels, save.Metadata, save.Program})
		}
		shown.Plans = append(shown.Plans, s)
	}
	for _, p := range r.Problems {
		shown.Problems = append(shown.Problems, p.String())
	}
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", " ")
	if err := enc.Encode(shown); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func golden(t *testing.T, name string, r Result) {
	t.Helper()
	path := filepath.Join("testdata", name+".golden.json")
	got := show(t, r)
	if *update {
		if err := os.WriteFile(path, got, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), string(got)); diff != "" {
		t.Errorf("%s (-want +got, -update writes it anew):\n%s", path, diff)
	}
}

func filesOf(t testing.TB, pattern string) []File {
	t.Helper()
	names, err := filepath.Glob(filepath.Join("testdata", pattern))
	if err != nil || len(names) == 0 {
		t.Fatalf("%v: %v", names, err)
	}
	var files []File
	for _, name := range names {
		data, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		files = append(files, File{filepath.Base(name), data})
	}
	return files
}

func TestSnapshotsGolden(t *testing.T) {
	golden(t, "snapshots", Snapshots(filesOf(t, "snapshots/*.json"), options))
}

func TestStatementsGolden(t *testing.T) {
	golden(t, "statements", Statements(filesOf(t, "statements/*.json"), options))
}

func TestLoopsGolden(t *testing.T) {
	golden(t, "loops", allLoops(t, options))
}

func allLoops(t *testing.T, o Options) Result {
	t.Helper()
	root, err := os.OpenRoot("testdata/loops")
	if err != nil {
		t.Fatal(err)
	}
	defer root.Close()
	var r Result
	loops, problems := FindLoops(root.FS())
	r.Problems = problems
	for _, l := range loops {
		one := ReadLoop(root.FS(), l, o)
		r.Plans = append(r.Plans, one.Plans...)
		r.Problems = append(r.Problems, one.Problems...)
	}
	return r
}

// TestStatesAreTheFilesThemselves: nothing is lost, because the state of each
// checkpoint is a file, byte for byte.
func TestStatesAreTheFilesThemselves(t *testing.T) {
	snapshots, statements := filesOf(t, "snapshots/*.json"), filesOf(t, "statements/*.json")
	for _, test := range []struct {
		files []File
		r     Result
	}{{snapshots, Snapshots(snapshots, options)}, {statements, Statements(statements, options)}} {
		found := 0
		for _, p := range test.r.Plans {
			for i, save := range p.Saves {
				for _, f := range test.files {
					if f.Name == p.Sources[i] {
						found++
						if !bytes.Equal(f.Data, save.State) {
							t.Errorf("%s was changed", f.Name)
						}
					}
				}
			}
		}
		if found != len(test.files) {
			t.Errorf("%d of %d files became checkpoints", found, len(test.files))
		}
	}
	for _, p := range allLoops(t, options).Plans {
		want, err := os.ReadFile(filepath.Join("testdata/loops", p.Sources[0]))
		if err != nil || !bytes.Equal(want, p.Saves[0].State) {
			t.Errorf("%s was changed (%v)", p.Sources[0], err)
		}
	}
}

// TestIdsFollowFromWhatIsImported: the same input gives the same ids, and
// another owner or agent gives other ids.
func TestIdsFollowFromWhatIsImported(t *testing.T) {
	files := filesOf(t, "snapshots/done.json")
	first := Snapshots(files, options).Plans[0]
	again := Snapshots(files, options).Plans[0]
	if diff := cmp.Diff(first, again); diff != "" {
		t.Error(diff)
	}
	seen := map[string]bool{first.Saves[0].ID: true}
	for _, o := range []Options{{Owner: "uid:1001"}, {Owner: "uid:1000", Agent: "other"}, {}} {
		id := Snapshots(files, o).Plans[0].Saves[0].ID
		if err := ckpt.CheckID(id); err != nil || seen[id] {
			t.Errorf("%+v: %s, %v", o, id, err)
		}
		seen[id] = true
	}
	if want := "019f17c1-bc74"; !strings.HasPrefix(first.Saves[0].ID, want) {
		t.Errorf("%s does not begin with the original time, %s", first.Saves[0].ID, want)
	}
}
