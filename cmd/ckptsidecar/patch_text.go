package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/ckptsidecar/ckptsidecar/internal/jsontext"
)

// change is one difference for people. A nil value does not exist.
type change struct {
	path     string
	old, new json.RawMessage
}

// explainPatch finds the old values, which a JSON Patch does not contain: it applies the patch to
// the first state, and reads the old value before each operation.
func explainPatch(from []byte, patch json.RawMessage) ([]change, error) {
	var ops []struct {
		Op    string          `json:"op"`
		Path  string          `json:"path"`
		Value json.RawMessage `json:"value"`
	}
	if err := json.Unmarshal(patch, &ops); err != nil {
		return nil, fmt.Errorf("the daemon's answer is not a JSON Patch: %w", err)
	}
	doc, err := exact(from)
	if err != nil {
		return nil, err
	}
	var changes []change
	for _, op := range ops {
		c := change{path: op.Path}
		if op.Op == "add" || op.Op == "replace" {
			c.new = op.Value
		}
		var old any
		var there bool
		if doc, old, there, err = play(doc, tokens(op.Path), op.Op, op.Value); err != nil {
			return nil, fmt.Errorf("the daemon's patch does not fit the state at %s: %w", op.Path, err)
		}
		if there {
			if c.old, err = json.Marshal(old); err != nil {
				return nil, err
			}
		}
		changes = append(changes, c)
	}
	return changes, nil
}

// exact decodes JSON and keeps numbers as they are written.
func exact(text []byte) (v any, err error) {
	dec := json.NewDecoder(bytes.NewReader(text))
	dec.UseNumber()
	err = dec.Decode(&v)
	return v, err
}

// tokens splits a JSON Pointer into its parts.
func tokens(path string) []string {
	if path == "" {
		return nil
	}
	parts := strings.Split(path[1:], "/")
	for i := range parts {
		parts[i] = jsontext.UnescapePointer(parts[i])
	}
	return parts
}

// play applies one operation below v. It returns the new v, and the old value at the path.
func play(v any, path []string, op string, value json.RawMessage) (now, old any, there bool, err error) {
	if len(path) == 0 {
		now, err = exact(value)
		return now, v, true, err
	}
	switch v := v.(type) {
	case map[string]any:
		return playObject(v, path, op, value)
	case []any:
		return playArray(v, path, op, value)
	}
	return nil, nil, false, fmt.Errorf("a %T has no members", v)
}

func playObject(v map[string]any, path []string, op string, value json.RawMessage) (_, old any, there bool, err error) {
	key := path[0]
	old, there = v[key]
	switch {
	case len(path) > 1:
		v[key], old, there, err = play(old, path[1:], op, value)
	case op == "remove":
		delete(v, key)
	default:
		v[key], err = exact(value)
	}
	return v, old, there, err
}

func playArray(v []any, path []string, op string, value json.RawMessage) (_, old any, there bool, err error) {
	at := len(v)
	if path[0] != "-" {
		if at, err = strconv.Atoi(path[0]); err != nil || at < 0 || at > len(v) {
			return nil, nil, false, fmt.Errorf("%q is outside a list of %d", path[0], len(v))
		}
	}
	if len(path) == 1 && op == "add" {
		element, err := exact(value)
		return slices.Insert(v, at, element), nil, false, err
	}
	if at == len(v) {
		return nil, nil, false, fmt.Errorf("%q is outside a list of %d", path[0], len(v))
	}
	if len(path) == 1 && op == "remove" {
		old = v[at]
		return slices.Delete(v, at, at+1), old, true, nil
	}
	v[at], old, there, err = play(v[at], path[1:], op, value)
	return v, old, there, err
}
