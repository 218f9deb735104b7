package drivers

import (
	"bytes"
	"database/sql"
	"os"
	"path/filepath"
	"testing"

	"github.com/ckptsidecar/ckptsidecar/bench/internal/load"
)

// saved lets clients save into a store, and closes it.
func saved(t *testing.T, store load.Store, o load.Order) *load.Answer {
	t.Helper()
	text := bytes.Repeat([]byte("some words, "), 1<<18)
	loop := load.Loop{Store: store, Source: load.NewSource(text)}
	answer, err := loop.Run(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	if err := store.Close(); err != nil {
		t.Fatal(err)
	}
	return answer
}

func TestFilesKeepTheNewestOrAll(t *testing.T) {
	for _, c := range []struct{ step, files int }{{0, 3}, {100, 3 * 6}} {
		dir := t.TempDir()
		store, err := openFiles(t.Context(), dir)
		if err != nil {
			t.Fatal(err)
		}
		saved(t, store, load.Order{Clients: 3, Size: 2048, Step: c.step, Limit: 5})
		files, _ := filepath.Glob(filepath.Join(dir, "*", "*"))
		if len(files) != c.files {
			t.Errorf("with a step of %d there are %d files: %v", c.step, len(files), files)
		}
	}
}

func TestLogHoldsEveryState(t *testing.T) {
	dir := t.TempDir()
	store, err := openLog(t.Context(), dir)
	if err != nil {
		t.Fatal(err)
	}
	answer := saved(t, store, load.Order{Clients: 32, Size: 2048, Limit: 50})
	text, err := os.ReadFile(filepath.Join(dir, "log"))
	if err != nil {
		t.Fatal(err)
	}
	if answer.Saves != 32*51 || len(text) != answer.Saves*2048 {
		t.Errorf("%d saves, %d bytes", answer.Saves, len(text))
	}
	for i := range answer.Saves {
		if state := text[i*2048 : (i+1)*2048]; !bytes.HasPrefix(state, []byte(`{"agent":"agent-2048-0-`)) || !bytes.HasSuffix(state, []byte(`"}`)) {
			t.Fatalf("state %d is torn: %s", i, state)
		}
	}
}

func TestDBOSRecordsAStepForEachState(t *testing.T) {
	dir := t.TempDir()
	store, err := openDBOS(t.Context(), dir)
	if err != nil {
		t.Fatal(err)
	}
	answer := saved(t, store, load.Order{Clients: 2, Size: 2048, Limit: 5})
	db, err := sql.Open("sqlite", filepath.Join(dir, "dbos.db"))
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	var steps, least int
	err = db.QueryRowContext(t.Context(), "SELECT count(*), min(length(output)) FROM operation_outputs").Scan(&steps, &least)
	if err != nil || steps != answer.Saves || least < 2048 {
		t.Errorf("%d steps of at least %d bytes for %d saves, error %v", steps, least, answer.Saves, err)
	}
}
