package daemon

import (
	"encoding/json"
	"fmt"
)

// NamesText is the value of a setting that maps names to texts, as a JSON object.
type NamesText string

// UnmarshalText reads a JSON object. If the text is not a JSON object, n stays unchanged.
func (n *NamesText) UnmarshalText(b []byte) error {
	var names map[string]string
	if len(b) > 0 {
		if err := json.Unmarshal(b, &names); err != nil {
			return fmt.Errorf(`is no object of texts, such as {"uid:1000":"acme/build"}`)
		}
	}
	if len(names) == 0 {
		*n = ""
		return nil
	}
	text, err := json.Marshal(names) // sorted by name
	*n = NamesText(text)
	return err
}

// String returns the JSON object.
func (n NamesText) String() string {
	if n == "" {
		return "{}"
	}
	return string(n)
}

// setTable sets the value from a table of the settings file.
func (n *NamesText) setTable(table map[string]any) error {
	text, err := json.Marshal(table)
	if err != nil {
		return err
	}
	return n.UnmarshalText(text)
}

// toml returns the object as one line of the settings file.
func (n NamesText) toml() string { return objectTOML(n.String()) }

// names returns the entries, nil for none.
func (n NamesText) names() (m map[string]string) {
	_ = json.Unmarshal([]byte(n), &m)
	return m
}
