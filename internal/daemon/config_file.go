package daemon

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
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

// LoadDefault loads the default file, which can be missing, and then the drop-ins: the files
// conf.d/*.toml beside it, in the order of their names. A later file goes over an earlier one.
func (c *Config) LoadDefault(path string) error {
	dropIns, err := filepath.Glob(filepath.Join(filepath.Dir(path), "conf.d", "*.toml"))
	if err != nil {
		return err
	}
	if _, err := os.Stat(path); !errors.Is(err, fs.ErrNotExist) {
		dropIns = append([]string{path}, dropIns...)
	}
	var mistakes []error
	for _, file := range dropIns {
		mistakes = append(mistakes, c.Load(file))
	}
	return errors.Join(mistakes...)
}

// definedTwice is the end of the parser's message about a section or a setting that stands twice. The
// message begins with Key and the name in single quotes.
const definedTwice = "' has already been defined."

// firstLine returns the first line of a section or of a setting.
func firstLine(text, key string) int {
	for i, line := range strings.Split(text, "\n") {
		if line = strings.TrimSpace(line); strings.HasPrefix(line, "["+key+"]") {
			return i + 1
		}
	}
	return lineOf(text, key)
}

func (c *Config) parse(path, text string) error {
	var tree map[string]any
	if _, err := toml.Decode(text, &tree); err != nil {
		return syntaxError(path, text, err)
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

func syntaxError(path, text string, err error) error {
	var parse toml.ParseError
	if errors.As(err, &parse) {
		if key, twice := strings.CutSuffix(parse.Message, definedTwice); twice {
			key = strings.TrimPrefix(key, "Key '")
			return fmt.Errorf("%s:%d: %s stands twice, here and in line %d: write it once",
				path, parse.Position.Line, key, firstLine(text, key))
		}
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
