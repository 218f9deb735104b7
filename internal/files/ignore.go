package files

import (
	"bytes"
	"strings"
)

// rules are the patterns of one file such as .gitignore, in their order in the file.
type rules struct {
	base string // the folder of the file; "" for the root, otherwise with a slash at its end
	list []rule
}

// rule is one pattern, as git reads it.
type rule struct {
	negated    bool
	onlyDirs   bool
	nameOnly   bool     // the pattern has no slash: it is matched against the last component
	literal    string   // the path must begin with it, or be it
	rest       *matcher // must match the rest of the path; nil if literal is the whole pattern
	impossible bool     // nothing can match the pattern
}

// parseRules reads the text of a .gitignore in the folder base.
func parseRules(base string, text []byte) *rules {
	if base != "" {
		base += "/"
	}
	r := &rules{base: base}
	text = bytes.TrimPrefix(text, []byte("\ufeff"))
	for line := range bytes.Lines(text) {
		if end, found := bytes.CutSuffix(line, []byte("\n")); found {
			line = bytes.TrimSuffix(end, []byte("\r"))
		}
		if len(line) == 0 || line[0] == '#' {
			continue
		}
		if x, ok := parseRule(trimSpaces(string(line))); ok {
			r.list = append(r.list, x)
		}
	}
	return r
}

// trimSpaces removes the spaces at the end that no backslash protects.
func trimSpaces(line string) string {
	end := -1 // the end of the kept part, if spaces follow it
	for i := 0; i < len(line); i++ {
		switch line[i] {
		case ' ':
			if end < 0 {
				end = i
			}
		case '\\':
			i++
			if i == len(line) {
				return line
			}
			end = -1
		default:
			end = -1
		}
	}
	if end < 0 {
		return line
	}
	return line[:end]
}

func parseRule(p string) (rule, bool) {
	var r rule
	if strings.HasPrefix(p, "!") {
		r.negated, p = true, p[1:]
	}
	if strings.HasSuffix(p, "/") {
		r.onlyDirs, p = true, p[:len(p)-1]
	}
	if p == "" && !r.onlyDirs {
		return r, false
	}
	r.nameOnly = strings.IndexByte(p, '/') < 0
	if !r.nameOnly {
		p = strings.TrimPrefix(p, "/")
	}
	special := strings.IndexAny(p, `*?[\`)
	switch {
	case special < 0:
		r.literal = p
	case r.nameOnly:
		// The whole name is matched: a "*" can be anywhere in it.
		r.rest, r.impossible = compile(p, false)
	default:
		r.literal = p[:special]
		r.rest, r.impossible = compile(p[special:], true)
	}
	return r, true
}

// matches reports whether a path, relative to the folder of the rules, matches the
// rule.
func (r *rule) matches(path string, isDir bool) bool {
	if r.impossible || r.onlyDirs && !isDir {
		return false
	}
	if r.nameOnly {
		path = path[strings.LastIndexByte(path, '/')+1:]
	}
	if r.rest == nil {
		return path == r.literal
	}
	after, found := strings.CutPrefix(path, r.literal)
	return found && r.rest.matches(after)
}

// verdict reports whether these rules ignore a path. known is false if no rule matches.
func (r *rules) verdict(path string, isDir bool) (ignored, known bool) {
	path, below := strings.CutPrefix(path, r.base)
	if !below {
		return false, false
	}
	for i := len(r.list) - 1; i >= 0; i-- {
		if r.list[i].matches(path, isDir) {
			return !r.list[i].negated, true
		}
	}
	return false, false
}

// ignored asks the rules of a folder and of the folders above it. The last rules that
// know the path decide.
func ignored(all []*rules, path string, isDir bool) bool {
	for i := len(all) - 1; i >= 0; i-- {
		if ignored, known := all[i].verdict(path, isDir); known {
			return ignored
		}
	}
	return false
}
