package doctor

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestInterruptedRestoreIsNamed: no daemon starts after an interrupted restore,
// so doctor must say why.
func TestInterruptedRestoreIsNamed(t *testing.T) {
	p := &patient{db: filepath.Join(t.TempDir(), "ckpt.db")}
	if found := lookFiles(t.Context(), p); len(found) != 1 || found[0].Level == levelFail {
		t.Fatalf("nothing was interrupted: %+v", found)
	}
	if err := os.WriteFile(p.db+".restoring", []byte("{}"), 0o600); err != nil {
		t.Fatal(err)
	}
	found := lookFiles(t.Context(), p)
	if len(found) != 1 || found[0].Level != levelFail || !strings.Contains(found[0].Do, "restore-backup") {
		t.Errorf("%+v", found)
	}
}
