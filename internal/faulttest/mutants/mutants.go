package mutants

import (
	"embed"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"strings"
)

// OverlayVariable names the overlay with which tests build the programs that
// they start.
const OverlayVariable = "CKPTSIDECAR_OVERLAY"

// Mutant is one planted mistake.
type Mutant struct {
	List    string // the list that it is in
	Name    string
	What    string // the mistake in words
	Edits   []Edit
	Package string // of the test that finds it
	Test    string // the name of that test
	Stays   string // why no test needs to find it
}

// Edit is one change of one file.
type Edit struct {
	File string // from the root of the module
	Find []string
	Put  []string
}

//go:embed lists/*.txt
var lists embed.FS

// All are the mutants of all lists.
func All() ([]Mutant, error) {
	files, err := lists.ReadDir("lists")
	if err != nil {
		return nil, err
	}
	var all []Mutant
	seen := map[string]bool{}
	for _, f := range files {
		text, err := lists.ReadFile(path.Join("lists", f.Name()))
		if err != nil {
			return nil, err
		}
		some, err := parse(strings.TrimSuffix(f.Name(), ".txt"), string(text))
		if err != nil {
			return nil, err
		}
		for i := range some {
			if seen[some[i].Name] {
				return nil, fmt.Errorf("%s: the name %s is there twice", f.Name(), some[i].Name)
			}
			seen[some[i].Name] = true
		}
		all = append(all, some...)
	}
	return all, nil
}

// ByName is the mutant of a name.
func ByName(name string) (*Mutant, error) {
	all, err := All()
	if err != nil {
		return nil, err
	}
	for i := range all {
		if all[i].Name == name {
			return &all[i], nil
		}
	}
	return nil, fmt.Errorf("there is no mutant %s", name)
}

// parse reads a list.
func parse(list, text string) ([]Mutant, error) {
	var all []Mutant
	for i, line := range strings.Split(text, "\n") {
		word, rest, _ := strings.Cut(line, " ")
		rest = strings.TrimSpace(rest)
		if strings.TrimSpace(line) == "" || strings.HasPrefix(line, "#") {
			continue
		}
		if word == "mutant" {
			all = append(all, Mutant{List: list, Name: rest})
			continue
		}
		if len(all) == 0 {
			return nil, fmt.Errorf("%s.txt:%d: a mutant begins with its name", list, i+1)
		}
		if err := all[len(all)-1].read(word, rest, line); err != nil {
			return nil, fmt.Errorf("%s.txt:%d: %w", list, i+1, err)
		}
	}
	for i := range all {
		if err := all[i].complete(); err != nil {
			return nil, fmt.Errorf("%s.txt: %s: %w", list, all[i].Name, err)
		}
	}
	return all, nil
}

func (m *Mutant) read(word, rest, line string) error {
	switch word {
	case "what":
		m.What = rest
	case "file":
		m.Edits = append(m.Edits, Edit{File: rest})
	case "found":
		m.Package, m.Test, _ = strings.Cut(rest, " ")
		m.Test = strings.TrimSpace(m.Test)
	case "stays":
		m.Stays = rest
	case "-", "+":
		if len(m.Edits) == 0 {
			return errors.New("say the file first")
		}
		edit := &m.Edits[len(m.Edits)-1]
		if text := strings.TrimPrefix(line[1:], " "); word == "-" {
			edit.Find = append(edit.Find, text)
		} else {
			edit.Put = append(edit.Put, text)
		}
	default:
		return fmt.Errorf("%q is not known here", word)
	}
	return nil
}

// complete says what is missing.
func (m *Mutant) complete() error {
	switch {
	case m.What == "":
		return errors.New("say what the mistake is")
	case len(m.Edits) == 0:
		return errors.New("say which file it changes")
	case (m.Test == "") == (m.Stays == ""):
		return errors.New("say which test finds it, or why it stays")
	}
	for _, e := range m.Edits {
		if len(e.Find) == 0 || strings.HasSuffix(e.File, "_test.go") {
			return errors.New("say which text of a file of the product it changes")
		}
	}
	return nil
}

// Plant writes the changed files and an overlay of them into a folder, and
// answers the overlay's path. root is the folder of the module.
func (m *Mutant) Plant(root, folder string) (string, error) {
	texts := map[string]string{}
	for _, e := range m.Edits {
		file, err := e.find(root)
		if err != nil {
			return "", fmt.Errorf("mutant %s: %w", m.Name, err)
		}
		text, changed := texts[file]
		if !changed {
			b, err := os.ReadFile(file)
			if err != nil {
				return "", err
			}
			text = string(b)
		}
		if texts[file], err = e.apply(text); err != nil {
			return "", fmt.Errorf("mutant %s: %w", m.Name, err)
		}
	}
	replace := map[string]string{}
	for file, text := range texts {
		to := filepath.Join(folder, fmt.Sprintf("%d-%s", len(replace), filepath.Base(file)))
		if err := os.WriteFile(to, []byte(text), 0o600); err != nil {
			return "", err
		}
		replace[file] = to
	}
	b, err := json.Marshal(map[string]any{"Replace": replace})
	if err != nil {
		return "", err
	}
	overlay := filepath.Join(folder, "overlay.json")
	return overlay, os.WriteFile(overlay, b, 0o600)
}

// find is the file that has the text. Code is moved more often than it is
// changed: where the file of the list has it no more, another of the module may,
// if it is the only one.
func (e *Edit) find(root string) (string, error) {
	file := filepath.Join(root, filepath.FromSlash(e.File))
	if b, err := os.ReadFile(file); err == nil && e.times(string(b)) > 0 {
		return file, nil
	}
	var found []string
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		switch name := filepath.Base(path); {
		case err != nil:
			return err
		case d.IsDir() && path != root && (strings.HasPrefix(name, ".") || name == "node_modules" || name == "testdata" || name == "dist"):
			return filepath.SkipDir
		case d.IsDir() || strings.HasSuffix(name, "_test.go") || filepath.Ext(name) != filepath.Ext(e.File):
			return nil
		}
		b, err := os.ReadFile(path)
		if err == nil && e.times(string(b)) > 0 {
			found = append(found, path)
		}
		return err
	})
	if err == nil && len(found) != 1 {
		err = fmt.Errorf("its text is not in %s, and in %d other files: %s", e.File, len(found), strings.Join(e.Find, " … "))
	}
	if err != nil {
		return "", err
	}
	return found[0], nil
}

// pattern finds the text whatever its indentation.
func (e *Edit) pattern() *regexp.Regexp {
	lines := make([]string, len(e.Find))
	for i, line := range e.Find {
		lines[i] = regexp.QuoteMeta(strings.TrimSpace(line))
	}
	return regexp.MustCompile(strings.Join(lines, `[ \t]*\r?\n\s*`))
}

func (e *Edit) times(text string) int { return len(e.pattern().FindAllStringIndex(text, -1)) }

// apply makes the one change in a file's text.
func (e *Edit) apply(text string) (string, error) {
	at := e.pattern().FindAllStringIndex(text, -1)
	if len(at) != 1 {
		return "", fmt.Errorf("its text is %d times in %s, and must be there once: %s", len(at), e.File, strings.Join(e.Find, " … "))
	}
	return text[:at[0][0]] + strings.Join(e.Put, "\n") + text[at[0][1]:], nil
}

// Root is the folder of the module, from a folder in it.
func Root() (string, error) {
	dir, err := os.Getwd()
	for ; err == nil; dir = filepath.Dir(dir) {
		if _, err := os.Stat(filepath.Join(dir, "go.mod")); err == nil {
			return dir, nil
		}
		if dir == filepath.Dir(dir) {
			return "", errors.New("there is no go.mod above this folder")
		}
	}
	return "", err
}
