package foreign

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math"
	"strconv"
	"time"

	ckpt "github.com/ckptsidecar/ckptsidecar"
	"github.com/ckptsidecar/ckptsidecar/internal/jsontext"
)

// object is a JSON object whose members keep their order and their bytes. Its text must
// have passed jsontext.Check.
type object struct {
	keys   []string
	values map[string]json.RawMessage
}

// readObject reads a file whose whole content is one JSON object.
func readObject(data []byte) (object, error) {
	if len(data) > MaxState {
		return object{}, fmt.Errorf("it has %d bytes: at most %d are read", len(data), MaxState)
	}
	if err := jsontext.Check(data); err != nil {
		return object{}, err
	}
	o, ok := objectOf(data)
	if !ok {
		return object{}, fmt.Errorf("it is not a JSON object")
	}
	return o, nil
}

func objectOf(raw []byte) (object, bool) {
	if jsontext.TypeOf(raw) != "object" {
		return object{}, false
	}
	o := object{values: map[string]json.RawMessage{}}
	d := json.NewDecoder(bytes.NewReader(raw))
	if _, err := d.Token(); err != nil {
		return object{}, false
	}
	for d.More() {
		name, err := d.Token()
		text, isText := name.(string)
		var value json.RawMessage
		if err != nil || !isText || d.Decode(&value) != nil {
			return object{}, false
		}
		o.keys = append(o.keys, text)
		o.values[text] = value
	}
	return o, true
}

func listOf(raw []byte) (list []json.RawMessage, ok bool) {
	if jsontext.TypeOf(raw) != "array" {
		return nil, false
	}
	return list, json.Unmarshal(raw, &list) == nil
}

// has reports whether a member exists and is not null.
func (o object) has(name string) bool {
	kind := jsontext.TypeOf(o.values[name])
	return kind != "" && kind != "null"
}

// value returns the first of some members that exists and is not null, nil if there is
// none.
func (o object) value(names ...string) json.RawMessage {
	for _, name := range names {
		if o.has(name) {
			return o.values[name]
		}
	}
	return nil
}

// text returns the first of some members that is a nonempty string.
func (o object) text(names ...string) string {
	for _, name := range names {
		if s, ok := textOf(o.values[name]); ok && s != "" {
			return s
		}
	}
	return ""
}

func textOf(raw []byte) (s string, ok bool) {
	return s, jsontext.TypeOf(raw) == "string" && json.Unmarshal(raw, &s) == nil
}

func (o object) object(name string) object {
	inner, _ := objectOf(o.values[name])
	return inner
}

// number returns a member as a number; 0, false if it is not a number.
func (o object) number(name string) (float64, bool) {
	raw := o.values[name]
	if jsontext.TypeOf(raw) != "number" {
		return 0, false
	}
	f, err := strconv.ParseFloat(string(bytes.TrimSpace(raw)), 64)
	return f, err == nil
}

// small returns a value that is small enough for metadata, nil if it is null or large.
func (o object) small(name string) json.RawMessage {
	if v := o.value(name); len(v) <= maxOriginal {
		return v
	}
	return nil
}

// moment returns the first of some members that exists as a time, and its text as it
// was written.
func (o object) moment(names ...string) (at time.Time, text string, err error) {
	for _, name := range names {
		if !o.has(name) {
			continue
		}
		if at, ok := timeOf(o.values[name]); ok {
			return at, printable(string(bytes.Trim(bytes.TrimSpace(o.values[name]), `"`)), 256), nil
		}
		return time.Time{}, "", fmt.Errorf("at \"/%s\": it is not a time: give RFC 3339, or a number of seconds or milliseconds since 1970", name)
	}
	return time.Time{}, "", nil
}

// timeLayouts are RFC 3339, and what Python's isoformat and str write for a time
// without a zone. Such a time is read as UTC.
var timeLayouts = []string{time.RFC3339Nano, "2006-01-02T15:04:05.999999999", "2006-01-02 15:04:05.999999999Z07:00", "2006-01-02 15:04:05.999999999"}

func timeOf(raw []byte) (time.Time, bool) {
	s, isText := textOf(raw)
	if !isText {
		if jsontext.TypeOf(raw) != "number" {
			return time.Time{}, false
		}
		s = string(bytes.TrimSpace(raw))
	}
	for _, layout := range timeLayouts {
		if t, err := time.Parse(layout, s); err == nil {
			return ckpt.At(t).Time, true
		}
	}
	// Numbers are seconds until the year 5138, or milliseconds from 1973 on.
	f, err := strconv.ParseFloat(s, 64)
	switch {
	case err != nil, math.IsNaN(f), f < 0, f > 1e14:
		return time.Time{}, false
	case f < 1e11:
		f *= 1000
	}
	return time.UnixMilli(int64(math.Round(f))).UTC(), true
}
