package policycmd

import (
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"

	ckpt "github.com/ckptsidecar/ckptsidecar"
	"github.com/ckptsidecar/ckptsidecar/internal/cli"
	"github.com/ckptsidecar/ckptsidecar/internal/daemon"
	"github.com/ckptsidecar/ckptsidecar/internal/jsontext"
	"github.com/ckptsidecar/ckptsidecar/internal/wellformed"
)

// changePolicy changes the values in a policy, in its JSON form. Therefore the names and rules are those of the API,
// also for future settings.
func changePolicy(own ckpt.JSON, changes []string) (ckpt.JSON, error) {
	fields := map[string]json.RawMessage{}
	if err := json.Unmarshal(own, &fields); err != nil {
		return nil, err
	}
	members, err := membersOf(ckpt.DefaultPolicy())
	if err != nil {
		return nil, err
	}
	var known []string
	for _, member := range members {
		known = append(known, member.name)
	}
	slices.Sort(known)
	for _, change := range changes {
		key, value, found := strings.Cut(change, "=")
		if !found {
			return nil, cli.Usagef("%q sets nothing: write key=value to set a key, or key= to clear it", change)
		}
		path := policyPath(key)
		if !slices.Contains(known, path[0]) {
			return nil, cli.Usagef("a policy has no key %q; its keys are %s", path[0], strings.Join(known, ", "))
		}
		if err := checkValue(key, path, value); err != nil {
			return nil, err
		}
		if err := setPath(fields, path, policyValue(path, value)); err != nil {
			return nil, cli.Usagef("%s: %v", key, err)
		}
	}
	text, err := json.Marshal(fields)
	if err != nil {
		return nil, err
	}
	_, err = wellformed.ParsePolicy(text)
	return text, cli.Checked(err)
}

// policyPath splits a key at its dots. The name of a rule can contain dots too.
func policyPath(key string) []string {
	parts := strings.Split(key, ".")
	if n := len(parts); parts[0] == "detectors" && n > 3 {
		return []string{parts[0], strings.Join(parts[1:n-1], "."), parts[n-1]}
	}
	return parts
}

// setPath sets a member of an object, or of an object inside it. nil removes the member.
func setPath(fields map[string]json.RawMessage, path []string, value json.RawMessage) error {
	if len(path) == 1 {
		if fields[path[0]] = value; value == nil {
			delete(fields, path[0])
		}
		return nil
	}
	inner := map[string]json.RawMessage{}
	if text := fields[path[0]]; text != nil && json.Unmarshal(text, &inner) != nil {
		return fmt.Errorf("%s has no parts", path[0])
	}
	if inner == nil { // the text is null
		inner = map[string]json.RawMessage{}
	}
	if err := setPath(inner, path[1:], value); err != nil {
		return err
	}
	text, err := json.Marshal(inner)
	fields[path[0]] = text
	return err
}

// policyValue returns a typed value as JSON: a number or JSON unchanged, a size as its bytes, a list with commas as a
// list, anything else as a string. It returns nil for an empty value.
func policyValue(path []string, typed string) json.RawMessage {
	switch {
	case typed == "":
		return nil
	case path[0] == "ignore_tools" || path[0] == "shared_keys":
		if !strings.HasPrefix(strings.TrimSpace(typed), "[") {
			names := strings.Split(typed, ",")
			for i := range names {
				names[i] = strings.TrimSpace(names[i])
			}
			list, _ := json.Marshal(names)
			return list
		}
	}
	if jsontext.Check([]byte(typed)) == nil {
		return json.RawMessage(typed)
	}
	if size, err := daemon.ParseSize(typed); err == nil && strings.HasSuffix(typed, "B") {
		return json.RawMessage(fmt.Sprint(int64(size)))
	}
	quoted, _ := json.Marshal(typed)
	return quoted
}

// checkValue checks the form of one value by itself, so that the message is about the typed text and not about the
// resulting JSON.
func checkValue(key string, path []string, typed string) error {
	value := policyValue(path, typed)
	if value == nil {
		return nil
	}
	for i := len(path) - 1; i >= 0; i-- {
		value = json.RawMessage(fmt.Sprintf("{%s:%s}", strconv.Quote(path[i]), value))
	}
	var wrong *jsontext.Error
	if err := jsontext.Decode(value, new(ckpt.Policy)); err == nil || !errors.As(err, &wrong) {
		return nil // the check of the whole policy reports other mistakes
	}
	if takes := policyTakes(path); takes != "" {
		return cli.Usagef("%s takes %s; got %s", key, takes, typed)
	}
	return cli.Usagef("%s=%s is wrong: %s", key, typed, wrong.Reason)
}

// countsOf are the numeric settings of a policy, and what they count.
var countsOf = map[string]string{
	"routine_keep":        "a whole number of checkpoints, 0 for all",
	"max_events":          "a whole number of events",
	"max_bytes":           "a size such as 100MB, 0 for no limit",
	"no_progress_steps":   "a whole number of steps, 0 for no such rule",
	"false_alarms_laxest": "a number",
}

// policyTakes returns what a setting accepts, "" if its type does not show it.
func policyTakes(path []string) string {
	if text := countsOf[path[0]]; text != "" {
		return text
	}
	t := reflect.TypeFor[ckpt.Policy]()
	for _, name := range path {
		switch t.Kind() {
		case reflect.Map:
			t = t.Elem()
		case reflect.Struct:
			field, found := fieldOf(t, name)
			if !found {
				return ""
			}
			t = field
		default:
			return ""
		}
	}
	switch t {
	case reflect.TypeFor[ckpt.Duration]():
		return "a time such as 30s, 15m, 12h or 7d"
	case reflect.TypeFor[ckpt.Percent]():
		return "a share such as 1%"
	}
	switch t.Kind() {
	case reflect.Bool:
		return "true or false"
	case reflect.Int, reflect.Int64:
		return "a whole number"
	case reflect.Float64:
		return "a number"
	case reflect.String:
		return "a word"
	}
	return ""
}

// fieldOf returns the type of the struct member with this JSON name.
func fieldOf(t reflect.Type, name string) (reflect.Type, bool) {
	for i := range t.NumField() {
		if tag, _, _ := strings.Cut(t.Field(i).Tag.Get("json"), ","); tag == name {
			return t.Field(i).Type, true
		}
	}
	return nil, false
}
