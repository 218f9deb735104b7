package db_test

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	ckpt "github.com/ckptsidecar/ckptsidecar"
)

// TestStartReadsOnlyTheEndOfTheLog: a start after a stop reads as much of a database with a long audit log as of one with a short log.
func TestStartReadsOnlyTheEndOfTheLog(t *testing.T) {
	reads := func(rows int) (bytes int64) {
		path := filepath.Join(t.TempDir(), "ckpt.db")
		s := openWith(t, options(path, newClock()))
		save(t, s, ann, "a", ckpt.KindRoutine, `1`)
		must(t, s.Close())
		forge(t, path, fmt.Sprintf(`WITH RECURSIVE n (i) AS (SELECT (SELECT max(n) FROM acts) + 1 UNION ALL SELECT i + 1 FROM n WHERE i < %d)
			INSERT INTO acts (n, at, who, pid, action, place, subject, sha256, kind, seq, size, hash)
			SELECT i, 1790000000000 + i, 'uid:1001', 1, 'save', 1, randomblob(16), randomblob(32), 1, i, 2, randomblob(32) FROM n`, rows))
		for range 2 { // the first start finds the forged rows, and the next one finds its own
			must(t, os.Remove(path+".head"))
			s = openWith(t, options(path, newClock()))
			save(t, s, ann, "a", ckpt.KindRoutine, `2`)
			must(t, s.Close())
		}
		before := charsRead(t)
		s = openWith(t, options(path, newClock()))
		bytes = charsRead(t) - before
		if state, problems := s.Health(); state != "ready" {
			t.Errorf("%s: %v", state, problems)
		}
		must(t, s.Close())
		return bytes
	}
	short, long := reads(5_000), reads(200_000)
	t.Logf("a start reads %d bytes behind 5,000 rows, %d behind 200,000", short, long)
	if long > short+short/4 {
		t.Errorf("a start reads %d bytes behind 5,000 rows, %d behind 200,000", short, long)
	}
}

// charsRead is how many bytes this process has read from files so far.
func charsRead(t *testing.T) (n int64) {
	t.Helper()
	text, err := os.ReadFile("/proc/self/io")
	must(t, err)
	if _, err := fmt.Sscanf(string(text), "rchar: %d", &n); err != nil {
		t.Fatal(err)
	}
	return n
}
