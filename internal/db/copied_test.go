package db_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	ckpt "github.com/ckptsidecar/ckptsidecar"
	"github.com/ckptsidecar/ckptsidecar/internal/db"
)

// TestCopyWithAnotherLog starts on a copy that cp made of a live database: the
// file of one moment with the write-ahead log of a later moment, or with torn
// pages.
func TestCopyWithAnotherLog(t *testing.T) {
	t.Parallel()
	const hint = "copied with cp"
	path := filepath.Join(t.TempDir(), "ckpt.db")
	s := openWith(t, options(path, newClock()))
	s.SetWALTarget(64 << 10)
	many := func(n int) {
		for i := range n {
			save(t, s, ann, fmt.Sprint("a", i%20), ckpt.KindRoutine, conversation(100+i))
		}
	}
	many(60)
	s.CopyWAL()
	must(t, s.Upkeep(t.Context()))
	torn, err := os.ReadFile(path)
	must(t, err)
	many(40)
	log, err := os.ReadFile(path + "-wal")
	must(t, err)
	for page := 2; page < 12; page++ { // the log has some of these pages; the others are torn
		clear(torn[page*4096 : (page+1)*4096])
	}
	to := filepath.Join(t.TempDir(), "ckpt.db")
	write(t, to, torn)
	write(t, to+"-wal", log)
	c, err := db.Open(t.Context(), options(to, newClock()))
	if err != nil {
		if !strings.Contains(err.Error(), hint) {
			t.Errorf("the refusal does not say what happened: %v", err)
		}
		return
	}
	defer c.Close()
	if state, problems := c.Health(); state != "read_only" || !strings.Contains(strings.Join(problems, " "), hint) {
		t.Errorf("%s: %v", state, problems)
	}
	_, err = c.Save(t.Context(), ann, request("a", ckpt.KindRoutine, `1`))
	wantCode(t, err, ckpt.CodeCorrupt)
}

// TestWholeCopyIsServed: files that were copied while no daemon had them open
// are intact.
func TestWholeCopyIsServed(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "ckpt.db")
	doubtful(t, path)
	to := filepath.Join(t.TempDir(), "ckpt.db")
	copyDatabaseTo(t, path, to)
	if state, problems := doubtful(t, to); state != "ready" {
		t.Errorf("%s: %s", state, problems)
	}
}
