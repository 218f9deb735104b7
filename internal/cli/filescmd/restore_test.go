package filescmd

import (
	"io"
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

// TestManyTreesWithTheSameChanges: of the trees between, each changed path is kept once.
func TestManyTreesWithTheSameChanges(t *testing.T) {
	t.Parallel()
	changes := []ckpt.FileChange{{Path: "a", After: &ckpt.TreeEntry{}}, {Path: "b", After: &ckpt.TreeEntry{}}}
	var later [][]ckpt.FileChange
	for seen := map[string]bool{}; len(later) < 100; {
		later = withNewest(later, changes, seen)
	}
	kept := 0
	for _, list := range later {
		kept += len(list)
	}
	if last := later[99]; kept != 4 || len(last) != 2 || last[0].After == nil {
		t.Errorf("%d changes are kept, the last are %v", kept, last)
	}
}

// TestAnEditDuringARestoreIsAConflict: the exit code says so.
func TestAnEditDuringARestoreIsAConflict(t *testing.T) {
	t.Parallel()
	p := &place{root: t.TempDir(), folder: t.TempDir()}
	a := &cli.App{Stderr: io.Discard}
	err := p.failed(t.Context(), a, nil, &rewind.ChangedError{Items: []rewind.Item{{Path: "a", Refuse: "it has changed"}}})
	if ckpt.CodeOf(err) != ckpt.CodeConflict {
		t.Errorf("the error is %v", err)
	}
}
