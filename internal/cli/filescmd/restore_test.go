package filescmd

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	ckpt "github.com/ckptsidecar/ckptsidecar"
	"github.com/ckptsidecar/ckptsidecar/internal/cli"
	"github.com/ckptsidecar/ckptsidecar/internal/cli/term"
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

// TestWhatToDoAboutFilesThatChanged: the message of an interrupted restore names a command that helps.
func TestWhatToDoAboutFilesThatChanged(t *testing.T) {
	t.Parallel()
	for phase, want := range map[rewind.Phase]string{rewind.Staging: "begin the restore again", rewind.Moving: "files restore --back --root "} {
		root, err := filepath.EvalSymlinks(t.TempDir())
		if err != nil {
			t.Fatal(err)
		}
		p := &place{root: root, folder: t.TempDir()}
		if err := os.WriteFile(filepath.Join(p.root, "a"), []byte("changed"), 0o600); err != nil {
			t.Fatal(err)
		}
		path := rewind.JournalPath(p.folder, p.root)
		text, err := json.Marshal(rewind.Journal{Phase: phase, Items: []rewind.Item{{Path: "a", Do: rewind.Remove, Before: &ckpt.TreeEntry{Path: "a", Mode: "0600"}}}})
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, text, 0o600); err != nil {
			t.Fatal(err)
		}
		env := map[string]string{"CKPTSIDECAR_FILES": p.folder}
		a := &cli.App{Flags: &cli.Flags{}, Stderr: io.Discard, Env: func(name string) string { return env[name] }}
		err = (&restoreCmd{Continue: true, Root: p.root}).afterCrash(t.Context(), a)
		if ckpt.CodeOf(err) != ckpt.CodeConflict || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: the error is %v", phase, err)
		}
	}
	refused := []rewind.Item{{Path: "a", Refuse: "it has changed since the restore"}}
	for may, want := range map[allowed]string{{}: "files restore --back --root ", {Aside: true}: "move", {Overwrite: true}: "move"} {
		err := (&place{root: t.TempDir()}).cannotGoBack(&cli.App{Stderr: io.Discard}, refused, may)
		if ckpt.CodeOf(err) != ckpt.CodeConflict || !strings.Contains(err.Error(), want) {
			t.Errorf("with %v, the error is %v", may, err)
		}
	}
}

// TestLaterCheckpointsAfterTheClockWasSetBack: the numbers of a run say which of its checkpoints is newer.
func TestLaterCheckpointsAfterTheClockWasSetBack(t *testing.T) {
	t.Parallel()
	noon := time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)
	at := func(run string, seq int64, after time.Duration) ckpt.Checkpoint {
		return ckpt.Checkpoint{ID: fmt.Sprint(run, seq), Run: run, Seq: seq, CreatedAt: ckpt.At(noon.Add(after))}
	}
	target := at("r", 2, 0)
	for _, c := range []struct {
		of   ckpt.Checkpoint
		want bool
	}{
		{at("r", 1, -time.Minute), false},
		{at("r", 1, time.Hour), false},
		{at("r", 2, 0), false},
		{at("r", 3, time.Minute), true},
		{at("r", 3, -time.Hour), true},
		{at("restore-1", 1, -time.Minute), false},
		{at("restore-1", 1, time.Minute), true},
	} {
		if got := isLater(&c.of, &target); got != c.want {
			t.Errorf("%s at %s is newer: %v", c.of.ID, c.of.CreatedAt, got)
		}
	}
	own := []ckpt.Checkpoint{at("r", 4, -time.Hour), at("r", 3, time.Minute)}
	for want, others := range map[string][]ckpt.Checkpoint{"r4 r3": nil, "restore-11 r3 r4": {at("restore-1", 1, time.Hour)}} {
		var ids []string
		for _, c := range newestFirst(own, others) {
			ids = append(ids, c.ID)
		}
		if got := strings.Join(ids, " "); got != want {
			t.Errorf("the order is %s, not %s", got, want)
		}
	}
}

// TestPromptsAfterTheClockWasSetBack: a checkpoint of a later prompt is not one of an earlier prompt, although its time
// is before that.
func TestPromptsAfterTheClockWasSetBack(t *testing.T) {
	t.Parallel()
	noon := time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)
	prompt := func(seq int64, after time.Duration) ckpt.Event {
		return ckpt.Event{Seq: seq, At: ckpt.At(noon.Add(after)), Payload: ckpt.JSON(`{"prompt":"p"}`)}
	}
	made := func(id, by string, after time.Duration) ckpt.Checkpoint {
		return ckpt.Checkpoint{ID: id, CreatedAt: ckpt.At(noon.Add(after)), Labels: ckpt.Labels{"prompt": by}}
	}
	prompts := []ckpt.Event{prompt(1, -time.Minute), prompt(2, 0), prompt(3, -55*time.Minute)}
	list := promptsWith(prompts, []ckpt.Checkpoint{made("first", "1", -time.Minute), made("third", "3", -55*time.Minute)})
	var got []string
	for _, p := range list {
		got = append(got, p.Checkpoint)
	}
	if want := "third first first"; strings.Join(got, " ") != want {
		t.Errorf("the prompts have %q, not %s", got, want)
	}
}

// TestFilesThatWereTakenLate: the files of a prompt count as late if a call of a tool began between the prompt and the scan of the folder.
// The list then says how late they were taken.
func TestFilesThatWereTakenLate(t *testing.T) {
	prompt := time.Date(2026, 11, 1, 12, 0, 0, 0, time.UTC)
	after := func(d time.Duration) ckpt.Time { return ckpt.At(prompt.Add(d)) }
	for _, c := range []struct {
		name  string
		begun []ckpt.Time
		late  bool
	}{
		{"no call", nil, false},
		{"a call before the prompt", []ckpt.Time{after(-time.Second)}, false},
		{"a call after the scan", []ckpt.Time{after(time.Second)}, false},
		{"a call before the scan", []ckpt.Time{after(time.Second), after(100 * time.Millisecond)}, true},
	} {
		ms := takenAfter(after(0), after(300*time.Millisecond), c.begun)
		if (ms != nil) != c.late || c.late && *ms != 300 {
			t.Errorf("%s: late is %v", c.name, ms)
		}
	}
	var out bytes.Buffer
	late := int64(300)
	s := session{Agent: "a", Run: "main", Prompts: []Prompted{{Number: 1, At: after(0), Prompt: "go", Checkpoint: "c", TakenAfterMS: &late}}}
	s.text(&cli.App{Flags: &cli.Flags{}, Stdout: &out, Stderr: io.Discard, Out: &term.Style{}})
	if !strings.Contains(out.String(), "taken 0.3 s after the prompt") {
		t.Error(out.String())
	}
}
