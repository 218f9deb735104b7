package db_test

import (
	"path/filepath"
	"strings"
	"testing"
	"time"

	ckpt "github.com/ckptsidecar/ckptsidecar"
	"github.com/ckptsidecar/ckptsidecar/internal/db"
)

// adminReads returns what administrators' reads have left: the number of rows,
// and the number of reads that they represent.
func adminReads(t *testing.T, path, where string) (rows, reads string) {
	t.Helper()
	rows, reads, _ = strings.Cut(sqlite3(t, path, `SELECT count(*), sum(coalesce(json_extract(detail, '$.reads'), 1))
		FROM audit_log WHERE action LIKE 'admin\_%' ESCAPE '\' AND `+where), "|")
	return rows, reads
}

// aBusyAgent returns an agent with a checkpoint, which root reads in the name
// of its owner.
func aBusyAgent(t *testing.T) (s *db.Store, c *clock, path string, sc ckpt.Scope) {
	t.Helper()
	c = newClock()
	path = filepath.Join(t.TempDir(), "ckpt.db")
	s = openWith(t, options(path, c))
	save(t, s, ann, "a", ckpt.KindRoutine, `1`)
	sc, err := root.Caller.For("uid:1001")
	must(t, err)
	return s, c, path, sc
}

// lookAround makes seven different reads.
func lookAround(t *testing.T, s *db.Store, sc ckpt.Scope) {
	t.Helper()
	ref := ckpt.RunRef{Agent: "a"}
	_, err := s.Run(t.Context(), sc, ref)
	must(t, err)
	_, err = s.Steps(t.Context(), sc, ref, ckpt.ListFilter{})
	must(t, err)
	_, err = s.Operations(t.Context(), sc, ref, ckpt.ListFilter{})
	must(t, err)
	_, err = s.Checkpoints(t.Context(), sc, ckpt.CheckpointFilter{Agent: "a"})
	must(t, err)
	_, err = s.Policy(t.Context(), sc, "a")
	must(t, err)
	_, err = s.Status(t.Context(), sc)
	must(t, err)
	_, err = s.Drift(t.Context(), sc, ckpt.DriftFilter{Agent: "a"})
	must(t, err)
}

// TestRepeatedReadsOfAdministratorsAreCounted makes 49 reads in a minute. Each
// kind of call gets one row at once, repetitions are counted, and only the
// first read uses the writer.
func TestRepeatedReadsOfAdministratorsAreCounted(t *testing.T) {
	t.Parallel()
	s, c, path, sc := aBusyAgent(t)
	lookAround(t, s, sc)
	if rows, reads := adminReads(t, path, "1"); rows != "7" || reads != "7" {
		t.Fatalf("the first reads have %s rows for %s reads; they are to have one each before they are answered", rows, reads)
	}
	before := s.Engine.WriterStatus().Operations
	for range 6 {
		c.add(time.Second)
		lookAround(t, s, sc)
	}
	if after := s.Engine.WriterStatus().Operations; after != before {
		t.Errorf("repeated reads took %d turns of the writer", after-before)
	}
	s.Tick(c.Now()) // the minute is not over
	if rows, _ := adminReads(t, path, "1"); rows != "7" {
		t.Errorf("49 reads in seven seconds have %s rows, want 7", rows)
	}
	c.add(time.Minute)
	s.Tick(c.Now())
	if rows, reads := adminReads(t, path, "1"); rows != "14" || reads != "49" {
		t.Errorf("after the minute there are %s rows for %s reads, want 14 for 49", rows, reads)
	}
	if took := s.Engine.WriterStatus().Operations - before; took != 1 {
		t.Errorf("the counts of seven calls took %d turns of the writer, want 1", took)
	}
	sound(t, path)
}

// TestAWatchOfAnHourHasARowAMinute polls every two seconds for an hour, as an
// open page does, while the maintenance runs.
func TestAWatchOfAnHourHasARowAMinute(t *testing.T) {
	t.Parallel()
	s, c, path, sc := aBusyAgent(t)
	began := ckpt.At(c.Now())
	for range 1800 {
		_, err := s.Run(t.Context(), sc, ckpt.RunRef{Agent: "a"})
		must(t, err)
		s.Tick(c.Now())
		c.add(2 * time.Second)
	}
	last := ckpt.At(c.Now().Add(-2 * time.Second))
	c.add(time.Minute)
	s.Tick(c.Now())
	rows, reads := adminReads(t, path, "1")
	if reads != "1800" {
		t.Errorf("the rows stand for %s reads, want 1800", reads)
	}
	if rows != "60" && rows != "61" {
		t.Errorf("an hour has %s rows", rows)
	}
	if got := sqlite3(t, path, `SELECT min(at) FROM audit_log WHERE action = 'admin_read_run'`); got != began.String() {
		t.Errorf("the first row is of %s, want %s", got, began)
	}
	if got := sqlite3(t, path, `SELECT max(at) >= '`+last.String()+`' FROM audit_log WHERE action = 'admin_read_run'`); got != "1" {
		t.Error("no row tells of the last read")
	}
}

// TestACountNamesWhatWasRead: reads of several checkpoints of an agent are
// counted together, and each checkpoint is named.
func TestACountNamesWhatWasRead(t *testing.T) {
	t.Parallel()
	s, c, path, _ := aBusyAgent(t)
	var ids []string
	for range 3 {
		ids = append(ids, save(t, s, ann, "a", ckpt.KindRecovery, `2`).ID)
	}
	for range 2 {
		for _, id := range ids {
			_, err := s.Checkpoint(t.Context(), root, id, true)
			must(t, err)
			c.add(time.Second)
		}
	}
	must(t, s.Close()) // this writes the counts
	for _, id := range ids {
		if got := sqlite3(t, path, `SELECT count(*) FROM audit_log WHERE action = 'admin_read' AND (subject = '`+id+`' OR detail LIKE '%`+id+`%')`); got == "0" {
			t.Errorf("no row names the checkpoint %s that was read", id)
		}
	}
	if rows, reads := adminReads(t, path, "agent = 'a'"); rows != "2" || reads != "6" {
		t.Errorf("six reads have %s rows for %s reads, want 2 for 6", rows, reads)
	}
}
