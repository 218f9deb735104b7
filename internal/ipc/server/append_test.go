package server

import (
	"encoding/json"
	"reflect"
	"testing"
	"time"

	ckpt "github.com/ckptsidecar/ckptsidecar"
	"github.com/ckptsidecar/ckptsidecar/internal/expect"
	"github.com/ckptsidecar/ckptsidecar/internal/jsontext"
)

// fullCheckpoint sets every field, which it finds by reflection. A new field
// that the hand-written encoder does not write fails the test.
func fullCheckpoint(t *testing.T) ckpt.Checkpoint {
	t.Helper()
	ck := ckpt.Checkpoint{
		Kind: ckpt.KindRecovery, CreatedAt: ckpt.At(time.UnixMilli(1700000000123)),
		Labels:   ckpt.Labels{"z": "1", "a": "q\"\\\n\u2028é<&>", "m": ""},
		Metadata: json.RawMessage(`{"n":1.50,"deep":{"x":[1,2,null]}}`),
		Program:  &ckpt.Program{Source: "a\tb\x00ü", Executed: 2}, State: []byte("{}"), Trees: []string{"a", "b"},
	}
	v := reflect.ValueOf(&ck).Elem()
	for i := range v.NumField() {
		f := v.Field(i)
		if !f.IsZero() {
			continue
		}
		switch f.Kind() {
		case reflect.String:
			f.SetString("text \"of\" " + v.Type().Field(i).Name)
		case reflect.Int64:
			f.SetInt(int64(1000 + i))
		case reflect.Bool:
			f.SetBool(true)
		default:
			t.Fatalf("the field %s is new: write it in append.go", v.Type().Field(i).Name)
		}
	}
	return ck
}

func TestHandWrittenCheckpointIsWhatEncodingJSONWrites(t *testing.T) {
	for _, ck := range []ckpt.Checkpoint{{}, fullCheckpoint(t)} {
		want, err := json.Marshal(ck)
		expect.OK(t, err)
		sameJSON(t, string(appendCheckpoint(nil, &ck))+"}", string(want))

		for _, drift := range []*ckpt.DriftVerdict{
			nil, {Verdict: ckpt.SeverityNone, Findings: []ckpt.Finding{}}, {Verdict: ckpt.SeverityNone},
			{Verdict: ckpt.SeverityCritical, Advice: "say \"<é>\"", Clean: "c", Recovery: "r", Findings: []ckpt.Finding{}},
			{Verdict: ckpt.SeverityCritical, Advice: "stop", Clean: "c", Recovery: "r", Findings: []ckpt.Finding{{Rule: "repeat", Evidence: ckpt.JSON(`{"a":"<&>"}`)}}},
		} {
			saved := ckpt.Saved{Checkpoint: ck, Pruned: []string{"x", "y"}, Drift: drift}
			want, err = json.Marshal(saved)
			expect.OK(t, err)
			sameJSON(t, string(appendSaved(nil, &saved)), string(want))
		}

		for _, page := range []ckpt.CheckpointPage{{Checkpoints: []ckpt.Checkpoint{}}, {Checkpoints: []ckpt.Checkpoint{ck, {}}, Next: "cursor"}} {
			want, err = json.Marshal(page)
			expect.OK(t, err)
			sameJSON(t, string(appendPage(nil, &page)), string(want))
		}
	}
}

func TestHandWrittenCheckpointHasNoFieldTwice(t *testing.T) {
	ck := fullCheckpoint(t)
	expect.OK(t, jsontext.Check(appendSaved(nil, &ckpt.Saved{Checkpoint: ck})))
}
