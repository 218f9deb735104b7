package sqlite

import (
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	ckpt "github.com/ckptsidecar/ckptsidecar"
)

// stateOf is what a connection of the writer keeps from one transaction to the next.
func stateOf(t *testing.T, e *Engine) string {
	t.Helper()
	var state strings.Builder
	for _, pragma := range []string{"secure_delete", "foreign_keys", "defer_foreign_keys", "query_only", "synchronous", "recursive_triggers",
		"ignore_check_constraints", "writable_schema", "cell_size_check", "trusted_schema", "temp_store", "wal_autocheckpoint", "journal_mode"} {
		var value string
		if err := e.writer.conn.GetContext(t.Context(), &value, `PRAGMA `+pragma); err != nil {
			t.Fatal(pragma, err)
		}
		fmt.Fprintln(&state, pragma, value)
	}
	if err := errors.Join(e.writer.do(`BEGIN IMMEDIATE`), e.writer.do(`ROLLBACK`)); err != nil {
		t.Error("a transaction is still open:", err)
	}
	return state.String()
}

// TestStateAfterFailures: whatever becomes of an operation, the writer's connection is afterwards as before, and no other program is
// said to have written.
func TestStateAfterFailures(t *testing.T) {
	others := 0
	o := optionsAt(filepath.Join(t.TempDir(), "ckpt.db"), 1)
	o.MaxBytes = 4 << 20
	o.Hooks.Begin = func(_ *Tx, last LastWriter) error {
		if last == Another {
			others++
		}
		return nil
	}
	e := openWith(t, o)
	write := func(o *Op) error { return e.Write(o) }
	if err := write(&Op{Do: func(tx *Tx) error {
		return tx.Exec(`INSERT INTO t VALUES (1, zeroblob(700000))`)
	}}); err != nil {
		t.Fatal(err)
	}
	var set int
	operations := map[string]struct {
		do   func(tx *Tx) error
		want ckpt.Code
	}{
		"done":                  {func(tx *Tx) error { return tx.Exec(`UPDATE t SET y = zeroblob(600000) WHERE x = 1`) }, ""},
		"refused":               {func(*Tx) error { return ckpt.Errorf(ckpt.CodeConflict, "no") }, ckpt.CodeConflict},
		"refused after a write": {func(tx *Tx) error { return errors.Join(tx.Exec(`DELETE FROM t`), ckpt.Errorf(ckpt.CodeConflict, "no")) }, ckpt.CodeConflict},
		"a bug":                 {func(tx *Tx) error { return tx.Exec(`nonsense`) }, ckpt.CodeInternal},
		"a panic":               {func(*Tx) error { panic("x") }, ckpt.CodeInternal},
		"no room":               {func(tx *Tx) error { return tx.Exec(`INSERT INTO t VALUES (2, zeroblob(5000000))`) }, ckpt.CodeStorageFull},
	}
	before := stateOf(t, e)
	if !strings.Contains(before, "secure_delete 2") {
		t.Fatal(before)
	}
	for name, o := range operations {
		for _, claim := range []Claim{Adds, GoesOn, Frees} {
			for _, zero := range []bool{false, true} {
				err := write(&Op{Claim: claim, Zero: zero, Do: func(tx *Tx) error {
					if _, err := tx.Get(&set, `PRAGMA secure_delete`); err != nil {
						return err
					}
					if set != 1 && zero && name != "no room" || set != 2 && !zero {
						t.Errorf("%s: secure_delete is %d in the transaction, zero %t", name, set, zero)
					}
					return o.do(tx)
				}})
				if ckpt.CodeOf(err) != o.want {
					t.Errorf("%s: %v", name, err)
				}
				if after := stateOf(t, e); after != before {
					t.Errorf("%s, claim %d, zero %t: the connection was\n%sand is\n%s", name, claim, zero, before, after)
				}
				if err := write(&Op{Do: func(tx *Tx) error { return tx.Exec(`INSERT INTO t VALUES (3, 3)`) }}); err != nil {
					t.Errorf("%s: the next write: %v", name, err)
				}
			}
		}
	}
	if others != 0 {
		t.Errorf("another program is said to have written %d times", others)
	}
}
