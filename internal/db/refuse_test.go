//go:build unix

package db_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	ckpt "github.com/ckptsidecar/ckptsidecar"
	"github.com/ckptsidecar/ckptsidecar/internal/db"
)

// TestRefusedFiles opens files that must not be touched: each is refused with
// an error that says what to do, and no byte of it is changed.
func TestRefusedFiles(t *testing.T) {
	t.Parallel()
	cases := map[string]struct {
		make func(t *testing.T, path string)
		says string
	}{
		"foreign": {func(t *testing.T, path string) { sql(t, path, "CREATE TABLE t (x); INSERT INTO t VALUES (1)") }, "another program"},
		"foreign in WAL mode": {func(t *testing.T, path string) {
			sql(t, path, "PRAGMA journal_mode=WAL; CREATE TABLE t (x); INSERT INTO t VALUES (1)")
		}, "another program"},
		"foreign application": {func(t *testing.T, path string) { sql(t, path, "PRAGMA application_id=7; CREATE TABLE t (x)") }, "another program"},
		"newer": {func(t *testing.T, path string) {
			replace(t, closedDatabase(t), path)
			sql(t, path, fmt.Sprintf("PRAGMA user_version=%d", ckpt.SchemaVersion+1))
		}, "newer ckptsidecar"},
		"of an unreleased version": {func(t *testing.T, path string) {
			replace(t, closedDatabase(t), path)
			sql(t, path, "DELETE FROM meta WHERE key = 'schema'; PRAGMA user_version = 6")
		}, "made by an unreleased version of ckptsidecar"},
		"of another form of this version": {func(t *testing.T, path string) {
			replace(t, closedDatabase(t), path)
			sql(t, path, "UPDATE meta SET value = 'x' WHERE key = 'schema'")
		}, "made by an unreleased version of ckptsidecar"},
		"text":               {func(t *testing.T, path string) { write(t, path, []byte(strings.Repeat("not a database\n", 1000))) }, "not a SQLite database"},
		"garbage":            {func(t *testing.T, path string) { damageAt(t, closedDatabase(t), path, 0, 100) }, "not a SQLite database"},
		"damaged first page": {func(t *testing.T, path string) { damageAt(t, closedDatabase(t), path, 100, 8000) }, "damaged"},
		"directory":          {func(t *testing.T, path string) { must(t, os.Mkdir(path, 0o700)) }, "not a plain file"},
		"symlink":            {func(t *testing.T, path string) { must(t, os.Symlink(closedDatabase(t), path)) }, "not a plain file"},
		"dangling symlink":   {func(t *testing.T, path string) { must(t, os.Symlink("nowhere", path)) }, "not a plain file"},
		"FIFO":               {func(t *testing.T, path string) { must(t, syscall.Mkfifo(path, 0o600)) }, "not a plain file"},
		"hard link": {func(t *testing.T, path string) {
			replace(t, closedDatabase(t), path)
			must(t, os.Link(path, path+"2"))
		}, "hard link"},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "ckpt.db")
			c.make(t, path)
			before := contents(t, path)
			_, err := db.Open(t.Context(), options(path, newClock()))
			var operator *db.OperatorError
			if !errors.As(err, &operator) {
				t.Fatalf("the error is %T: %v", err, err)
			}
			if !strings.Contains(err.Error(), c.says) || strings.Contains(err.Error(), "\n") {
				t.Errorf("it says %q, not %q", err, c.says)
			}
			if after := contents(t, path); after != before {
				t.Errorf("the file was changed: %s, before %s", after, before)
			}
		})
	}
}
