package sqlite

import (
	"path/filepath"
	"strings"
	"testing"
)

// TestOwnReadLockThatWasNotGivenBack: a leaked read lock of this process, which none of its connections uses, would
// prevent the log from ever starting over. Real readers, of this process or of another program, are waited for.
func TestOwnReadLockThatWasNotGivenBack(t *testing.T) {
	for name, leaked := range map[string]bool{"leaked": true, "a reader of ours": false} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "ckpt.db")
			s := openAt(t, path)
			s.wal.target = 64 << 10
			readers := s.ro
			if leaked { // to the kernel this looks the same as a lock that was not released
				p, err := pool(path, "ro", 1, readerPragmas)
				if err != nil {
					t.Fatal(err)
				}
				defer p.Close()
				readers = p
			}
			snapshot, err := readers.Beginx()
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = snapshot.Rollback() }()
			var n int64
			if err := snapshot.Get(&n, `SELECT count(*) FROM t`); err != nil {
				t.Fatal(err)
			}
			for range 40 {
				err := s.Write(&Op{Owner: "test", Do: func(tx *Tx) error {
					return tx.Exec(`INSERT INTO t (x, y) VALUES (hex(randomblob(8)), hex(zeroblob(20000)))`)
				}})
				if err != nil {
					t.Fatal(err)
				}
			}
			for range ownReadsMost + 2 {
				s.copyWAL(t.Context())
			}
			switch err := s.Fault(); {
			case leaked && (err == nil || !strings.Contains(err.Error(), "its own read lock")):
				t.Errorf("the store goes on: %v", err)
			case !leaked && err != nil:
				t.Error(err)
			}
		})
	}
}

func TestLinesOfLocks(t *testing.T) {
	for line, want := range map[string]heldLock{
		"1: POSIX  ADVISORY  WRITE 1234 fd:01:131073 120 120":  {write: true, pid: 1234, inode: 131073, from: 120, to: 120},
		"12: OFDLCK ADVISORY  READ -1 00:2f:77 1073741826 EOF": {pid: -1, inode: 77, from: 1073741826, to: 1<<63 - 1},
	} {
		if got, ok := parseLock(line); !ok || got != want {
			t.Errorf("%q is %+v, %t", line, got, ok)
		}
	}
	for _, line := range []string{"", "1: -> POSIX  ADVISORY  WRITE 1234 fd:01:131073 120 120", "1: POSIX  ADVISORY  WRITE x fd:01:131073 120 120"} {
		if got, ok := parseLock(line); ok {
			t.Errorf("%q is taken for %+v", line, got)
		}
	}
}
