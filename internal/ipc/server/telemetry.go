package server

import (
	"bytes"
	"encoding/json"
	"math"
	"slices"
	"strconv"
	"strings"

	ckpt "github.com/ckptsidecar/ckptsidecar"
	"github.com/ckptsidecar/ckptsidecar/internal/jsontext"
)

// stepFromTelemetry renames the members of a step that have an OpenTelemetry name
// (TelemetryNames). A member with the field's own name has priority. Other names that
// begin with gen_ai. are dropped. A step with error.type and no status has failed. A body
// without such names is returned unchanged.
func stepFromTelemetry(body []byte, finish bool) ([]byte, error) {
	if !bytes.Contains(body, []byte(`"gen_ai.`)) && !bytes.Contains(body, []byte(`"error.type"`)) {
		return body, nil
	}
	if err := jsontext.Check(body); err != nil {
		return nil, err
	}
	said := map[string][]byte{} // the values of the OpenTelemetry members
	var own []string            // the members that stay, as the body has them
	has := map[string]bool{}
	object := jsontext.Members(body, func(name string, value []byte) bool {
		if strings.HasPrefix(name, "gen_ai.") || name == "error.type" {
			said[name] = value
			return true
		}
		has[name] = true
		own = append(own, telemetryMember(name, value))
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
		value, err := readTelemetry(t, value)
		if err != nil {
			return nil, err
		}
		has[t.Field] = true
		own = append(own, telemetryMember(t.Field, value))
		if t.Field == "error" && !has["status"] {
			own = append(own, telemetryMember("status", []byte(`"failed"`)))
		}
	}
	return []byte("{" + strings.Join(own, ",") + "}"), nil
}

func telemetryMember(name string, value []byte) string {
	key, _ := json.Marshal(name) // marshaling a string cannot fail
	return string(key) + ":" + string(value)
}

// readTelemetry converts a value to the form of its field. OTLP's JSON has numbers as
// strings, and arguments as JSON inside a string.
func readTelemetry(t TelemetryName, value []byte) ([]byte, error) {
	text, quoted := unquoted(value)
	switch {
	case slices.Contains([]string{"args", "result"}, t.Field):
		if inner := strings.TrimSpace(text); quoted && strings.HasPrefix(inner, "{") && jsontext.Check([]byte(inner)) == nil {
			return []byte(inner), nil
		}
		return value, nil
	case slices.Contains([]string{"key", "name", "error", "turn"}, t.Field):
		if !quoted {
			return nil, ckpt.Errorf(ckpt.CodeInvalid, "%s is no string", t.Name)
		}
		return value, nil
	}
	n, err := strconv.ParseFloat(text, 64)
	if err != nil || math.IsNaN(n) || n < 0 || n > math.MaxInt32*1000 || t.Unit == "" && n != math.Trunc(n) {
		return nil, ckpt.Errorf(ckpt.CodeInvalid, "%s is no count: it stands for %s", t.Name, t.Field)
	}
	if t.Unit == "s" {
		n = math.Round(n * 1000)
	}
	return strconv.AppendInt(nil, int64(n), 10), nil
}

// unquoted returns the content of a JSON string, or any other value unchanged.
func unquoted(value []byte) (text string, quoted bool) {
	if json.Unmarshal(value, &text) == nil {
		return text, true
	}
	return string(value), false
}
