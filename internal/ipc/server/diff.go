package server

import (
	"bytes"
	"encoding/json"
	"slices"
	"strings"

	"github.com/wI2L/jsondiff"

	ckpt "github.com/ckptsidecar/ckptsidecar"
	"github.com/ckptsidecar/ckptsidecar/internal/jsontext"
)

// maxShownValue is the maximum number of bytes of a value in the summary.
const maxShownValue = 160

// maxLCS limits the table that matches elements of arrays. The size of the table is the
// product of the numbers of values. Larger arrays are compared index by index.
const maxLCS = 1 << 22

// maxPathBytes limits the paths of a patch: a long key above many values would be written
// once for each of them.
const maxPathBytes = 64 << 20

func diff(from, to []byte) (*ckpt.Diff, error) {
	a, b := places(from), places(to)
	if a+b > maxPlaces || pathBytes(from)+pathBytes(to) > maxPathBytes {
		return nil, ckpt.Errorf(ckpt.CodeTooLarge, "the states have too many values to be compared: get both and compare them")
	}
	options := []jsondiff.Option{jsondiff.UnmarshalFunc(unmarshalExact)}
	if a*b <= maxLCS {
		options = append(options, jsondiff.LCS())
	}
	patch, err := jsondiff.CompareJSON(from, to, options...)
	if err != nil {
		return nil, ckpt.Wrap(ckpt.CodeInternal, err, "the states could not be compared")
	}
	if patch == nil {
		patch = jsondiff.Patch{}
	}
	text, err := json.Marshal(patch)
	if err != nil {
		return nil, ckpt.Wrap(ckpt.CodeInternal, err, "the difference could not be written")
	}
	return &ckpt.Diff{Patch: text, Summary: summarize(from, to, patch)}, nil
}

// unmarshalExact keeps numbers in the form that the agent gave them.
func unmarshalExact(data []byte, v any) error {
	d := json.NewDecoder(bytes.NewReader(data))
	d.UseNumber()
	return d.Decode(v)
}

func summarize(from, to []byte, patch jsondiff.Patch) ckpt.DiffSummary {
	s := ckpt.DiffSummary{Added: []ckpt.DiffField{}, Removed: []ckpt.DiffField{}, Changed: []ckpt.DiffField{}}
	if len(patch) == 0 {
		return s
	}
	before, ok1 := members(from)
	after, ok2 := members(to)
	if !ok1 || !ok2 {
		s.Changed = append(s.Changed, field("", bytes.TrimSpace(from), bytes.TrimSpace(to)))
		return s
	}
	values, touched := byName(after), touchedMembers(patch)
	for _, m := range before {
		value, stays := values[m.name]
		switch path := pointer(m.name); {
		case !stays:
			s.Removed = append(s.Removed, field(path, m.value, nil))
		case touched[path]:
			s.Changed = append(s.Changed, field(path, m.value, value))
		}
	}
	old := byName(before)
	for _, m := range after {
		if _, was := old[m.name]; !was {
			s.Added = append(s.Added, field(pointer(m.name), nil, m.value))
		}
	}
	return s
}

func byName(list []member) map[string][]byte {
	values := make(map[string][]byte, len(list))
	for _, m := range list {
		values[m.name] = m.value
	}
	return values
}

// touchedMembers returns the pointers to the top-level members in which the patch changes
// something.
func touchedMembers(patch jsondiff.Patch) map[string]bool {
	touched := make(map[string]bool)
	for _, op := range patch {
		first := op.Path
		if i := strings.IndexByte(strings.TrimPrefix(first, "/"), '/'); i >= 0 {
			first = first[:i+1]
		}
		touched[first] = true
	}
	return touched
}

func pointer(name string) string { return "/" + jsontext.EscapePointer(name) }

func field(path string, from, to []byte) ckpt.DiffField {
	f := ckpt.DiffField{Path: path, FromSize: int64(len(from)), ToSize: int64(len(to))}
	var cutFrom, cutTo bool
	f.From, cutFrom = cutValue(from)
	f.To, cutTo = cutValue(to)
	f.Cut = cutFrom || cutTo
	return f
}

func cutValue(value []byte) (json.RawMessage, bool) {
	if len(value) <= maxShownValue {
		return slices.Clone(value), false
	}
	text := strings.ToValidUTF8(string(value[:maxShownValue]), "") + "…"
	return appendString(nil, text), true
}
