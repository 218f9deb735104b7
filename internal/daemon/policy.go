package daemon

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	ckpt "github.com/ckptsidecar/ckptsidecar"
	"github.com/ckptsidecar/ckptsidecar/internal/jsontext"
	"github.com/ckptsidecar/ckptsidecar/internal/wellformed"
)

// PolicyText is the value of [policy] in the settings, as a JSON object. It applies to the
// agents of all owners.
type PolicyText string

// UnmarshalText reads a JSON object. If it is not a policy, p stays unchanged.
func (p *PolicyText) UnmarshalText(b []byte) error {
	set, err := wellformed.OwnPolicy(b)
	if err != nil {
		return fmt.Errorf("is wrong: %s", problemOf(err))
	}
	if *p = PolicyText(set); *p == "{}" {
		*p = ""
	}
	return nil
}

// String returns the JSON object.
func (p PolicyText) String() string {
	if p == "" {
		return "{}"
	}
	return string(p)
}

// setTable sets the value from a table of the settings file.
func (p *PolicyText) setTable(table map[string]any) error {
	var wrong tableMistakes
	for _, name := range sortedKeys(table) {
		wrong.add(name, map[string]any{name: table[name]}, checkPolicy)
	}
	if len(wrong) > 0 {
		return wrong
	}
	text, err := json.Marshal(table)
	if err != nil {
		return err
	}
	return p.UnmarshalText(text)
}

func checkPolicy(text []byte) error {
	read := ckpt.PolicyToRead()
	if err := jsontext.Decode(text, &read); err != nil { // it says where
		return err
	}
	_, err := wellformed.OwnPolicy(text)
	return err
}

// toml returns the policy as one line of the settings file.
func (p PolicyText) toml() string { return objectTOML(p.String()) }

// objectTOML returns a JSON object as one line of the settings file.
func objectTOML(text string) string {
	var table map[string]any
	if json.Unmarshal([]byte(text), &table) != nil || strings.Contains(text, ":null") {
		return strconv.Quote(text) // TOML has no null; the file can also have the JSON in quotes
	}
	return inlineTOML(table)
}

// inlineTOML returns a JSON value without a null as TOML.
func inlineTOML(v any) string {
	switch v := v.(type) {
	case map[string]any:
		parts := make([]string, 0, len(v))
		for _, name := range slices.Sorted(maps.Keys(v)) {
			parts = append(parts, strconv.Quote(name)+" = "+inlineTOML(v[name]))
		}
		if len(parts) == 0 {
			return "{}"
		}
		return "{ " + strings.Join(parts, ", ") + " }"
	case []any:
		parts := make([]string, len(v))
		for i := range v {
			parts[i] = inlineTOML(v[i])
		}
		return "[" + strings.Join(parts, ", ") + "]"
	case string:
		return strconv.Quote(v)
	}
	text, _ := json.Marshal(v)
	return string(text)
}
