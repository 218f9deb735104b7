package packaging

import (
	"bytes"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

func python(t *testing.T) {
	t.Helper()
	if err := exec.Command("python3", "-c", "").Run(); err != nil {
		t.Skip("Python 3 is not installed")
	}
}

// release runs packaging/release.py.
func release(t *testing.T, args ...string) {
	t.Helper()
	python(t)
	run := exec.Command("python3", append([]string{"release.py"}, args...)...)
	run.Env = append(os.Environ(), "SOURCE_DATE_EPOCH=1700000000")
	if said, err := run.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, said)
	}
}

// TestVersionsAgree checks the versions of this repository, and sets those of a copy.
func TestVersionsAgree(t *testing.T) {
	release(t, "check")

	dir := t.TempDir()
	for _, name := range []string{
		"packaging/release.py", "CHANGELOG.md", "version.go", "clients/python/src/ckptsidecar/_version.py",
		"clients/typescript/package.json", "clients/typescript/package-lock.json", "clients/typescript/src/version.ts",
	} {
		text, err := os.ReadFile(filepath.Join("..", name))
		if err != nil {
			t.Fatal(err)
		}
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, text, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	run := func(args ...string) (string, error) {
		said, err := exec.Command("python3", append([]string{filepath.Join(dir, "packaging/release.py")}, args...)...).CombinedOutput()
		return string(said), err
	}
	expect := func(wrong string, args ...string) {
		t.Helper()
		if said, err := run(args...); (err != nil) != (wrong != "") || !strings.Contains(said, wrong) {
			t.Errorf("%q ends with %v and says %q, want %q", args, err, said, wrong)
		}
	}
	expect(`CHANGELOG.md has no part "## 98.7.6"`, "check", "98.7.6")
	expect("got 98.7", "set", "98.7")
	expect("", "set", "98.7.6")
	expect("", "check", "98.7.6")
	expect("", "set", "98.7.6") // the second time
	if text, err := os.ReadFile(filepath.Join(dir, "CHANGELOG.md")); err != nil || strings.Count(string(text), "\n## 98.7.6\n\n## 0.9.0\n") != 1 {
		t.Errorf("%v: the change-log has no part about 98.7.6, or several", err)
	}

	lock := filepath.Join(dir, "clients/typescript/package-lock.json")
	text, err := os.ReadFile(lock)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(lock, bytes.Replace(text, []byte("98.7.6"), []byte("98.7.5"), 1), 0o644); err != nil {
		t.Fatal(err)
	}
	expect("package-lock.json says 98.7.5 and 98.7.6, not 98.7.6", "check")
}

// TestTheWheelInstalls builds the Python client twice: the bytes are the same, and the unpacked client can be
// imported.
func TestTheWheelInstalls(t *testing.T) {
	var built [2][]byte
	var dir, name string
	for i := range built {
		dir = t.TempDir()
		release(t, "wheel", dir)
		found, err := filepath.Glob(filepath.Join(dir, "ckptsidecar-*-py3-none-any.whl"))
		if err != nil || len(found) != 1 {
			t.Fatal(found, err)
		}
		name = found[0]
		if built[i], err = os.ReadFile(name); err != nil {
			t.Fatal(err)
		}
	}
	if !bytes.Equal(built[0], built[1]) {
		t.Error("two builds have other bytes")
	}
	imports(t, name)
}

// imports imports the client from a folder or wheel, and nothing that the machine has.
func imports(t *testing.T, from string) {
	t.Helper()
	look := exec.Command("python3", "-I", "-c", `
import sys, importlib.metadata
sys.path.insert(0, sys.argv[1])
import ckptsidecar, ckptsidecar.streaming
assert ckptsidecar.__file__.startswith(sys.argv[1]), ckptsidecar.__file__
assert importlib.metadata.version("ckptsidecar") == ckptsidecar.__version__
for f in importlib.metadata.files("ckptsidecar"):
    assert f.hash is None or f.size == len(f.read_binary()), f
`, from)
	if said, err := look.CombinedOutput(); err != nil {
		t.Errorf("%v: %s", err, said)
	}
}

// TestPipNeedsNoNetwork runs the commands of README.md in a copy. pip must use no index, and has no wheels of
// setuptools.
func TestPipNeedsNoNetwork(t *testing.T) {
	python(t)
	if err := exec.Command("python3", "-m", "pip", "--version").Run(); err != nil {
		t.Skip("pip is not installed")
	}
	source, to := filepath.Join(t.TempDir(), "python"), t.TempDir()
	if err := os.CopyFS(source, os.DirFS("../clients/python")); err != nil {
		t.Fatal(err)
	}
	// --target is also allowed in a Python that belongs to the distribution.
	pip := exec.Command("python3", "-m", "pip", "install", "--no-index", "--no-cache-dir", "--target", to, source)
	pip.Env = append(slices.DeleteFunc(os.Environ(), func(v string) bool { return strings.HasPrefix(v, "PIP_") }), "PIP_CONFIG_FILE="+os.DevNull)
	if said, err := pip.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, said)
	}
	imports(t, to)
}

// TestTheBillOfMaterialsNamesWhatIsIn makes the bill of materials of this test's own binary.
func TestTheBillOfMaterialsNamesWhatIsIn(t *testing.T) {
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "sbom.json")
	release(t, "sbom", "1.2.3", self, file)
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var bom struct {
		BOMFormat  string
		Metadata   struct{ Component struct{ Version string } }
		Components []struct{ Name, Version, PURL string }
	}
	if err := json.Unmarshal(text, &bom); err != nil {
		t.Fatal(err)
	}
	if bom.BOMFormat != "CycloneDX" || bom.Metadata.Component.Version != "1.2.3" || len(bom.Components) == 0 {
		t.Errorf("%+v", bom)
	}
	for _, c := range bom.Components {
		if c.Name == "" || c.Version == "" || c.PURL == "" {
			t.Errorf("%+v", c)
		}
	}
}
