package db_test

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"io"
	"os"
	"path/filepath"
	"testing"
	"time"

	ckpt "github.com/ckptsidecar/ckptsidecar"
	"github.com/ckptsidecar/ckptsidecar/internal/db"
	"github.com/ckptsidecar/ckptsidecar/internal/db/blob"
	"github.com/ckptsidecar/ckptsidecar/internal/expect"
)

// TestForceKeepsWhatIsPinned: not even an administrator's force deletes a run with a pinned checkpoint.
func TestForceKeepsWhatIsPinned(t *testing.T) {
	t.Parallel()
	s, _, _ := openRuns(t)
	start(t, s, 7)
	id := save(t, s, as(7), "a", ckpt.KindRoutine, `1`).ID
	_, err := s.Patch(t.Context(), ann, id, pin(t, true))
	must(t, err)
	admin := ckpt.Scope{Caller: root.Caller, Target: ann.Owner}
	_, err = s.DeleteRun(t.Context(), admin, mainRun, true)
	wantCode(t, err, ckpt.CodeConflict)
	if c, err := s.Checkpoint(t.Context(), ann, id, true); err != nil || string(c.State) != `1` {
		t.Errorf("the pinned checkpoint: %v", err)
	}
	_, err = s.Patch(t.Context(), ann, id, pin(t, false))
	must(t, err)
	_, err = s.DeleteRun(t.Context(), admin, mainRun, true) // though its owner is alive
	must(t, err)
}

// TestChownForgetsAndTells: after an agent was given away, nothing of it is in memory under its old owner, and everybody who waits for a
// change of its prompts or events is told to look again.
func TestChownForgetsAndTells(t *testing.T) {
	t.Parallel()
	s, _, _ := openRuns(t)
	start(t, s, 7)
	_, err := s.Save(t.Context(), as(7), binary("a", ckpt.KindRoutine, noise(1, 100_000)))
	must(t, err)
	key := blob.RunKey{Owner: ann.Owner, Agent: "a", Run: "main"}
	held := func() bool {
		state := s.States.Get(key)
		if state != nil {
			s.States.Release(state)
		}
		return state != nil
	}
	if !held() {
		t.Fatal("the newest state is not in memory")
	}
	prompts, events := s.PromptsChanged(), s.Changed()
	r := toBob("a")
	r.Force = true
	chown(t, s, r)
	if held() {
		t.Error("the old owner's states are still in memory")
	}
	for what, told := range map[string]<-chan struct{}{"prompts": prompts, "events": events} {
		select {
		case <-told:
		default:
			t.Errorf("those who wait for %s were not told", what)
		}
	}
}

// TestAContentWhoseBaseGoesMeanwhile: a content is prepared as a change to another one, which is removed before the content is stored. The content
// is then stored whole.
func TestAContentWhoseBaseGoesMeanwhile(t *testing.T) {
	t.Parallel()
	s, c := open(t)
	old := string(noise(1, 60_000))
	fresh := old[:30_000] + "changed" + old[30_000:]
	putContents(t, s, ann, "coder", nil, old)
	save(t, s, ann, "coder", ckpt.KindRoutine, `1`)
	hash := func(text string) string {
		sum := sha256.Sum256([]byte(text))
		return hex.EncodeToString(sum[:])
	}
	given := false
	_, err := s.PutContents(t.Context(), ann, "coder", func() (*ckpt.FileContent, error) {
		if given { // the content before is prepared, and not stored yet
			c.add(2 * time.Hour)
			sweep(t, s)
			return nil, io.EOF
		}
		given = true
		return &ckpt.FileContent{SHA256: hash(fresh), Was: hash(old), Data: []byte(fresh)}, nil
	})
	must(t, err)
	if got := sqlite3(t, "-readonly", pathOf(s), `SELECT count(*), count(pieces) FROM contents`); got != "1|0" {
		t.Errorf("contents, and those that are a change: %s", got)
	}
	if b, err := s.Content(t.Context(), ann, "coder", hash(fresh)); err != nil || string(b) != fresh {
		t.Errorf("the content does not read back: %v", err)
	}
	sound(t, pathOf(s))
}

// TestLeasesAreExtended: a content that is asked for, or put, again stays for another hour from then on.
func TestLeasesAreExtended(t *testing.T) {
	t.Parallel()
	for name, again := range map[string]func(t *testing.T, s *db.Store, sum string){
		"asked for": func(t *testing.T, s *db.Store, sum string) {
			missing, err := s.MissingContents(t.Context(), ann, "coder", []string{sum})
			must(t, err)
			if len(missing.Missing) > 0 {
				t.Errorf("missing: %v", missing.Missing)
			}
		},
		"put": func(t *testing.T, s *db.Store, sum string) {
			putContents(t, s, ann, "coder", nil, "the text")
		},
	} {
		s, c := open(t)
		save(t, s, ann, "coder", ckpt.KindRoutine, `1`)
		putContents(t, s, ann, "coder", nil, "the text")
		sum := sha256.Sum256([]byte("the text"))
		c.add(50 * time.Minute)
		again(t, s, hex.EncodeToString(sum[:]))
		for range 2 {
			c.add(25 * time.Minute)
			sweep(t, s)
			if n := scan(t, pathOf(s), `SELECT count(*) FROM contents`); n != "1" {
				t.Errorf("%s: after %s, %s contents are there", name, "75 minutes", n)
			}
		}
		c.add(2 * time.Hour)
		sweep(t, s)
		if n := scan(t, pathOf(s), `SELECT count(*) FROM contents`); n != "0" {
			t.Errorf("%s: %s contents are there for ever", name, n)
		}
	}
}

// TestNumbersOfTheLogAreNotUsedAgain: after the newest rows of the audit log were removed, its head with them, the log goes on
// after every number that something in the database still names, so the gap stays.
func TestNumbersOfTheLogAreNotUsedAgain(t *testing.T) {
	t.Parallel()
	for name, keep := range map[string]string{"checkpoints": `act_texts`, "texts": `checkpoints`, "the head": ``} {
		path := filepath.Join(t.TempDir(), "ckpt.db")
		s := openWith(t, options(path, newClock()))
		var last string
		for range 5 {
			said := ann
			said.Reason = "why"
			c, err := s.Save(t.Context(), said, request("a", ckpt.KindRecovery, `1`))
			must(t, err)
			_, err = s.Patch(t.Context(), said, c.ID, pin(t, true))
			must(t, err)
		}
		must(t, s.Close())
		statements := `DELETE FROM acts WHERE n > 5;`
		switch name {
		case "checkpoints":
			last = sqlite3(t, path, `SELECT max(n) FROM checkpoints`)
		case "texts":
			last = sqlite3(t, path, `SELECT max(n) FROM act_texts`)
		case "the head":
			last = sqlite3(t, path, `SELECT n FROM audit_head`)
		}
		if keep != "" {
			statements += `DELETE FROM ` + keep + ` WHERE n > 5;`
		}
		forge(t, path, statements)
		must(t, os.Remove(path+".head"))
		s = openWith(t, options(path, newClock()))
		must(t, s.Close())
		if got := sqlite3(t, path, `SELECT min(n) > `+last+` FROM acts WHERE n > 5`); got != "1" {
			t.Errorf("%s name row %s, and the log goes on with row %s", name, last, sqlite3(t, path, `SELECT min(n) FROM acts WHERE n > 5`))
		}
	}
}

// TestForkFromIsOfTheRequest: the same id with another checkpoint to fork from, or without one, is another request.
func TestForkFromIsOfTheRequest(t *testing.T) {
	t.Parallel()
	s, _ := open(t)
	one, two := save(t, s, ann, "a", ckpt.KindRecovery, `1`), save(t, s, ann, "a", ckpt.KindRecovery, `2`)
	r := request("a", ckpt.KindRecovery, `3`)
	r.Run, r.ID, r.ForkFrom = "fork", newID(t), ckpt.Ref(one.ID)
	first, err := s.Save(t.Context(), ann, r)
	must(t, err)
	again, err := s.Save(t.Context(), ann, r)
	must(t, err)
	expect.Equal(t, "the repeated fork", again.Replayed && again.ID == first.ID, true)
	for _, from := range []ckpt.Ref{ckpt.Ref(two.ID), ""} {
		other := *r
		other.ForkFrom = from
		_, err = s.Save(t.Context(), ann, &other)
		wantCode(t, err, ckpt.CodeIdempotencyMismatch)
	}
}

// TestImportTakesNobodysProcess: an export names a process that is alive here and belongs to another user. Its run does not get the process, so
// it neither looks alive for ever nor tells when the process ends. The caller's own process it gets.
func TestImportTakesNobodysProcess(t *testing.T) {
	t.Parallel()
	source, _, _ := openRuns(t)
	start(t, source, 7)
	save(t, source, as(7), "a", ckpt.KindRoutine, `1`)
	var text bytes.Buffer
	must(t, source.Export(t.Context(), ann, "a", &text))
	for owner, want := range map[string]string{ann.Owner: "", bob.Owner: "7"} {
		s, _, p := openRuns(t)
		p.owners = map[int]string{7: owner}
		_, err := s.Import(t.Context(), bob, ckpt.ImportRequest{}, bytes.NewReader(text.Bytes()))
		must(t, err)
		if got := sqlite3(t, "-readonly", pathOf(s), `SELECT pid FROM runs`); got != want {
			t.Errorf("process 7 belongs to %s, and the run that %s imported has process %q", owner, bob.Owner, got)
		}
	}
}
