package ckptsidecar

import (
	"bytes"
	"encoding/json"
	"math"
	"slices"
	"strconv"
	"strings"
)

// TelemetryName is a name of OpenTelemetry's conventions for generative AI and
// the field of a step that it stands for.
type TelemetryName struct {
	Name  string
	Field string
	Unit  string // of the value, where the field counts in another
	Begin bool   // only a step that begins, or is recorded whole, has the field
}

// TelemetryNames are the names that a step may use beside its own. Of two that
// stand for one field the first counts. All gen_ai names are still in
// development, so this table is the one place that knows them.
var TelemetryNames = []TelemetryName{
	{Name: "gen_ai.tool.call.id", Field: "key", Begin: true},
	{Name: "gen_ai.tool.name", Field: "name", Begin: true},
	{Name: "gen_ai.operation.name", Field: "name", Begin: true},
	{Name: "gen_ai.tool.call.arguments", Field: "args", Begin: true},
	{Name: "gen_ai.tool.call.result", Field: "result"},
	{Name: "error.type", Field: "error"},
	{Name: "gen_ai.response.id", Field: "turn"},
	{Name: "gen_ai.usage.input_tokens", Field: "input_tokens"},
	{Name: "gen_ai.usage.prompt_tokens", Field: "input_tokens"}, // as it was called before
	{Name: "gen_ai.usage.output_tokens", Field: "output_tokens"},
	{Name: "gen_ai.usage.completion_tokens", Field: "output_tokens"}, // likewise
	{Name: "gen_ai.client.operation.duration", Field: "duration_ms", Unit: "s"},
	{Name: "gen_ai.execute_tool.duration", Field: "duration_ms", Unit: "s"},
}

// StepFromTelemetry gives the names of TelemetryNames in the body of a step the
// names of its fields. What a body says under a field's own name counts more.
// Other names that begin with gen_ai. are passed over; a step with error.type
// and no status has failed. A body without any such name is answered as it is.
func StepFromTelemetry(body []byte, finish bool) ([]byte, error) {
	if !bytes.Contains(body, []byte(`"gen_ai.`)) && !bytes.Contains(body, []byte(`"error.type"`)) {
		return body, nil
	}
	if err := CheckJSON(body); err != nil {
		return nil, err
	}
	said := map[string][]byte{} // what the telemetry says
	var own []string            // the members that stay, as they stand in the body
	has := map[string]bool{}
	object := Members(body, func(name string, value []byte) bool {
		if strings.HasPrefix(name, "gen_ai.") || name == "error.type" {
			said[name] = value
			return true
		}
		has[name] = true
		own = append(own, member(name, value))
		return true
	})
	if !object {
		return body, nil
	}
	for _, t := range TelemetryNames {
		value := said[t.Name]
		if value == nil || string(value) == "null" || has[t.Field] || finish && t.Begin {
			continue
		}
		value, err := t.read(value)
		if err != nil {
			return nil, err
		}
		has[t.Field] = true
		own = append(own, member(t.Field, value))
		if t.Field == "error" && !has["status"] {
			own = append(own, member("status", []byte(`"failed"`)))
		}
	}
	return []byte("{" + strings.Join(own, ",") + "}"), nil
}

func member(name string, value []byte) string {
	key, _ := json.Marshal(name) // a string always can be
	return string(key) + ":" + string(value)
}

// read brings a value into the form of its field: numbers may have come as
// strings, as in OTLP's JSON, and arguments as JSON inside a string.
func (t TelemetryName) read(value []byte) ([]byte, error) {
	text, quoted := unquoted(value)
	switch {
	case slices.Contains([]string{"args", "result"}, t.Field):
		if inner := strings.TrimSpace(text); quoted && strings.HasPrefix(inner, "{") && CheckJSON([]byte(inner)) == nil {
			return []byte(inner), nil
		}
		return value, nil
	case slices.Contains([]string{"key", "name", "error", "turn"}, t.Field):
		if !quoted {
			return nil, Errorf(CodeInvalid, "%s is no string", t.Name)
		}
		return value, nil
	}
	n, err := strconv.ParseFloat(text, 64)
	if err != nil || math.IsNaN(n) || n < 0 || n > math.MaxInt32*1000 || t.Unit == "" && n != math.Trunc(n) {
		return nil, Errorf(CodeInvalid, "%s is no count: it stands for %s", t.Name, t.Field)
	}
	if t.Unit == "s" {
		n = math.Round(n * 1000)
	}
	return strconv.AppendInt(nil, int64(n), 10), nil
}

// unquoted is what a JSON string says, or any other value as it is written.
func unquoted(value []byte) (text string, quoted bool) {
	if json.Unmarshal(value, &text) == nil {
		return text, true
	}
	return string(value), false
}
