package server

import (
	"bytes"
	"encoding/json"
	"maps"
	"slices"
	"strconv"

	ckpt "github.com/ckptsidecar/ckptsidecar"
	"github.com/ckptsidecar/ckptsidecar/internal/ipc"
)

// The reply to a save is written by hand: encoding/json would cost more than the rest of
// the request, and would re-encode metadata. A test compares the result with
// encoding/json, field by field.

// appendCheckpoint writes a checkpoint without its closing brace and without
// its state.
func appendCheckpoint(b []byte, c *ckpt.Checkpoint) []byte {
	b = appendText(b, `{"id":`, c.ID)
	b = appendText(b, `,"agent":`, c.Agent)
	b = appendText(b, `,"owner":`, c.Owner)
	b = appendText(b, `,"run":`, c.Run)
	b = appendNumber(b, `,"seq":`, c.Seq)
	b = appendText(b, `,"kind":`, string(c.Kind))
	b = appendRef(b, `,"parent":`, c.Parent)
	b = appendTime(b, `,"created_at":`, c.CreatedAt)
	b = appendNumber(b, `,"size":`, c.Size)
	b = appendNumber(b, `,"stored_size":`, c.StoredSize)
	b = appendText(b, `,"sha256":`, c.SHA256)
	b = appendText(b, `,"content_type":`, c.ContentType)
	b = appendLabels(b, `,"labels":`, c.Labels)
	b = appendRaw(b, `,"metadata":`, c.Metadata)
	if c.Program != nil {
		b = appendText(b, `,"program":{"source":`, c.Program.Source)
		b = append(appendNumber(b, `,"executed":`, c.Program.Executed), '}')
	}
	b = appendRef(b, `,"step":`, c.Step)
	b = appendRef(b, `,"operation":`, c.Operation)
	b = strconv.AppendBool(append(b, `,"pinned":`...), c.Pinned)
	b = strconv.AppendBool(append(b, `,"suspect":`...), c.Suspect)
	if len(c.Trees) == 0 {
		return b
	}
	b = append(b, `,"trees":[`...)
	for i, id := range c.Trees {
		if i > 0 {
			b = append(b, ',')
		}
		b = appendString(b, id)
	}
	return append(b, ']')
}

// appendSaved writes the answer to a save.
func appendSaved(b []byte, s *ckpt.Saved) []byte {
	b = append(appendCheckpoint(b, &s.Checkpoint), `,"pruned":[`...)
	for i, id := range s.Pruned {
		if i > 0 {
			b = append(b, ',')
		}
		b = appendString(b, id)
	}
	b = appendVerdict(append(b, `],"drift":`...), s.Drift)
	if s.Durability != "" {
		b = appendText(b, `,"durability":`, string(s.Durability))
	}
	return append(b, "}\n"...)
}

// appendVerdict writes the drift verdict. A verdict with new findings is rare, so
// encoding/json is fast enough for it.
func appendVerdict(b []byte, v *ckpt.DriftVerdict) []byte {
	if v == nil {
		return append(b, "null"...)
	}
	if len(v.Findings) > 0 || v.Findings == nil || len(v.Secrets) > 0 {
		var text bytes.Buffer
		if err := ipc.EncodeJSON(&text, v); err != nil {
			return append(b, "null"...) // evidence is checked when it is stored
		}
		return append(b, bytes.TrimSpace(text.Bytes())...)
	}
	b = appendText(b, `{"verdict":`, string(v.Verdict))
	b = appendRef(b, `,"advice":`, v.Advice)
	b = appendRef(b, `,"findings":[],"clean":`, v.Clean)
	return append(appendRef(b, `,"recovery":`, v.Recovery), '}')
}

// appendPage writes one page of a list.
func appendPage(b []byte, p *ckpt.CheckpointPage) []byte {
	b = append(b, `{"checkpoints":[`...)
	for i := range p.Checkpoints {
		if i > 0 {
			b = append(b, ',')
		}
		b = append(appendCheckpoint(b, &p.Checkpoints[i]), '}')
	}
	return append(appendRef(b, `],"next":`, p.Next), "}\n"...)
}

func appendText(b []byte, name, s string) []byte {
	return appendString(append(b, name...), s)
}

func appendNumber(b []byte, name string, n int64) []byte {
	return strconv.AppendInt(append(b, name...), n, 10)
}

func appendRef(b []byte, name string, r ckpt.Ref) []byte {
	if r == "" {
		return append(append(b, name...), "null"...)
	}
	return appendText(b, name, string(r))
}

func appendRaw(b []byte, name string, raw json.RawMessage) []byte {
	if len(raw) == 0 {
		return append(append(b, name...), "null"...)
	}
	return append(append(b, name...), raw...)
}

func appendTime(b []byte, name string, t ckpt.Time) []byte {
	b = append(b, name...)
	if t.IsZero() {
		return append(b, "null"...)
	}
	return append(t.UTC().AppendFormat(append(b, '"'), ckpt.TimeLayout), '"')
}

func appendLabels(b []byte, name string, labels ckpt.Labels) []byte {
	b = append(append(b, name...), '{')
	if len(labels) > 0 {
		sep := ""
		for _, key := range slices.Sorted(maps.Keys(labels)) {
			b = appendText(appendText(b, sep, key), ":", labels[key])
			sep = ","
		}
	}
	return append(b, '}')
}

// appendString writes a JSON string. Nearly all strings are plain ASCII.
func appendString(b []byte, s string) []byte {
	for i := range len(s) {
		if c := s[i]; c < ' ' || c > '~' || c == '"' || c == '\\' {
			return appendQuoted(b, s)
		}
	}
	return append(append(append(b, '"'), s...), '"')
}

func appendQuoted(b []byte, s string) []byte {
	quoted, err := json.Marshal(s)
	if err != nil { // marshaling a string cannot fail
		return append(b, `""`...)
	}
	return append(b, quoted...)
}
