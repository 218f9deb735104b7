package client

import (
	"encoding/json"
	"reflect"
	"strings"
	"testing"

	ckpt "github.com/ckptsidecar/ckptsidecar"
)

const plainAnswer = `{"id":"01","agent":"a","owner":"uid:0","run":"main","seq":7,"kind":"routine","parent":null,"created_at":"2026-03-01T12:00:00.123Z",` +
	`"size":0,"stored_size":10,"sha256":"ab","content_type":"application/json","labels":{},"metadata":{},"step":null,"operation":"o","pinned":false,` +
	`"suspect":false,"pruned":["x","y"],"drift":{"verdict":"warn","advice":"stop","findings":[],"clean":null,"recovery":null}}` + "\n"

// TestAnswersAreReadAsEncodingJSONDoes: the fast decoder gives the same results
// as encoding/json. The test also lists which answers it can decode.
func TestAnswersAreReadAsEncodingJSONDoes(t *testing.T) {
	with := func(old, new string) string { return strings.Replace(plainAnswer, old, new, 1) }
	fast := []string{plainAnswer, with(`"parent":null`, `"parent":"p"`), with(`["x","y"]`, `[]`), with(`["x","y"]`, `["x"]`), with("}}\n", `},"durability":"local"}`+"\n")}
	slow := []string{
		with(`"labels":{}`, `"labels":{"a":"b"}`), with(`"a"`, `"\u00e9"`), with(`"a"`, `"é"`), with(`"suspect":false`, `"suspect":true`), with(`"seq":7`, `"seq":-7`),
		with(`"findings":[]`, `"findings":null`), with(`"drift":{"verdict":"warn","advice":"stop","findings":[],"clean":null,"recovery":null}`, `"drift":null`),
		with(`{"id"`, `{"new":1,"id"`), with(`,"pruned"`, `,"new":{},"pruned"`), with(`,"seq"`, ` ,"seq"`), with("\n", ""), with("\n", "\n\n"), "{}",
	}
	wrong := []string{"", "{", plainAnswer[:40], with(`"seq":7`, `"seq":07`), with(`"seq":7`, `"seq":`), with(`["x","y"]`, `["x","y",]`), with(`["x","y"]`, `["x""y"]`),
		with(`"seq":7`, `"seq":99999999999999999999`), with(`2026-03`, `2026-33`), plainAnswer + "x"}
	for i, list := range [][]string{fast, slow, wrong} {
		for _, body := range list {
			if is := readPlainSaved([]byte(body)) != nil; is != (i == 0) {
				t.Errorf("read the fast way: %v: %s", is, body)
			}
			var want ckpt.Saved
			wantErr := json.Unmarshal([]byte(body), &want)
			got, err := readSaved([]byte(body))
			if (err != nil) != (i == 2) || (wantErr != nil) != (i == 2) {
				t.Errorf("%v, want %v: %s", err, wantErr, body)
			} else if err == nil && !reflect.DeepEqual(*got, want) {
				t.Errorf("read as %+v, want %+v", *got, want)
			}
		}
	}
}

func BenchmarkReadSaved(b *testing.B) {
	for b.Loop() {
		if _, err := readSaved([]byte(plainAnswer)); err != nil {
			b.Fatal(err)
		}
	}
}
