package db_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

	ckpt "github.com/ckptsidecar/ckptsidecar"
	"github.com/ckptsidecar/ckptsidecar/internal/db"
	"github.com/ckptsidecar/ckptsidecar/internal/db/audit"
	"github.com/ckptsidecar/ckptsidecar/internal/expect"
)

// flip inverts one bit at each place where a text occurs in a closed file. It
// fails the test if the text does not occur.
func flip(t testing.TB, path, text string) {
	t.Helper()
	b, err := os.ReadFile(path)
	must(t, err)
	at := bytes.Index(b, []byte(text))
	if at < 0 {
		t.Fatalf("%q is not in the file", text)
	}
	for ; at >= 0; at = bytes.Index(b, []byte(text)) {
		b[at+len(text)/2] ^= 4
	}
	write(t, path, b)
}

// damaged is a database with a damaged inline state, a damaged deflated state,
// a damaged plain segment, and an intact one of each.
func damaged(t *testing.T) (s *db.Store, path string, bad, good []*ckpt.Saved) {
	t.Helper()
	path = filepath.Join(t.TempDir(), "ckpt.db")
	s = openWith(t, options(path, newClock()))
	text := strings.Repeat("we went there and came back again; ", 400)
	for i := range 2 {
		both := []*ckpt.Saved{
			save(t, s, ann, "a", ckpt.KindRecovery, fmt.Sprintf(`{"inline":"number-%d-inline"}`, i)),
			save(t, s, ann, "a", ckpt.KindRecovery, fmt.Sprintf(`{"number":%d,"text":"%s"}`, i, text[i:])),
		}
		c, err := s.Save(t.Context(), ann, binary("a", ckpt.KindRecovery, append(noise(uint64(i), 6000), fmt.Sprintf("plain-%d-segment", i)...)))
		must(t, err)
		if i == 0 {
			bad = append(both, c)
		} else {
			good = append(both, c)
		}
	}
	must(t, s.EmptyWAL())
	must(t, s.Close())
	flip(t, path, "number-0-inline")
	flip(t, path, "plain-0-segment")
	forge(t, path, fmt.Sprintf(`UPDATE segments SET data = CAST(substr(data, 1, 40) || x'ffff' || substr(data, 43) AS BLOB)
		WHERE id = (SELECT json_extract(pieces, '$[0][0]') FROM checkpoints WHERE id = '%s')`, bad[1].ID))
	return openWith(t, options(path, newClock())), path, bad, good
}

// TestDamagedStatesAreNotServed: damaged states are refused by id, in every way
// to read a state, and the others are served.
func TestDamagedStatesAreNotServed(t *testing.T) {
	t.Parallel()
	s, path, bad, good := damaged(t)
	for _, c := range bad {
		got, err := s.Checkpoint(t.Context(), ann, c.ID, true)
		wantCode(t, err, ckpt.CodeCorrupt)
		if got != nil || !strings.Contains(err.Error(), c.ID) {
			t.Errorf("a damaged state came with %v, or without its id: %v", got, err)
		}
		_, _, err = s.Restore(t.Context(), ann, ckpt.RestoreRequest{Agent: "a", Checkpoint: c.ID})
		wantCode(t, err, ckpt.CodeCorrupt)
		if _, err := s.Checkpoint(t.Context(), ann, c.ID, false); err != nil {
			t.Errorf("what is known of a damaged checkpoint: %v", err)
		}
	}
	for _, c := range good {
		got, err := s.Checkpoint(t.Context(), ann, c.ID, true)
		must(t, err)
		if hashOf(string(got.State)) != c.SHA256 {
			t.Error("a sound state came back as something else")
		}
	}
	if got := sqlite3(t, path, `SELECT count(*) FROM audit_log WHERE action = 'restore' AND outcome = 'corrupt'`); got != "3" {
		t.Errorf("%s of 3 refused restores are recorded", got)
	}
	save(t, s, ann, "a", ckpt.KindRoutine, `"on we go"`)
}

// TestVerifyNamesDamagedStates: verify lists exactly the damaged states.
func TestVerifyNamesDamagedStates(t *testing.T) {
	t.Parallel()
	_, path, bad, _ := damaged(t)
	calls := 0
	report, err := audit.Verify(t.Context(), path, func(done, total int64) { calls++ })
	must(t, err)
	if len(report.Problems) != len(bad) || report.Checkpoints != 6 || calls == 0 {
		t.Errorf("%d states checked, %d calls, problems: %v", report.Checkpoints, calls, report.Problems)
	}
	for i, p := range report.Problems {
		if p.Rule != "damaged" || p.Subject != bad[i].ID {
			t.Errorf("problem %d is %s", i, p)
		}
	}
}

// TestDamagedAgentIsExported: an export contains the intact checkpoints, and
// names the damaged ones.
func TestDamagedAgentIsExported(t *testing.T) {
	t.Parallel()
	s, _, bad, good := damaged(t)
	var out bytes.Buffer
	must(t, s.Export(t.Context(), ann, "a", &out))
	for _, c := range bad {
		if inside(t, out.String(), `SELECT count(*) FROM checkpoints WHERE id = '`+c.ID+`'`) != "0" {
			t.Errorf("the export has the damaged checkpoint %s", c.ID)
		}
	}
	if said := inside(t, out.String(), `SELECT value FROM meta WHERE key = 'export'`); !strings.Contains(said, `"damaged":{"1":"checkpoint `) {
		t.Errorf("the export says %s", said)
	}
	other, _ := open(t)
	report, err := other.Import(t.Context(), bob, ckpt.ImportRequest{}, &out)
	must(t, err)
	if report.Imported != len(good) {
		t.Errorf("%d imported", report.Imported)
	}
}

// TestMissingPieces reads checkpoints whose pieces are missing, cut or
// unreadable.
func TestMissingPieces(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "ckpt.db")
	s := openWith(t, options(path, newClock()))
	var ids []string
	for i := range 5 {
		ids = append(ids, save(t, s, ann, "a", ckpt.KindRecovery, fmt.Sprintf(`[%d,"%s"]`, i, strings.Repeat("z", 9000))).ID)
	}
	const segmentOf = `(SELECT json_extract(pieces, '$[0][0]') FROM checkpoints WHERE seq = %d)`
	for i, statement := range []string{
		`DELETE FROM segments WHERE id = ` + fmt.Sprintf(segmentOf, 1), `UPDATE checkpoints SET pieces = 'x' WHERE seq = 2`, `UPDATE checkpoints SET pieces = '[[3,0,99999]]' WHERE seq = 3`,
		`UPDATE checkpoints SET pieces = '[[4,-5,7]]' WHERE seq = 4`, `UPDATE segments SET size = 5 WHERE id = ` + fmt.Sprintf(segmentOf, 5),
	} {
		forge(t, path, statement)
		_, err := s.Checkpoint(t.Context(), ann, ids[i], true)
		wantCode(t, err, ckpt.CodeCorrupt)
	}
	report, err := audit.Verify(t.Context(), path, nil)
	must(t, err)
	if len(report.Problems) < 5 {
		t.Errorf("verify found %v", report.Problems)
	}
}

// TestDamagedPages overwrites random pages. Verify reports it and ends. A store
// that opens such a file neither crashes nor serves a wrong state.
func TestDamagedPages(t *testing.T) {
	t.Parallel()
	expect.OneThread(t)
	_, path, _, _ := damaged(t)
	whole := filepath.Join(t.TempDir(), "whole.db")
	sqlite3(t, path, ".backup "+whole)
	b, err := os.ReadFile(whole)
	must(t, err)
	r := rand.New(rand.NewPCG(1, 2))
	for round := range 25 {
		bad := bytes.Clone(b)
		at := 4096 + r.IntN(len(b)-4096-500)
		for i := range 400 {
			bad[at+i] = byte(r.Uint32())
		}
		file := filepath.Join(t.TempDir(), "bad.db")
		write(t, file, bad)
		report, err := audit.Verify(t.Context(), file, nil)
		if err == nil && len(report.Problems) <= 3 && round == -1 {
			t.Error("the damage was not found")
		}
		var operator *db.OperatorError
		if err != nil && !errors.As(err, &operator) {
			t.Errorf("verify of damage at %d: %T %v", at, err, err)
		}
		s, err := db.Open(t.Context(), options(file, newClock()))
		if err != nil {
			continue
		}
		if page, err := s.Checkpoints(t.Context(), ann, ckpt.CheckpointFilter{Agent: "a"}); err == nil {
			for _, c := range page.Checkpoints {
				if got, err := s.Checkpoint(t.Context(), ann, c.ID, true); err == nil && hashOf(string(got.State)) != got.SHA256 {
					t.Errorf("damage at %d: a false state was served", at)
				}
			}
		}
		_ = s.Close()
	}
}

// TestVerifyRefuses: verify says why a file cannot be verified at all.
func TestVerifyRefuses(t *testing.T) {
	t.Parallel()
	foreign := filepath.Join(t.TempDir(), "f.db")
	sql(t, foreign, "CREATE TABLE t (x)")
	newer := closedDatabase(t)
	sql(t, newer, "PRAGMA user_version = 99")
	for _, path := range []string{filepath.Join(t.TempDir(), "none.db"), foreign, newer} {
		_, err := audit.Verify(t.Context(), path, nil)
		var operator *db.OperatorError
		if !errors.As(err, &operator) {
			t.Errorf("%s: %T %v", path, err, err)
		}
	}
	text := filepath.Join(t.TempDir(), "t.db")
	write(t, text, []byte(strings.Repeat("no database", 2000)))
	if report, err := audit.Verify(t.Context(), text, nil); err != nil || len(report.Problems) == 0 {
		t.Errorf("a text file: %v %v", report, err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := audit.Verify(ctx, closedDatabase(t), nil); !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled: %v", err)
	}
}

// TestDamagedDetails: the data next to a state can be damaged too. Such a
// checkpoint is refused, and an export names it.
func TestDamagedDetails(t *testing.T) {
	t.Parallel()
	s, _ := open(t)
	r := request("a", ckpt.KindRecovery, `1`)
	r.Program = &ckpt.Program{Source: "x()"}
	bad, err := s.Save(t.Context(), ann, r)
	must(t, err)
	good := save(t, s, ann, "a", ckpt.KindRecovery, `2`)
	must(t, s.ExecForTest(`UPDATE checkpoints SET program = '{"source' WHERE id = ?`, bad.ID))
	_, err = s.Checkpoint(t.Context(), ann, bad.ID, false)
	wantCode(t, err, ckpt.CodeCorrupt)
	if _, err := s.Checkpoint(t.Context(), ann, good.ID, true); err != nil {
		t.Error(err)
	}
	var out bytes.Buffer
	must(t, s.Export(t.Context(), ann, "a", &out))
	if got := inside(t, out.String(), `SELECT id FROM checkpoints`); got != good.ID {
		t.Errorf("the export has %s", got)
	}
}
