package ckptsidecar

import (
	"database/sql/driver"
	"encoding/json"
	"fmt"
)

// Ref is a name or id that can be absent. The empty Ref is null in JSON and NULL in the database,
// so that "none" looks the same everywhere.
type Ref string

// MarshalJSON writes the name, or null.
func (r Ref) MarshalJSON() ([]byte, error) {
	if r == "" {
		return []byte("null"), nil
	}
	return json.Marshal(string(r))
}

// Value stores the name, or NULL.
func (r Ref) Value() (driver.Value, error) {
	if r == "" {
		return nil, nil
	}
	return string(r), nil
}

// Scan reads a stored name.
func (r *Ref) Scan(v any) error {
	switch v := v.(type) {
	case nil:
		*r = ""
		return nil
	case string:
		*r = Ref(v)
		return nil
	}
	return fmt.Errorf("a stored reference is %T, not text", v)
}

// Labels are an agent's own short names for finding a checkpoint again.
type Labels map[string]string

// MarshalJSON writes an object, even for nil.
func (l Labels) MarshalJSON() ([]byte, error) {
	if len(l) == 0 {
		return []byte("{}"), nil
	}
	return json.Marshal(map[string]string(l))
}

// Value stores the JSON object.
func (l Labels) Value() (driver.Value, error) {
	b, err := l.MarshalJSON()
	return string(b), err
}

// Scan reads a stored JSON object.
func (l *Labels) Scan(v any) error {
	s, ok := v.(string)
	if !ok {
		return fmt.Errorf("stored labels are %T, not text", v)
	}
	*l = nil
	if s == "{}" {
		return nil
	}
	return json.Unmarshal([]byte(s), (*map[string]string)(l))
}

// JSON is one JSON value that the database stores as text.
type JSON []byte

// MarshalJSON writes the value, null for nil.
func (j JSON) MarshalJSON() ([]byte, error) {
	if j == nil {
		return []byte("null"), nil
	}
	return j, nil
}

// UnmarshalJSON stores a copy of the JSON text.
func (j *JSON) UnmarshalJSON(b []byte) error {
	*j = append((*j)[:0], b...)
	return nil
}

// Value stores the text, NULL for nil.
func (j JSON) Value() (driver.Value, error) {
	if j == nil {
		return nil, nil
	}
	return string(j), nil
}

// Scan reads stored text.
func (j *JSON) Scan(v any) error {
	switch v := v.(type) {
	case nil:
		*j = nil
		return nil
	case string:
		*j = JSON(v)
		return nil
	}
	return fmt.Errorf("stored JSON is %T, not text", v)
}
