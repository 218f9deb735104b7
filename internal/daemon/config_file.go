package daemon

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"slices"
	"strings"

	"github.com/BurntSushi/toml"
)

// Load reads a file and overwrites the settings in c that the file has. An error names
// the file and the line.
func (c *Config) Load(path string) error {
	text, err := os.ReadFile(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return fmt.Errorf("the configuration file %s does not exist", path)
	case err != nil:
		return fmt.Errorf("the configuration file cannot be read: %w", err)
	}
	return c.parse(path, string(text))
}

// LoadIfThere is Load for the default file, which can be missing.
func (c *Config) LoadIfThere(path string) error {
	if _, err := os.Stat(path); errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return c.Load(path)
}

func (c *Config) parse(path, text string) error {
	var tree map[string]any
	if _, err := toml.Decode(text, &tree); err != nil {
		return syntaxError(path, err)
	}
	return c.apply(path, text, "", tree)
}

// apply sets the values of a table, in the order of its keys. It continues after a
// mistake, so that it reports all mistakes at once.
func (c *Config) apply(path, text, prefix string, table map[string]any) error {
	var mistakes []error
	for _, name := range slices.Sorted(maps.Keys(table)) {
		key := prefix + name
		if inner, ok := table[name].(map[string]any); ok && c.isTable(key) {
			mistakes = append(mistakes, c.apply(path, text, key+".", inner))
			continue
		}
		place := fmt.Sprintf("%s:%d", path, lineOf(text, key))
		err := c.setFromFile(key, table[name])
		var inside tableMistakes
		if errors.As(err, &inside) {
			mistakes = append(mistakes, inside.of(path, text, key)...)
			continue
		}
		if err != nil {
			mistakes = append(mistakes, fmt.Errorf("%s: %w", place, err))
			continue
		}
		c.setBy(key, place)
	}
	return errors.Join(mistakes...)
}

func (c *Config) isTable(key string) bool {
	return slices.ContainsFunc(c.Settings(), func(s Setting) bool { return strings.HasPrefix(s.Key, key+".") })
}

func (c *Config) setFromFile(key string, v any) error {
	for _, s := range c.Settings() {
		if s.Key != key {
			continue
		}
		if err := s.setTOML(v); err != nil {
			return fmt.Errorf("%s %w", key, err)
		}
		return nil
	}
	return fmt.Errorf("there is no setting %q%s", key, c.nearest(key))
}

func syntaxError(path string, err error) error {
	var parse toml.ParseError
	if errors.As(err, &parse) {
		return fmt.Errorf("%s:%d: %s", path, parse.Position.Line, parse.Message)
	}
	return fmt.Errorf("%s: %w", path, err)
}

// lineOf returns the line where a file sets a key. The library reports positions only for
// syntax errors. The file is small and its tables are one level deep, so a second search
// through the text is enough. A table begins with its own header, or with that of its first part.
func lineOf(text, key string) int {
	prefix, first, part := "", 0, 0
	for i, line := range strings.Split(text, "\n") {
		line = strings.TrimSpace(line)
		if strings.HasPrefix(line, "[") {
			prefix = bare(strings.Trim(line[:strings.LastIndexByte(line+"]", ']')], "[] \t")) + "."
			if strings.HasPrefix(key+".", prefix) {
				first = i + 1
			}
			if part == 0 && strings.HasPrefix(prefix, key+".") {
				part = i + 1
			}
			continue
		}
		if name, _, found := strings.Cut(line, "="); found && prefix+bare(name) == key || found && bare(name) == key {
			return i + 1
		}
	}
	return cmp.Or(first, part, 1)
}

// bare removes quotes and blanks from a key.
func bare(s string) string {
	return strings.NewReplacer(`"`, "", "'", "", " ", "", "\t", "").Replace(s)
}
