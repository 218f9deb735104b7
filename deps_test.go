package ckptsidecar_test

import (
	"bufio"
	"database/sql"
	"encoding/json"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"

	_ "modernc.org/sqlite"
)

const (
	driverModule = "modernc.org/sqlite"
	libcModule   = "modernc.org/libc"
)

// TestDriverHasTheLibcItWasMadeFor: the driver is C code that was translated
// for exactly one version of its libc. With another version it compiles and
// then corrupts memory, so upgrading only one of them must not go unnoticed.
func TestDriverHasTheLibcItWasMadeFor(t *testing.T) {
	wanted := required(t, goModOf(t, driverModule), libcModule)
	if is := selected(t, libcModule).Version; is != wanted {
		t.Errorf("%s is %s, but %s asks for %s: set it back with `go mod edit -require=%s@%s`", libcModule, is, driverModule, wanted, libcModule, wanted)
	}
	if named := required(t, "go.mod", libcModule); named != wanted {
		t.Errorf("go.mod names %s %s, not %s", libcModule, named, wanted)
	}
}

// TestSQLiteIsNewEnough: version 3.51.3 fixes a race between a writer and a
// reset of the write-ahead log that could damage a database.
func TestSQLiteIsNewEnough(t *testing.T) {
	db, err := sql.Open("sqlite", ":memory:")
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	var version string
	if err := db.QueryRowContext(t.Context(), "select sqlite_version()").Scan(&version); err != nil {
		t.Fatal(err)
	}
	if !atLeast(version, 3, 51, 3) {
		t.Errorf("the driver holds SQLite %s, which is older than 3.51.3", version)
	}
}

func TestVersionsAreComparedAsNumbers(t *testing.T) {
	for version, want := range map[string]bool{
		"3.51.3": true, "3.51.10": true, "3.52.0": true, "4.0.0": true, "3.51": false,
		"3.51.2": false, "3.9.9": false, "2.99.99": false, "": false, "3.x.9": false,
	} {
		if got := atLeast(version, 3, 51, 3); got != want {
			t.Errorf("atLeast(%q, 3.51.3) is %v", version, got)
		}
	}
}

func atLeast(version string, least ...int) bool {
	parts := strings.Split(version, ".")
	for i, want := range least {
		if i >= len(parts) {
			return false
		}
		is, err := strconv.Atoi(parts[i])
		if err != nil || is != want {
			return err == nil && is > want
		}
	}
	return true
}

// moduleInfo is the output of `go list -m -json` for a module.
type moduleInfo struct {
	Version string
	GoMod   string
	Replace *moduleInfo
}

// selected runs the go command, which needs no network for a module in use.
func selected(t *testing.T, path string) moduleInfo {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "go", "list", "-m", "-json", path)
	cmd.Env = append(os.Environ(), "GOFLAGS=-mod=readonly")
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("go list -m %s: %v", path, err)
	}
	var info moduleInfo
	if err := json.Unmarshal(out, &info); err != nil {
		t.Fatal(err)
	}
	if info.Replace != nil {
		t.Errorf("%s is replaced: the pair must be what was released together", path)
	}
	return info
}

func goModOf(t *testing.T, path string) string {
	t.Helper()
	file := selected(t, path).GoMod
	if file == "" {
		t.Fatalf("the go command does not say where the go.mod of %s is", path)
	}
	return file
}

// required returns the version of a module that a go.mod requires.
func required(t *testing.T, goMod, path string) string {
	t.Helper()
	file, err := os.Open(goMod)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	lines := bufio.NewScanner(file)
	for lines.Scan() {
		words := strings.Fields(strings.TrimPrefix(strings.TrimSpace(lines.Text()), "require "))
		if len(words) >= 2 && words[0] == path {
			return words[1]
		}
	}
	t.Fatalf("%s does not name %s", goMod, path)
	return ""
}
