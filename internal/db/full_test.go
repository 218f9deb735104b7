//go:build linux

package db_test

import (
	"os"
	"path/filepath"
	"testing"

	ckpt "github.com/ckptsidecar/ckptsidecar"
)

// TestFullDisk fills the file system: saves are refused and nothing else
// stops, and saves succeed again without a restart once there is room.
func TestFullDisk(t *testing.T) {
	dir := mountTmpfs(t, "12m")
	path, ballast := filepath.Join(dir, "ckpt.db"), filepath.Join(dir, "ballast")
	s := openWith(t, options(path, newClock()))
	write(t, ballast, make([]byte, 4<<20-200_000)) // so much that a save does not fit, and the pages of a delete into what it has left
	states := map[string][]byte{}
	var ids []string
	var err error
	for i := 0; err == nil; i++ {
		if i > 100 {
			t.Fatal("the disk does not fill")
		}
		state := noise(uint64(i), 300_000)
		var c *ckpt.Saved
		if c, err = s.Save(t.Context(), ann, binary("a", ckpt.KindRecovery, state)); err == nil {
			ids = append(ids, c.ID)
			states[c.ID] = state
		}
	}
	wantCode(t, err, ckpt.CodeStorageFull)
	if e := ckpt.AsError(err); e.OutcomeOrDefault() != ckpt.OutcomeNotSaved || !e.Retryable() {
		t.Errorf("the answer: %+v", e)
	}
	for i := range 5 {
		_, err := s.Save(t.Context(), ann, binary("a", ckpt.KindRecovery, noise(uint64(1000+i), 300_000)))
		wantCode(t, err, ckpt.CodeStorageFull)
	}
	must(t, s.Ready(t.Context()))
	if _, err := s.Status(t.Context(), ann); err != nil {
		t.Errorf("status on a full disk: %v", err)
	}
	for id, state := range states {
		c, err := s.Checkpoint(t.Context(), ann, id, true)
		if err != nil || string(c.State) != string(state) {
			t.Errorf("a read on a full disk: %v", err)
		}
	}
	if _, err := s.Delete(t.Context(), ann, ids[0]); err != nil {
		t.Errorf("a delete on a full disk: %v", err)
	}
	must(t, os.Remove(ballast))
	for i := range 5 {
		if _, err := s.Save(t.Context(), ann, binary("a", ckpt.KindRecovery, noise(uint64(2000+i), 300_000))); err != nil {
			t.Fatalf("with room again: %v", err)
		}
	}
	must(t, s.Close())
	if report := sound(t, path); report.Checkpoints != int64(len(ids)-1+5) {
		t.Errorf("%d checkpoints, want %d", report.Checkpoints, len(ids)-1+5)
	}
}

// TestOpenOnAFullDisk serves reads where there is no room for a row at start.
func TestOpenOnAFullDisk(t *testing.T) {
	from := closedDatabase(t)
	dir := mountTmpfs(t, "1m")
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
