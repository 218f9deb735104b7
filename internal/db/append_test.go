package db

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	ckpt "github.com/ckptsidecar/ckptsidecar"
	"github.com/ckptsidecar/ckptsidecar/internal/db/ledger"
	"github.com/ckptsidecar/ckptsidecar/internal/db/saves"
)

var strange = []string{"", "plain", `quo"te\`, "a<b>&c", "\n\t\x00\x1f", "ü ☃ 😀", "\u2028\u2029", "bad \xff utf-8", "\x7f", strings.Repeat("x", 300)}

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
