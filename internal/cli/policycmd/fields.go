package policycmd

import (
	"encoding/json"
	"fmt"
	"strings"
)

// field is a member of a shape of the API.
type field struct {
	name  string
	value json.RawMessage
}

// membersOf returns the members of a shape of the API, by their JSON names in its order.
func membersOf(v any) (list []field, err error) {
	text, err := json.Marshal(v)
	if err != nil {
		return nil, err
	}
	dec := json.NewDecoder(strings.NewReader(string(text)))
	if _, err := dec.Token(); err != nil {
		return nil, err
	}
	for dec.More() {
		name, err := dec.Token()
		if err != nil {
			return nil, err
		}
		var value json.RawMessage
		if err := dec.Decode(&value); err != nil {
			return nil, err
		}
		list = append(list, field{fmt.Sprint(name), value})
	}
	return list, nil
}
