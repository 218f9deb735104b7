//go:build linux

package db_test

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	ckpt "github.com/ckptsidecar/ckptsidecar"
	"github.com/ckptsidecar/ckptsidecar/internal/db"
	"github.com/ckptsidecar/ckptsidecar/internal/expect"
)

// ballast is a file that takes space away from all others.
type ballast struct {
	t    *testing.T
	file *os.File
}

func newBallast(t *testing.T, dir string) *ballast {
	t.Helper()
	f, err := os.Create(filepath.Join(dir, "ballast"))
	must(t, err)
	t.Cleanup(func() { _ = f.Close() })
	return &ballast{t, f}
}

// grow fills the disk to its last byte.
func (b *ballast) grow() {
	b.t.Helper()
	var err error
	for size := 1 << 20; size > 0; size /= 2 {
		for _, err = b.file.Write(make([]byte, size)); err == nil; _, err = b.file.Write(make([]byte, size)) {
		}
	}
	if !errors.Is(err, syscall.ENOSPC) {
		b.t.Fatal(err)
	}
}

// drop releases all of it.
func (b *ballast) drop() {
	b.t.Helper()
	must(b.t, b.file.Truncate(0))
	_, err := b.file.Seek(0, io.SeekStart)
	must(b.t, err)
}

// saveUntilFull saves until a save is refused because the disk is full.
func saveUntilFull(t *testing.T, s *db.Store, states map[string][]byte) {
	t.Helper()
	for i := range 500 {
		state := noise(uint64(1000+len(states)), 300_000)
		c, err := s.Save(t.Context(), ann, binary("a", ckpt.KindRecovery, state))
		if err == nil {
			states[c.ID] = state
			continue
		}
		wantCode(t, err, ckpt.CodeStorageFull)
		if e := ckpt.AsError(err); e.OutcomeOrDefault() != ckpt.OutcomeNotSaved || !e.Retryable() {
			t.Errorf("the answer: %+v", e)
		}
		t.Logf("%d saves were acknowledged, %d of them on the full disk", len(states), i)
		return
	}
	t.Fatal("the disk does not fill")
}

// TestFullDisk fills the file system to its last byte, with the log in each of its states. Saves are refused, and
// reads, status and every delete still work. When there is room again, saves succeed without a restart.
func TestFullDisk(t *testing.T) {
	t.Parallel()
	expect.OneThread(t)
	logs := map[string]func(*testing.T, *db.Store, map[string][]byte){
		"nothing was saved but what is there": func(*testing.T, *db.Store, map[string][]byte) {},
		"the log is empty":                    func(t *testing.T, s *db.Store, _ map[string][]byte) { must(t, s.EmptyWAL()) },
		"the log was just copied":             func(_ *testing.T, s *db.Store, _ map[string][]byte) { s.CopyWAL() },
		"the log has begun anew": func(t *testing.T, s *db.Store, states map[string][]byte) {
			s.CopyWAL()
			saveNoise(t, s, states, 3)
		},
		"much waits in the log": func(t *testing.T, s *db.Store, states map[string][]byte) { saveNoise(t, s, states, 40) },
	}
	for name, prepare := range logs {
		for _, greedy := range []bool{false, true} {
			if greedy && !*long && name != "much waits in the log" {
				continue
			}
			t.Run(fmt.Sprintf("%s, greedy %t", name, greedy), func(t *testing.T) { fullDisk(t, prepare, greedy) })
		}
	}
}

func saveNoise(t *testing.T, s *db.Store, states map[string][]byte, times int) {
	t.Helper()
	for range times {
		state := noise(uint64(len(states)), 300_000)
		c, err := s.Save(t.Context(), ann, binary("a", ckpt.KindRecovery, state))
		must(t, err)
		states[c.ID] = state
	}
}

// onSmallDisk opens a database in a file system of the given size, makes some saves, and returns the ballast that
// fills the rest.
func onSmallDisk(t *testing.T, size string, saves int) (s *db.Store, path string, states map[string][]byte, b *ballast) {
	t.Helper()
	dir := mountTmpfs(t, size)
	path, b = filepath.Join(dir, "ckpt.db"), newBallast(t, dir)
	s, states = openWith(t, options(path, newClock())), map[string][]byte{}
	saveNoise(t, s, states, saves)
	return s, path, states, b
}

func fullDisk(t *testing.T, prepare func(*testing.T, *db.Store, map[string][]byte), greedy bool) {
	s, path, states, b := onSmallDisk(t, "80m", 6)
	prepare(t, s, states)
	b.grow()
	saveUntilFull(t, s, states)
	b.grow()
	must(t, s.Ready(t.Context()))
	if _, err := s.Status(t.Context(), ann); err != nil {
		t.Errorf("status on a full disk: %v", err)
	}
	for id, state := range states {
		if c, err := s.Checkpoint(t.Context(), ann, id, true); err != nil || string(c.State) != string(state) {
			t.Errorf("a read on a full disk: %v", err)
		}
	}
	tick, now := s.Ticker(), time.Now()
	left := len(states)
	for id := range states {
		if _, err := s.Delete(t.Context(), ann, id); err != nil {
			t.Fatalf("a delete on a full disk, with %d left: %v", left, err)
		}
		if left--; greedy {
			b.grow()
		}
		if left%4 == 0 {
			now = now.Add(10 * time.Second)
			tick(now)
		}
	}
	must(t, s.Ready(t.Context()))
	b.drop()
	now = now.Add(10 * time.Second)
	tick(now)
	for i := range 5 {
		if _, err := s.Save(t.Context(), ann, binary("a", ckpt.KindRecovery, noise(uint64(2000+i), 300_000))); err != nil {
			t.Fatalf("with room again: %v", err)
		}
	}
	if size := sizeOf(t, path+"-reserve"); size < 4<<20 {
		t.Errorf("the reserve has %d bytes again", size)
	}
	if state, problems := s.Health(); state != "ready" {
		t.Errorf("with room again: %s, %v", state, problems)
	}
	must(t, s.Close())
	if report := sound(t, path); report.Checkpoints != 5 {
		t.Errorf("%d checkpoints, want 5", report.Checkpoints)
	}
}

// TestOpenOnAFullDisk: a daemon serves reads even if there is no room for its start row.
func TestOpenOnAFullDisk(t *testing.T) {
	t.Parallel()
	from := closedDatabase(t)
	dir := mountTmpfs(t, "2m")
	path := filepath.Join(dir, "ckpt.db")
	for _, suffix := range []string{"", "-wal", "-shm"} {
		replace(t, from+suffix, path+suffix)
	}
	f, err := os.Create(filepath.Join(dir, "ballast"))
	must(t, err)
	for size := 64 << 10; size > 0; size /= 2 {
		for _, err = f.Write(make([]byte, size)); err == nil; _, err = f.Write(make([]byte, size)) {
		}
	}
	must(t, f.Close())
	s := openWith(t, options(path, newClock()))
	_, err = s.Save(t.Context(), ann, request("a", ckpt.KindRoutine, `2`))
	wantCode(t, err, ckpt.CodeStorageFull)
	if got := seqs(t, s, ann, "a"); len(got) != 1 {
		t.Errorf("reads on a full disk: %v", got)
	}
	must(t, os.Remove(f.Name()))
	save(t, s, ann, "a", ckpt.KindRoutine, `2`)
}

// full is a store on a disk without a free byte, and without room in the log.
func full(t *testing.T, saves int) (s *db.Store, o db.Options, c *clock, b *ballast, ids []string) {
	t.Helper()
	dir := mountTmpfs(t, "80m")
	c = newClock()
	o = options(filepath.Join(dir, "ckpt.db"), c)
	b = newBallast(t, dir)
	s = openWith(t, o)
	for i := range saves {
		c, err := s.Save(t.Context(), ann, binary("a", ckpt.KindRecovery, noise(uint64(i), 100_000)))
		must(t, err)
		ids = append(ids, c.ID)
	}
	must(t, s.EmptyWAL())
	must(t, s.FillAndFree()) // it may hold room for pages that were in the log
	b.grow()
	return s, o, c, b, ids
}

// auditRows returns the number of rows in the audit log.
func auditRows(t *testing.T, s *db.Store) int64 {
	t.Helper()
	st, err := s.Status(t.Context(), root)
	must(t, err)
	return st.Database.AuditRows
}

// TestSavesLeaveTheReserve: saves cannot use the space that a delete has freed, neither then nor after a restart.
func TestSavesLeaveTheReserve(t *testing.T) {
	t.Parallel()
	expect.OneThread(t)
	s, o, _, b, ids := full(t, 6)
	first := binary("keyed", ckpt.KindRoutine, []byte("1"))
	first.IdempotencyKey = "key-1"
	b.drop()
	_, err := s.Save(t.Context(), ann, first)
	must(t, err)
	must(t, s.EmptyWAL())
	b.grow()
	refused := func() {
		t.Helper()
		logBefore, rows := sizeOf(t, o.Path+"-wal"), auditRows(t, s)
		for i := range 20 {
			_, err := s.Save(t.Context(), ann, request("b", ckpt.KindRoutine, fmt.Sprint(i)))
			wantCode(t, err, ckpt.CodeStorageFull)
		}
		_, err := s.Save(t.Context(), ann, binary("a", ckpt.KindRecovery, noise(7, 24<<20))) // more than SQLite buffers
		wantCode(t, err, ckpt.CodeStorageFull)
		if logNow, now := sizeOf(t, o.Path+"-wal"), auditRows(t, s); logNow != logBefore || now != rows {
			t.Errorf("refused saves took room: the log has %d, not %d bytes, and %d rows came", logNow, logBefore, now-rows)
		}
		if c, err := s.Save(t.Context(), ann, first); err != nil || !c.Replayed {
			t.Errorf("a save that was acknowledged before: %+v, %v", c, err)
		}
		if state, problems := s.Health(); state != "degraded" || len(problems) != 1 {
			t.Errorf("status says %s, %q", state, problems)
		}
	}
	_, err = s.Delete(t.Context(), ann, ids[0])
	must(t, err)
	refused()
	for range 3 {
		must(t, s.Close())
		s = openWith(t, o)
		refused()
		_, err = s.Delete(t.Context(), ann, ids[1])
		must(t, err)
		ids = ids[1:]
	}
	b.drop()
	s.Tick(time.Now().Add(time.Minute))
	save(t, s, ann, "b", ckpt.KindRoutine, `1`)
	if state, problems := s.Health(); state != "ready" {
		t.Errorf("with room again status says %s, %q", state, problems)
	}
	must(t, s.Close())
	sound(t, o.Path)
}

// TestRemovalsOnAFullDisk: everything that removes data works without a free byte.
func TestRemovalsOnAFullDisk(t *testing.T) {
	t.Parallel()
	expect.OneThread(t)
	removals := map[string]func(*db.Store, []string) error{
		"a policy": func(s *db.Store, _ []string) error {
			p := ckpt.DefaultPolicy()
			p.RecoveryKeep = ckpt.Duration(time.Hour)
			_, err := s.SetPolicy(t.Context(), ann, "a", p)
			return err
		},
		"prune": func(s *db.Store, ids []string) error {
			report, _, err := s.Prune(t.Context(), ann, ckpt.PruneRequest{}, "key")
			if err == nil && len(report.Removed) != len(ids)-1 {
				return fmt.Errorf("%d were pruned", len(report.Removed))
			}
			return err
		},
		"erase": func(s *db.Store, _ []string) error {
			_, err := s.Erase(t.Context(), ann, "a")
			return err
		},
		"deletes while a reader holds its snapshot": func(s *db.Store, ids []string) error {
			for _, id := range ids[:10] {
				if _, err := s.Delete(t.Context(), ann, id); err != nil {
					return err
				}
			}
			return nil
		},
	}
	for name, remove := range removals {
		t.Run(name, func(t *testing.T) {
			s, o, c, _, ids := full(t, 20)
			c.add(8 * ckpt.Day)
			if name[0] == 'd' {
				r := auditor(t, o.Path)
				tx, err := r.Begin()
				must(t, err)
				var n int
				must(t, tx.QueryRow(`SELECT count(*) FROM checkpoints`).Scan(&n))
				defer tx.Rollback()
			}
			if err := remove(s, ids); err != nil {
				t.Error(err)
			}
			must(t, s.Ready(t.Context()))
		})
	}
}

// TestIndexOnAFullDisk: a log that is written again after a restart also has room for its index. SQLite extends the
// index after the commit is in the log, and if that failed, it could no longer tell what is saved.
func TestIndexOnAFullDisk(t *testing.T) {
	t.Parallel()
	expect.OneThread(t)
	s, path, states, b := onSmallDisk(t, "200m", 160)
	s.CopyWAL()
	saveNoise(t, s, states, 2) // the log starts over, so the next daemon starts with a short index
	must(t, s.Close())
	s = openWith(t, options(path, newClock()))
	b.grow()
	i := 0
	for id := range states {
		if _, err := s.Delete(t.Context(), ann, id); err != nil {
			t.Fatalf("delete %d: %v", i, err)
		}
		if _, err := s.Save(t.Context(), ann, binary("b", ckpt.KindRecovery, noise(uint64(i), 290_000))); err != nil {
			wantCode(t, err, ckpt.CodeStorageFull)
		}
		i++
	}
	must(t, s.Ready(t.Context()))
}

// TestTheLogIsCutBeforeASaveIsRefused: before a save is refused on a small disk, almost all of the disk belongs to
// the database, and none to an unused log. The refusal is counted, and status reports it. Space that deletes free
// is soon available for saves.
func TestTheLogIsCutBeforeASaveIsRefused(t *testing.T) {
	t.Parallel()
	expect.OneThread(t)
	const disk = 100 << 20
	s, path, states, _ := onSmallDisk(t, "100m", 3)
	saveUntilFull(t, s, states)
	if database, log := sizeOf(t, path), sizeOf(t, path+"-wal"); database < disk*8/10 || log > 2<<20 {
		t.Errorf("a save was refused with %d MiB of database, %d of log and %d of reserve on %d",
			database>>20, log>>20, sizeOf(t, path+"-reserve")>>20, disk>>20)
	}
	st, err := s.Status(t.Context(), root)
	must(t, err)
	if st.Writer.Failures != 1 {
		t.Errorf("%d refusals were counted", st.Writer.Failures)
	}
	deleted := 0
	for id := range states {
		if deleted++; deleted > 100 {
			break
		}
		if _, err := s.Delete(t.Context(), ann, id); err != nil {
			t.Fatalf("delete %d: %v", deleted, err)
		}
		delete(states, id)
	}
	if state, problems := s.Health(); state != "degraded" {
		t.Errorf("while saves are refused status says %s, %q", state, problems)
	}
	tick, now := s.Ticker(), time.Now()
	for range 10 { // maintenance returns freed space in small parts
		now = now.Add(10 * time.Second)
		tick(now)
	}
	for i := range 80 {
		if _, err := s.Save(t.Context(), ann, binary("b", ckpt.KindRecovery, noise(uint64(5000+i), 300_000))); err != nil {
			t.Fatalf("save %d after 100 deletes: %v", i, err)
		}
	}
	must(t, s.Close())
	sound(t, path)
}

// TestTheFolderAfterACleanStop: the folder of a database that had much in its log contains the database with all
// saves, an empty log, and the reserve with its configured size. The sqlite3 command can read it.
func TestTheFolderAfterACleanStop(t *testing.T) {
	t.Parallel()
	expect.OneThread(t)
	o := options(filepath.Join(t.TempDir(), "ckpt.db"), newClock())
	s := openWith(t, o)
	saveNoise(t, s, map[string][]byte{}, 60)
	if log := sizeOf(t, o.Path+"-wal"); log < 10<<20 {
		t.Fatalf("the log has %d bytes only", log)
	}
	must(t, s.Close())
	if log, reserve := sizeOf(t, o.Path+"-wal"), sizeOf(t, o.Path+"-reserve"); log != 0 || reserve != 4<<20 {
		t.Errorf("the log has %d bytes, the reserve %d", log, reserve)
	}
	if index := sizeOf(t, o.Path+"-shm"); index > 1<<20 {
		t.Errorf("the index of the log has %d bytes", index)
	}
	if got := sqlite3(t, "-readonly", o.Path, "SELECT count(*) FROM audit_checkpoints"); got != "60" {
		t.Errorf("sqlite3 -readonly reads %q checkpoints", got)
	}
	sound(t, o.Path)
	openWith(t, o)
}
