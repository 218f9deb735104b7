package hookcmd

import (
	"os"
	"path/filepath"
	"testing"
	"time"
)

// TestOldResultsAreRemoved also has brackets in the name of the folder, which a pattern would misread.
func TestOldResultsAreRemoved(t *testing.T) {
	folder := filepath.Join(t.TempDir(), "[state")
	if err := os.Mkdir(folder, 0o700); err != nil {
		t.Fatal(err)
	}
	for name, age := range map[string]time.Duration{"snap-old": 2 * time.Hour, "snap-new": 0, "other": 2 * time.Hour} {
		path, at := filepath.Join(folder, name), time.Now().Add(-age)
		if err := os.WriteFile(path, nil, 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Chtimes(path, at, at); err != nil {
			t.Fatal(err)
		}
	}
	sweepSnaps(folder)
	left, err := os.ReadDir(folder)
	if err != nil || len(left) != 2 || left[0].Name() != "other" || left[1].Name() != "snap-new" {
		t.Errorf("left: %v %v", left, err)
	}
}
