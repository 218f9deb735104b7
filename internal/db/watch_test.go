//go:build unix

package db_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	ckpt "github.com/ckptsidecar/ckptsidecar"
	"github.com/ckptsidecar/ckptsidecar/internal/db"
)

// disturbance is something that happens to the files under a running store.
type disturbance struct {
	does   func(t *testing.T, path, older string)
	undo   func(t *testing.T, path string) // repairs what is possible; nil if nothing is
	reopen string                          // what the next Open says if nothing is repaired
}

// command runs cp, mv and so on in another process, because this process must
// not open the files itself.
func command(t testing.TB, name string, args ...string) {
	t.Helper()
	if out, err := tool(t, name, args...).CombinedOutput(); err != nil {
		t.Fatalf("%s %v: %v %s", name, args, err, out)
	}
}

var disturbances = map[string]disturbance{
	"rm database": {does: func(t *testing.T, path, _ string) { must(t, os.Remove(path)) }, reopen: "is gone, but its write-ahead log"},
	"rm all": {does: func(t *testing.T, path, _ string) {
		for _, suffix := range []string{"", "-wal", "-shm"} {
			must(t, os.Remove(path+suffix))
		}
	}, reopen: "restore a backup, or remove"},
	"mv database": {
		does: func(t *testing.T, path, _ string) { must(t, os.Rename(path, path+".away")) },
		undo: func(t *testing.T, path string) { must(t, os.Rename(path+".away", path)) },
	},
	"mv another over it": {does: func(t *testing.T, path, older string) { must(t, os.Rename(older, path)) }, reopen: "found damage"},
	"empty database":     {does: func(t *testing.T, path, _ string) { must(t, os.Truncate(path, 0)) }, reopen: "is empty, but its write-ahead log"},
	"cut database":       {does: func(t *testing.T, path, _ string) { must(t, os.Truncate(path, 2*4096)) }, reopen: "is damaged: nothing was changed"},
	"rm log":             {does: func(t *testing.T, path, _ string) { must(t, os.Remove(path+"-wal")) }},
	"mv log": {
		does: func(t *testing.T, path, _ string) { must(t, os.Rename(path+"-wal", path+".away")) },
		undo: func(t *testing.T, path string) { must(t, os.Rename(path+".away", path+"-wal")) },
	},
	"empty log":           {does: func(t *testing.T, path, _ string) { must(t, os.Truncate(path+"-wal", 0)) }},
	"cp an older copy":    {does: func(t *testing.T, path, older string) { command(t, "cp", older, path) }, reopen: "found damage"},
	"cp -p an older copy": {does: func(t *testing.T, path, older string) { command(t, "cp", "-p", older, path) }, reopen: "found damage"},
	"cp garbage": {does: func(t *testing.T, path, _ string) {
		command(t, "dd", "if=/dev/urandom", "of="+path, "bs=4096", "seek=3", "count=10", "conv=notrunc", "status=none")
	}, reopen: "damage"}, // the content of the schema decides whether the start or its check finds it
	"rm lock": {does: func(t *testing.T, path, _ string) { must(t, os.Remove(path+".lock")) }},
	"another lock": {does: func(t *testing.T, path, _ string) {
		must(t, os.Remove(path+".lock"))
		must(t, os.WriteFile(path+".lock", nil, 0o600))
	}},
	"ln": {
		does: func(t *testing.T, path, _ string) { must(t, os.Link(path, path+".2")) },
		undo: func(t *testing.T, path string) { must(t, os.Remove(path+".2")) },
	},
}

// disturbed is a store with a database of some pages, a log, and an older copy
// of the same size without some of the saves.
func disturbed(t *testing.T) (s *db.Store, path, older string, last *ckpt.Saved) {
	t.Helper()
	path = filepath.Join(t.TempDir(), "ckpt.db")
	older = path + ".older"
	s = openWith(t, options(path, newClock()))
	for i := range 10 {
		save(t, s, ann, "a", ckpt.KindRoutine, fmt.Sprintf(`{"i":%d,"t":"%s"}`, i, strings.Repeat("x", 3000)))
		save(t, s, ann, fmt.Sprintf("b%d", i), ckpt.KindRoutine, fmt.Sprintf(`"%s"`, strings.Repeat("y", 3000)))
	}
	must(t, s.EmptyWAL())
	command(t, "cp", path, older)
	for i := range 3 { // into pages that the last save does not write
		save(t, s, ann, fmt.Sprintf("b%d", i), ckpt.KindRoutine, fmt.Sprint(i))
	}
	must(t, s.EmptyWAL())
	return s, path, older, save(t, s, ann, "a", ckpt.KindRoutine, `"last"`)
}

// stopsAcknowledging fails the test unless the store has stopped for good and
// left its marker.
func stopsAcknowledging(t *testing.T, s *db.Store, path string) {
	t.Helper()
	select {
	case <-s.Failed():
	default:
		t.Fatal("the store has not stopped")
	}
	_, err := s.Save(t.Context(), ann, request("a", ckpt.KindRoutine, `"after"`))
	wantCode(t, err, ckpt.CodeBusy)
	if err := s.Ready(t.Context()); err == nil {
		t.Error("the store says that it is ready")
	}
	if _, err := os.Lstat(path + ".failed"); err != nil {
		t.Error(err)
	}
}

// TestDisturbedFilesAtTheNextSave: after each disturbance of the files, neither
// the next save nor any later one is acknowledged. The next Open checks the
// database. If the files are put back, every acknowledged save is there.
func TestDisturbedFilesAtTheNextSave(t *testing.T) {
	t.Parallel()
	for name, d := range disturbances {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s, path, older, last := disturbed(t)
			d.does(t, path, older)
			_, err := s.Save(t.Context(), ann, request("a", ckpt.KindRoutine, `"never"`))
			if err == nil {
				t.Fatal("a save was acknowledged")
			}
			if e := ckpt.AsError(err); e.OutcomeOrDefault() != ckpt.OutcomeNotSaved || !e.Retryable() {
				t.Errorf("the answer: %+v", e)
			}
			stopsAcknowledging(t, s, path)
			_ = s.Close()
			reopened(t, d, path, last)
		})
	}
}

func reopened(t *testing.T, d disturbance, path string, last *ckpt.Saved) {
	t.Helper()
	if d.undo != nil {
		d.undo(t, path)
	}
	s, err := db.Open(t.Context(), options(path, newClock()))
	if err == nil {
		defer s.Close()
		err = s.Ready(t.Context())
	}
	if d.reopen != "" {
		if err == nil || !strings.Contains(err.Error(), d.reopen) {
			t.Errorf("the next start says %v, not %q", err, d.reopen)
		}
		return
	}
	must(t, err)
	if _, err := os.Lstat(path + ".failed"); err == nil {
		t.Error("the marker is still there after the check")
	}
	if d.undo != nil {
		if c, err := s.Checkpoint(t.Context(), ann, last.ID, true); err != nil || string(c.State) != `"last"` {
			t.Errorf("the last acknowledged save: %v", err)
		}
		must(t, s.Close())
		sound(t, path)
	}
}

// TestDisturbedFilesWithoutASave: maintenance notices the disturbance without a
// save.
func TestDisturbedFilesWithoutASave(t *testing.T) {
	t.Parallel()
	type victim struct {
		name, path string
		store      *db.Store
		ended      chan error
	}
	var victims []victim
	for name, d := range disturbances { // all at once, so that the test waits for only one round of maintenance
		s, path, older, _ := disturbed(t)
		v := victim{name, path, s, make(chan error, 1)}
		go func() { v.ended <- s.Maintain(t.Context()) }()
		d.does(t, path, older)
		victims = append(victims, v)
	}
	for _, v := range victims {
		select {
		case <-v.store.Failed():
		case <-time.After(5 * time.Minute):
			t.Errorf("%s: not noticed", v.name)
			continue
		}
		if _, err := os.Lstat(v.path + ".failed"); err != nil {
			t.Error(err)
		}
		if err := <-v.ended; err == nil {
			t.Errorf("%s: maintenance ended without an error", v.name)
		}
		stopsAcknowledging(t, v.store, v.path)
	}
}

// TestOthersMayCopyTheLog: the store examines what the sqlite3 command does to
// a database in use, and finds it harmless.
func TestOthersMayCopyTheLog(t *testing.T) {
	t.Parallel()
	s, path, _, last := disturbed(t)
	for i := range 3 {
		sqlite3(t, path, "PRAGMA wal_checkpoint(PASSIVE); SELECT count(*) FROM audit_log")
		command(t, "touch", path)
		save(t, s, ann, "a", ckpt.KindRecovery, fmt.Sprint(i))
	}
	if c, err := s.Checkpoint(t.Context(), ann, last.ID, true); err != nil || string(c.State) != `"last"` {
		t.Error(err)
	}
	must(t, s.Close())
	sound(t, path)
}

// TestCopiesAreNotTakenForDisturbance checks the files all the time while the
// store itself empties the log, shrinks the file and grows it again.
func TestCopiesAreNotTakenForDisturbance(t *testing.T) {
	t.Parallel()
	s, _ := open(t)
	stop, ended := make(chan bool), make(chan bool)
	go func() {
		defer close(ended)
		for {
			select {
			case <-stop:
				return
			default:
				if err := s.CheckFiles(); err != nil {
					t.Error(err)
					return
				}
			}
		}
	}()
	for i := range 8 {
		for range 6 {
			save(t, s, ann, "a", ckpt.KindRecovery, `"`+strings.Repeat(fmt.Sprint(i), 3500)+`"`)
		}
		s.CopyWAL()
		if _, err := s.Erase(t.Context(), ann, "a"); err != nil {
			t.Fatal(err)
		}
	}
	close(stop)
	<-ended
}
