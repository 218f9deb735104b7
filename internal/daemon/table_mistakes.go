package daemon

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	ckpt "github.com/ckptsidecar/ckptsidecar"
	"github.com/ckptsidecar/ckptsidecar/internal/jsontext"
)

// tableMistakes are the mistakes in one table of the settings file, whose values are JSON elsewhere.
type tableMistakes []tableMistake

type tableMistake struct {
	key  string // where it is, below the table
	full bool   // key names exactly what is wrong
	why  string
}

func (m tableMistakes) Error() string {
	texts := make([]string, len(m))
	for i := range m {
		texts[i] = m[i].key + ": " + m[i].why
	}
	return strings.Join(texts, ", ")
}

// add checks a part of a table that has only the member with this key, and adds its mistake. The place in the JSON
// becomes a key, because nobody has written that JSON.
func (m *tableMistakes) add(key string, part any, check func([]byte) error) {
	text, err := json.Marshal(part)
	if err == nil {
		err = check(text)
	}
	if err == nil {
		return
	}
	found := tableMistake{key: key, why: problemOf(err)}
	var inJSON *jsontext.Error
	if errors.As(err, &inJSON) {
		if inJSON.Path != "" {
			key = strings.ReplaceAll(inJSON.Path[1:], "/", ".")
		}
		found = tableMistake{key, true, inJSON.Reason}
	}
	*m = append(*m, found)
}

// of returns the mistakes as errors, each with its line.
func (m tableMistakes) of(path, text, table string) (list []error) {
	for _, one := range m {
		key := table + "." + one.key
		named := table
		if one.full {
			named = key
		}
		list = append(list, fmt.Errorf("%s:%d: %s is wrong: %s", path, lineOf(text, key), named, one.why))
	}
	return list
}

// problemOf returns the message of an error without the words that the setting's name says already.
func problemOf(err error) string {
	var e *ckpt.Error
	if errors.As(err, &e) {
		return strings.TrimPrefix(e.Message, "the policy is wrong: ")
	}
	return err.Error()
}

func sortedKeys(table map[string]any) []string { return slices.Sorted(maps.Keys(table)) }
