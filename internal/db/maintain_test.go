package db_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	ckpt "github.com/ckptsidecar/ckptsidecar"
	"github.com/ckptsidecar/ckptsidecar/internal/db"
)

func sizeOf(t testing.TB, path string) int64 {
	t.Helper()
	info, err := os.Stat(path)
	must(t, err)
	return info.Size()
}

// TestLogWraps writes many times what the log may hold, while it is copied: it
// is overwritten in place, and its size stays bounded.
func TestLogWraps(t *testing.T) {
	path := filepath.Join(t.TempDir(), "ckpt.db")
	s := openWith(t, options(path, newClock()))
	const target, size, saves = 1 << 20, 100_000, 100
	s.SetWALTarget(target)
	var wg sync.WaitGroup
	var left atomic.Int64
	for w := range 3 {
		left.Add(1)
		wg.Go(func() {
			defer left.Add(-1)
			for i := range saves {
				if _, err := s.Save(t.Context(), ann, binary(fmt.Sprint("a", w), ckpt.KindRoutine, noise(uint64(i), size))); err != nil {
					t.Error(err)
				}
			}
		})
	}
	for left.Load() > 0 {
		s.Tick(time.Now())
		time.Sleep(time.Millisecond)
	}
	wg.Wait()
	if got := sizeOf(t, path+"-wal"); got > 10*target {
		t.Errorf("after %d bytes the log has %d", 3*saves*size, got)
	}
	st, err := s.Status(t.Context(), ann)
	must(t, err)
	if st.Database.LastWALCheckpoint.IsZero() || st.Database.WALFailures != 0 || st.State != "ready" {
		t.Errorf("%+v", st.Database)
	}
	must(t, s.Close())
	sound(t, path)
}

// TestIdleLogIsCopied copies also a little, once nobody has written for a while.
func TestIdleLogIsCopied(t *testing.T) {
	s, _ := open(t)
	save(t, s, ann, "a", ckpt.KindRoutine, `1`)
	if s.PendingWAL() == 0 {
		t.Fatal("nothing waits in the log after a save")
	}
	tick := s.Ticker()
	now := time.Now()
	tick(now)
	tick(now.Add(10 * time.Second))
	if n := s.PendingWAL(); n != 0 {
		t.Errorf("%d bytes wait after ten idle seconds", n)
	}
}

// TestLongReaderShows: a reader that holds its snapshot keeps the log from
// beginning anew; saves go on, and the log is copied once it has gone.
func TestLongReaderShows(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "ckpt.db")
	s := openWith(t, options(path, newClock()))
	s.SetWALTarget(256 << 10)
	save(t, s, ann, "a", ckpt.KindRoutine, `1`)
	sh := sqlite3Shell(t, path, "BEGIN; SELECT count(*) FROM checkpoints;", "-readonly")
	fill := func() {
		for i := range 10 {
			_, err := s.Save(t.Context(), ann, binary("a", ckpt.KindRoutine, noise(uint64(i), 100_000)))
			must(t, err)
			s.Tick(time.Now())
		}
	}
	fill()
	if s.PendingWAL() == 0 {
		t.Error("the log was copied past a reader")
	}
	sh.close()
	fill()
	size := sizeOf(t, path+"-wal")
	fill()
	if grown := sizeOf(t, path+"-wal"); grown > size {
		t.Errorf("the log grows from %d to %d after the reader has gone", size, grown)
	}
}

// TestVacuumShrinksTheFile gives free pages back after many deletes, a few at a
// time, and leaves some for the next saves.
func TestVacuumShrinksTheFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "ckpt.db")
	s := openWith(t, options(path, newClock()))
	var ids []string
	for i := range 60 {
		c, err := s.Save(t.Context(), ann, binary("a", ckpt.KindRecovery, noise(uint64(i), 200_000)))
		must(t, err)
		ids = append(ids, c.ID)
	}
	s.CopyWAL()
	before := sizeOf(t, path)
	for _, id := range ids {
		_, err := s.Delete(t.Context(), ann, id)
		must(t, err)
	}
	tick := s.Ticker()
	for i := range 12 {
		tick(time.Now().Add(time.Duration(i) * 6 * time.Second))
	}
	if after := sizeOf(t, path); after > before/2 || after < 512*8192 {
		t.Errorf("the file had %d bytes, and has %d", before, after)
	}
	must(t, s.CheckFiles())
	save(t, s, ann, "a", ckpt.KindRoutine, `1`)
	must(t, s.Close())
	sound(t, path)
}

// TestMaintainStopsPromptly ends with its context, without an error.
func TestMaintainStopsPromptly(t *testing.T) {
	s, _ := open(t)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error)
	go func() { ended <- s.Maintain(ctx) }()
	save(t, s, ann, "a", ckpt.KindRoutine, `1`)
	cancel()
	select {
	case err := <-ended:
		must(t, err)
	case <-time.After(time.Second):
		t.Error("it does not stop")
	}
}

// TestStatus tells what a person asks of a store.
func TestStatus(t *testing.T) {
	path := filepath.Join(t.TempDir(), "ckpt.db")
	o := options(path, newClock())
	o.MaxBytes = 100 << 20
	s := openWith(t, o)
	for i := range 5 {
		save(t, s, ann, fmt.Sprintf("a%d", i%2), ckpt.Kinds[i%3], `{"x":1}`)
	}
	st, err := s.Status(t.Context(), ann)
	must(t, err)
	if st.State != "ready" || len(st.Problems) != 0 || st.Agents != 2 || st.Runs != 2 || st.Stored != 5*7 || st.Version != "test" {
		t.Errorf("%+v", st)
	}
	if st.Counts[ckpt.KindRoutine] != 2 || st.Counts[ckpt.KindPreOperation] != 2 || st.Counts[ckpt.KindRecovery] != 1 {
		t.Errorf("%+v", st.Counts)
	}
	all, err := s.Status(t.Context(), root)
	must(t, err)
	d := all.Database
	if d.Path != path || d.ID == "" || d.SchemaVersion != ckpt.SchemaVersion || d.MaxBytes != o.MaxBytes || d.Bytes == 0 || d.WALBytes == 0 || d.AuditRows != 6 || len(d.AuditHead) != 64 {
		t.Errorf("%+v", d)
	}
	if w := all.Writer; w.Commits != 6 || w.Operations != 6 || w.CommitP50 <= 0 || w.CommitP99 < w.CommitP50 || w.Waiting != 0 {
		t.Errorf("%+v", w)
	}
}

// TestReadsOnly serves reads, and says why, where the check after a fault finds damage.
func TestReadsOnly(t *testing.T) {
	path := filepath.Join(t.TempDir(), "ckpt.db")
	s := openWith(t, options(path, newClock()))
	c := save(t, s, ann, "a", ckpt.KindRoutine, `1`)
	must(t, s.EmptyWAL())
	must(t, s.Close())
	sql(t, path, "PRAGMA writable_schema = 1; UPDATE sqlite_schema SET sql = replace(sql, 'run_id, kind, seq', 'run_id, kind, n') WHERE name = 'checkpoints_of_run'")
	must(t, db.MarkFailed(path))
	for range 2 { // the marker stays until the check succeeds
		s = openWith(t, options(path, newClock()))
		_, err := s.Save(t.Context(), ann, request("a", ckpt.KindRoutine, `2`))
		wantCode(t, err, ckpt.CodeCorrupt)
		if ckpt.CodeOf(s.Ready(t.Context())) != ckpt.CodeCorrupt {
			t.Error("it says that it is ready")
		}
		if got, err := s.Checkpoint(t.Context(), ann, c.ID, true); err != nil || string(got.State) != `1` {
			t.Errorf("a read: %v", err)
		}
		st, err := s.Status(t.Context(), ann)
		must(t, err)
		if st.State != "read_only" || len(st.Problems) != 1 {
			t.Errorf("%s %v", st.State, st.Problems)
		}
		s.Tick(time.Now())
		must(t, s.Close())
	}
}
