package db_test

import (
	"bytes"
	"testing"

	ckpt "github.com/ckptsidecar/ckptsidecar"
	"github.com/ckptsidecar/ckptsidecar/internal/db/audit"
)

// TestDamagedRowHidesNoOther: damage in any column is found and not served.
// Lists, exports, saves and retention of the other rows still work.
func TestDamagedRowHidesNoOther(t *testing.T) {
	t.Parallel()
	for _, column := range []string{"labels", "metadata", "created_at", "program"} {
		t.Run(column, func(t *testing.T) {
			s, _ := open(t)
			good := save(t, s, ann, "a", ckpt.KindRoutine, `1`)
			bad := save(t, s, ann, "a", ckpt.KindRoutine, `2`)
			if err := s.ExecForTest(`UPDATE checkpoints SET `+column+` = '{torn' WHERE id = ?`, bad.ID); err != nil {
				t.Fatal(err)
			}
			_, err := s.Checkpoint(t.Context(), ann, bad.ID, true)
			wantCode(t, err, ckpt.CodeCorrupt)
			if got := seqs(t, s, ann, "a"); len(got) != 1 {
				t.Errorf("listed: %v", got)
			}
			if _, err := s.Checkpoint(t.Context(), ann, good.ID, true); err != nil {
				t.Error(err)
			}
			var out bytes.Buffer
			if err := s.Export(t.Context(), ann, "a", &out); err != nil || inside(t, out.String(), `SELECT id FROM checkpoints`) != good.ID {
				t.Errorf("exported %d bytes, %v", out.Len(), err)
			}
			report, err := audit.Verify(t.Context(), pathOf(s), nil)
			if err != nil || len(report.Problems) == 0 || report.Problems[0].Subject != bad.ID {
				t.Errorf("verify: %+v, %v", report, err)
			}
			for range 3 {
				save(t, s, ann, "a", ckpt.KindRoutine, `3`)
			}
		})
	}
}
