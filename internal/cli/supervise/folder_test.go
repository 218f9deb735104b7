package supervise

import (
	"os"
	"path/filepath"
	"testing"
	"time"
)

// TestExecFoldersAreSwept: the next exec removes the folder of a killed exec.
// Folders of a live exec, young folders, and folders that exec did not make
// stay.
func TestExecFoldersAreSwept(t *testing.T) {
	temporary := t.TempDir()
	t.Setenv("TMPDIR", temporary)
	t.Setenv("TMP", temporary)
	plan := func(folder string) {
		t.Helper()
		if err := os.WriteFile(filepath.Join(folder, "plan.json"), []byte(`{"state":"a secret"}`), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	living, lock, err := makeExecFolder()
	if err != nil {
		t.Fatal(err)
	}
	defer lock.Close()
	plan(living)
	killed, dead, err := makeExecFolder()
	if err != nil {
		t.Fatal(err)
	}
	plan(killed)
	dead.Close() // as the system does for a killed process
	other := filepath.Join(temporary, "somebody-else")
	without := filepath.Join(temporary, execFolder+"without")
	for _, dir := range []string{other, without} {
		if err := os.Mkdir(dir, 0o700); err != nil {
			t.Fatal(err)
		}
		plan(dir)
	}
	there := func(path string) bool { _, err := os.Lstat(path); return err == nil }
	sweepExecFolders(temporary, time.Now())
	for _, path := range []string{living, killed, other, without} {
		if !there(path) {
			t.Errorf("%s was swept while it was young", path)
		}
	}
	sweepExecFolders(temporary, time.Now().Add(time.Hour))
	for path, stays := range map[string]bool{living: true, killed: false, other: true, without: false} {
		if there(path) != stays {
			t.Errorf("%s: there %v, want %v", path, !stays, stays)
		}
	}
	if !there(filepath.Join(living, "plan.json")) {
		t.Error("the plan of a living supervisor is gone")
	}
}
