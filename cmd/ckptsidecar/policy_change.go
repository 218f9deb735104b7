package main

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	ckpt "github.com/ckptsidecar/ckptsidecar"
	"github.com/ckptsidecar/ckptsidecar/internal/cli"
	"github.com/ckptsidecar/ckptsidecar/internal/daemon"
	"github.com/ckptsidecar/ckptsidecar/internal/jsontext"
	"github.com/ckptsidecar/ckptsidecar/internal/wellformed"
)

// changePolicy changes what somebody sets in a policy, in its JSON form. So the
// names and rules are those of the API, also for future settings.
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
			return nil, cli.Usagef("%q sets nothing: write key=value, or key= to set it no more", change)
		}
		path := policyPath(key)
		if !slices.Contains(known, path[0]) {
			return nil, cli.Usagef("a policy has no %q: it has %s", path[0], strings.Join(known, ", "))
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

// policyPath splits a key at its dots. The name of a rule may have dots, too.
func policyPath(key string) []string {
	parts := strings.Split(key, ".")
	if n := len(parts); parts[0] == "detectors" && n > 3 {
		return []string{parts[0], strings.Join(parts[1:n-1], "."), parts[n-1]}
	}
	return parts
}

// setPath sets a member of an object, or of an object inside it. nil removes it,
// so that it is not set.
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
	if err := setPath(inner, path[1:], value); err != nil {
		return err
	}
	text, err := json.Marshal(inner)
	fields[path[0]] = text
	return err
}

// policyValue is what a person typed, as JSON: a number or JSON as it is, a
// size as its bytes, a list with commas as a list, anything else a string. nil
// is nothing at all.
func policyValue(path []string, typed string) json.RawMessage {
	switch {
	case typed == "":
		return nil
	case path[0] == "ignore_tools" || path[0] == "shared_keys":
		if !strings.HasPrefix(strings.TrimSpace(typed), "[") {
			list, _ := json.Marshal(strings.Split(typed, ","))
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
