package db_test

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	ckpt "github.com/ckptsidecar/ckptsidecar"
	"github.com/ckptsidecar/ckptsidecar/internal/db"
)

// conversation is a state of an agent after so many turns, large enough to be
// stored as pieces.
func conversation(turns int) string {
	var b strings.Builder
	b.WriteString(`{"turns":[`)
	for i := range turns {
		if i > 0 {
			b.WriteByte(',')
		}
		fmt.Fprintf(&b, `"turn %d: %s"`, i, hashOf(fmt.Sprint(i)))
	}
	b.WriteString(`]}`)
	return b.String()
}

// readsBack says whether a checkpoint's state is what was saved.
func readsBack(t testing.TB, s *db.Store, c *ckpt.Saved, state string) bool {
	t.Helper()
	got, err := s.Checkpoint(t.Context(), ann, c.ID, true)
	if ckpt.CodeOf(err) == ckpt.CodeCorrupt {
		return false
	}
	must(t, err)
	return string(got.State) == state
}

// breakSegments changes one byte of every stored piece of a run, as a person
// with the sqlite3 command does while the daemon runs.
const breakSegments = `UPDATE segments SET data = CAST(substr(data, 1, 40) || x'ffff' || substr(data, 43) AS BLOB)`

// TestSavesAfterDamageStandAlone changes the pieces of a run's newest state
// under a running daemon. What is saved afterwards must not stand on them.
func TestSavesAfterDamageStandAlone(t *testing.T) {
	path := filepath.Join(t.TempDir(), "ckpt.db")
	s := openWith(t, options(path, newClock()))
	for turns := 100; turns < 103; turns++ {
		save(t, s, ann, "a", ckpt.KindRoutine, conversation(turns))
	}
	sqlite3(t, path, breakSegments)
	for turns := 103; turns < 111; turns++ {
		state := conversation(turns)
		if c := save(t, s, ann, "a", ckpt.KindRoutine, state); !readsBack(t, s, c, state) {
			t.Errorf("save number %d was acknowledged and does not read back", c.Seq)
		}
	}
	sound(t, path)
}

// TestOurOwnWorkCastsNoDoubt: copies and cuts of the log, backups and auditors
// do not make the next save read its run's newest state again.
func TestOurOwnWorkCastsNoDoubt(t *testing.T) {
	path := filepath.Join(t.TempDir(), "ckpt.db")
	s := openWith(t, options(path, newClock()))
	s.SetWALTarget(64 << 10)
	for i, between := range []func(){
		func() {},
		s.CopyWAL,
		func() { must(t, s.EmptyWAL()) },
		func() { must(t, s.Upkeep(t.Context())) },
		func() { sqlite3(t, "-readonly", path, `SELECT count(*) FROM audit_checkpoints`) },
		func() { sqlite3(t, path, `SELECT count(*) FROM audit_checkpoints`) },
		func() { must(t, db.Backup(t.Context(), path, path+".backup", nil)) },
		func() { sound(t, path) },
	} {
		for turns := range 4 {
			save(t, s, ann, "a", ckpt.KindRoutine, conversation(100+10*i+turns))
		}
		between()
		save(t, s, ann, "b", ckpt.KindRoutine, conversation(100+10*i))
		if s.Doubts() != 0 {
			t.Fatalf("after step %d the pieces in memory are in doubt", i)
		}
	}
	sqlite3(t, path, `UPDATE runs SET goal = 'ours'`)
	save(t, s, ann, "a", ckpt.KindRoutine, conversation(300))
	if s.Doubts() != 1 {
		t.Errorf("%d doubts after another program has written", s.Doubts())
	}
}
