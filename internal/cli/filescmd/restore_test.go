package filescmd

import (
	"os"
	"testing"
	"time"

	ckpt "github.com/ckptsidecar/ckptsidecar"
	"github.com/ckptsidecar/ckptsidecar/internal/cli"
	"github.com/ckptsidecar/ckptsidecar/internal/files"
	"github.com/ckptsidecar/ckptsidecar/internal/files/rewind"
)

// TestARestoreThatIsInterruptedMeanwhile: an undo waits for a restore, and that one is killed. The undo must not
// replace its journal.
func TestARestoreThatIsInterruptedMeanwhile(t *testing.T) {
	t.Parallel()
	p := &place{root: t.TempDir(), folder: t.TempDir()}
	unlock, err := files.Lock(files.IndexPath(p.folder, p.root), 0)
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan error)
	go func() { ended <- p.undo(t.Context(), &cli.App{}, allowed{}, false) }()
	time.Sleep(50 * time.Millisecond) // the undo should wait by now; if it does not yet, the test shows less
	if err := os.WriteFile(rewind.JournalPath(p.folder, p.root), []byte("{}"), 0o600); err != nil {
		t.Fatal(err)
	}
	unlock()
	if err := <-ended; ckpt.CodeOf(err) != ckpt.CodeConflict {
		t.Errorf("the error is %v", err)
	}
}
