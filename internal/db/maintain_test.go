package db_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	ckpt "github.com/ckptsidecar/ckptsidecar"
	"github.com/ckptsidecar/ckptsidecar/internal/db"
	"github.com/ckptsidecar/ckptsidecar/internal/expect"
)

func sizeOf(t testing.TB, path string) int64 {
	t.Helper()
	info, err := os.Stat(path)
	must(t, err)
	return info.Size()
}

// TestLogWraps writes many times the target size of the log while it is copied.
// The log is overwritten in place, and its size stays bounded.
func TestLogWraps(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "ckpt.db")
	s := openWith(t, options(path, newClock()))
	const target, size, saves = 1 << 20, 100_000, 100
	s.SetWALTarget(target)
	var wg sync.WaitGroup
	var turn sync.Mutex
	for w := range 3 {
		wg.Go(func() {
			for i := range saves {
				if _, err := s.Save(t.Context(), ann, binary(fmt.Sprint("a", w), ckpt.KindRoutine, noise(uint64(i), size))); err != nil {
					t.Error(err)
				}
				if i%4 == 3 { // so that maintenance runs even on a busy machine
					turn.Lock()
					s.Tick(time.Now())
					s.Tick(time.Now())
					turn.Unlock()
				}
			}
		})
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

// TestIdleLogIsCopied: even a short log is copied after a while without writes.
func TestIdleLogIsCopied(t *testing.T) {
	t.Parallel()
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

// TestLongReaderShows: a reader with an open snapshot prevents the log from
// starting over. Saves continue, and the log is copied after the reader has
// gone.
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
	if grown := sizeOf(t, path+"-wal"); grown > size+100_000 { // there may be one more save before it is copied
		t.Errorf("the log grows from %d to %d after the reader has gone", size, grown)
	}
	if size > 1200<<10 { // four times the target, and one save
		t.Errorf("the log keeps %d bytes after the reader has gone", size)
	}
	must(t, s.Close())
	sound(t, path)
}

// TestVacuumShrinksTheFile: after many deletes, free pages are returned a few
// at a time, and some stay for the next saves.
func TestVacuumShrinksTheFile(t *testing.T) {
	t.Parallel()
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
	if after := sizeOf(t, path); after > before/4 || after < 32*4096 {
		t.Errorf("the file had %d bytes, and has %d", before, after)
	}
	must(t, s.CheckFiles())
	save(t, s, ann, "a", ckpt.KindRoutine, `1`)
	must(t, s.Close())
	sound(t, path)
}

// TestFileIsNearAFreshCopy removes checkpoints in every way, at random, and
// compares the size of the file with that of a freshly written copy.
func TestFileIsNearAFreshCopy(t *testing.T) {
	t.Parallel()
	expect.OneThread(t)
	path := filepath.Join(t.TempDir(), "ckpt.db")
	s := openWith(t, options(path, newClock()))
	r := rand.New(rand.NewPCG(1, 2))
	p := ckpt.DefaultPolicy()
	p.RoutineKeep = 0
	left := map[string][]byte{}
	for a := range 8 {
		agent := fmt.Sprint("a", a)
		_, err := s.SetPolicy(t.Context(), ann, agent, p)
		must(t, err)
		state := noise(uint64(a), 100_000)
		for i := range 30 {
			state = slices.Concat(state, noise(uint64(a*100+i), 3000+r.IntN(60_000)))
			if i%5 == 0 {
				state = noise(uint64(a*1000+i), 1+r.IntN(100_000))
			}
			c, err := s.Save(t.Context(), ann, binary(agent, ckpt.KindRoutine, state))
			must(t, err)
			left[c.ID] = state
		}
	}
	for id := range left {
		if r.IntN(2) == 0 {
			_, err := s.Delete(t.Context(), ann, id)
			must(t, err)
			delete(left, id)
		}
	}
	_, err := s.Erase(t.Context(), ann, "a0")
	must(t, err)
	p.RoutineKeep = 3
	_, err = s.SetPolicy(t.Context(), ann, "a1", p)
	must(t, err)
	tick := s.Ticker()
	for i := range 30 {
		tick(time.Now().Add(time.Duration(i) * 6 * time.Second))
	}
	there := 0
	for id, state := range left {
		c, err := s.Checkpoint(t.Context(), ann, id, true)
		switch {
		case ckpt.CodeOf(err) == ckpt.CodeNotFound: // erased or pruned
		case err != nil || !slices.Equal(c.State, state):
			t.Errorf("%s does not read back: %v", id, err)
		default:
			there++
		}
	}
	copied := filepath.Join(t.TempDir(), "copy.db")
	reader := auditor(t, path)
	defer reader.Close()
	if _, err := reader.Exec(`VACUUM INTO ?`, copied); err != nil {
		t.Fatal(err)
	}
	file, fresh := sizeOf(t, path), sizeOf(t, copied)
	t.Logf("%d checkpoints are left; the file has %d bytes, a fresh copy %d: %.2f", there, file, fresh, float64(file)/float64(fresh))
	if there < 60 || float64(file) > 1.3*float64(fresh) {
		t.Error("the file is more than 1.3 times a fresh copy")
	}
	must(t, s.Close())
	sound(t, path)
}

// TestMaintainStopsPromptly: maintenance ends with its context, without an
// error.
func TestMaintainStopsPromptly(t *testing.T) {
	t.Parallel()
	s, _ := open(t)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error)
	go func() { ended <- s.Maintain(ctx) }()
	save(t, s, ann, "a", ckpt.KindRoutine, `1`)
	cancel()
	must(t, <-ended)
}

// TestStatus: the status contains what a person wants to know about a store.
func TestStatus(t *testing.T) {
	t.Parallel()
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

// TestReadsOnly: if the check after a fault finds damage, the store serves only
// reads, and says why.
func TestReadsOnly(t *testing.T) {
	t.Parallel()
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
