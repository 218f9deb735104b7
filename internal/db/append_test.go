package db

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	ckpt "github.com/ckptsidecar/ckptsidecar"
	"github.com/ckptsidecar/ckptsidecar/internal/db/audit"
	"github.com/ckptsidecar/ckptsidecar/internal/db/ledger"
	"github.com/ckptsidecar/ckptsidecar/internal/db/saves"
)

var strange = []string{"", "plain", `quo"te\`, "a<b>&c", "\n\t\x00\x1f", "ü ☃ 😀", "\u2028\u2029", "bad \xff utf-8", "\x7f", strings.Repeat("x", 300)}

func TestAuditRowsAreWrittenAsEncodingJSONDoes(t *testing.T) {
	t.Parallel()
	for i, s := range strange {
		r := ckpt.AuditRow{N: int64(i), At: ckpt.At(time.Unix(int64(i)*1e9, 5e6)), Who: s, PID: i, Action: s, Owner: ckpt.Ref(s), Agent: "a", Run: ckpt.Ref(s),
			Subject: ckpt.Ref(s), Outcome: s, Reason: ckpt.Ref(s), Retries: i, Detail: ckpt.JSON(`{"a":"<b>"}`), Prev: s}
		if i == 0 {
			r.At = ckpt.Time{}
		}
		want, err := json.Marshal([]any{r.N, r.At, r.Who, r.PID, r.Action, r.Owner, r.Agent, r.Run, r.Subject, r.Outcome, r.Reason, r.Retries, string(r.Detail), r.Prev})
		if got := audit.AppendOldRow(nil, &r); err != nil || string(got) != string(want) {
			t.Errorf("%q: %s, want %s, %v", s, got, want, err)
		}
	}
}

func TestRepliesAreWrittenAsEncodingJSONDoes(t *testing.T) {
	t.Parallel()
	for i, s := range strange {
		r := ledger.SavedReply{ID: s, Seq: int64(i), Parent: ckpt.Ref(s), CreatedAt: ckpt.At(time.Unix(int64(i), 0)), StoredSize: int64(i), Suspect: i%2 == 1, Pruned: strange[:i]}
		want, err := json.Marshal(r)
		if got := saves.AppendReply(nil, &r); err != nil || string(got) != string(want) {
			t.Errorf("%q: %s, want %s, %v", s, got, want, err)
		}
	}
}
