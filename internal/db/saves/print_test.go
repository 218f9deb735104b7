package saves

import (
	"encoding/json"
	"testing"

	ckpt "github.com/ckptsidecar/ckptsidecar"
	"github.com/ckptsidecar/ckptsidecar/internal/db/ledger"
)

// TestPrintsStayAsTheyWere: a save is replayed from the print that an older
// daemon has stored, which was made by encoding/json.
func TestPrintsStayAsTheyWere(t *testing.T) {
	for _, r := range []ckpt.SaveRequest{
		{Kind: ckpt.KindRoutine, ContentType: ckpt.ContentTypeJSON},
		{Run: "r", Kind: ckpt.KindRecovery, Parent: "p", Step: "s\u2028<é>&", Labels: ckpt.Labels{"b": "\"<", "a": "x"},
			Metadata: json.RawMessage(`{"a": "<\u00e9>"}`), Program: &ckpt.Program{Source: "x = 1\n", Executed: 3}, ContentType: "text/plain; a=\"b\"", ForkFrom: "f"},
	} {
		v := Save{}
		v.Request = &r
		v.State.Sent = "0123abcd"
		if err := v.EncodeProgram(); err != nil {
			t.Fatal(err)
		}
		list := []any{"save", ledger.RunName(r.Run), r.Kind, r.Parent, r.Step, r.Labels, string(r.Metadata), v.program, r.ContentType, v.State.Sent}
		if r.ForkFrom != "" {
			list = append(list, r.ForkFrom)
		}
		want, err := json.Marshal(list)
		if got, e := v.appendPrint(nil); err != nil || e != nil || string(got) != string(want) {
			t.Errorf("%s, want %s, %v, %v", got, want, e, err)
		}
	}
}
