package console

import (
	"bytes"
	"encoding/json"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	ckpt "github.com/ckptsidecar/ckptsidecar"
	"github.com/ckptsidecar/ckptsidecar/internal/console/draw"
	"github.com/ckptsidecar/ckptsidecar/internal/jsontext"
)

// The limits of the part of a state that a page shows.
const (
	mostTreeNodes = 320
	mostTreeDepth = 12
	mostValue     = 90  // characters of a value in a tree
	mostDiffValue = 320 // characters of a value in a difference
	mostDiffLines = 240
	mostDiffState = 8 << 20 // larger states are compared only on request
)

// node is a value in the tree of a state.
type node struct {
	Key, Value string
	Size       string // {7} or [12] for a value that has parts
	Kids       []node
	Open       bool
	Changed    bool
	Note       string // replaces what is not shown
}

// treeOf makes a tree of a JSON state, in the order of the state. The number of nodes is
// limited. The tree says what it leaves out.
func treeOf(state []byte, changed map[string]bool, hide []string) (root node, ok bool) {
	if jsontext.Check(state) != nil {
		return node{}, false
	}
	t := &treeMaker{left: mostTreeNodes, changed: changed, hide: hide}
	root = t.value("", state[jsontext.SkipSpace(state, 0):], 0, "")
	root.Open = true
	return root, true
}

// treeMaker reads a checked state in place: what a tree leaves out is only skipped.
type treeMaker struct {
	left    int
	changed map[string]bool // pointers that the difference contains
	hide    []string        // values that are secrets according to a finding
}

// value makes the node of the value with which the text begins.
func (t *treeMaker) value(key string, text []byte, depth int, pointer string) node {
	n := node{Key: key, Changed: t.changed[pointer] && pointer != ""}
	switch text[0] {
	case '{':
		t.object(&n, text, depth, pointer)
	case '[':
		t.array(&n, text, depth, pointer)
	case '"':
		var s string
		_ = json.Unmarshal(text[:jsontext.ValueEnd(text, 0)], &s) // it was checked
		n.Value = draw.FirstLine(masked(s, t.hide), mostValue)
		if s == "" {
			n.Value = "“”"
		}
	default:
		n.Value = string(text[:jsontext.ValueEnd(text, 0)])
	}
	return n
}

func (t *treeMaker) object(n *node, text []byte, depth int, pointer string) {
	count, dropped := 0, 0
	jsontext.Members(text, func(name string, value []byte) bool {
		if count++; t.left <= 0 || depth >= mostTreeDepth {
			dropped++
			return true
		}
		t.left--
		n.Kids = append(n.Kids, t.value(draw.FirstLine(name, mostValue), value, depth+1, pointer+"/"+jsontext.EscapePointer(name)))
		return true
	})
	n.Size = "{" + draw.Count(count) + "}"
	if dropped > 0 {
		n.Kids = append(n.Kids, node{Note: draw.Plural(dropped, "more member") + " not shown"})
	}
	n.Open = depth == 0 || depth == 1 && count <= 4 && n.flat() || depth == 1 && t.touched(pointer)
}

// touched reports whether the difference changes something below a place.
func (t *treeMaker) touched(pointer string) bool {
	for path := range t.changed {
		if strings.HasPrefix(path, pointer+"/") {
			return true
		}
	}
	return false
}

// flat reports whether no child of the node has parts.
func (n *node) flat() bool {
	for _, k := range n.Kids {
		if k.Size != "" {
			return false
		}
	}
	return true
}

// array shows the last three elements of a long list, because new elements are usually at
// the end.
func (t *treeMaker) array(n *node, text []byte, depth int, pointer string) {
	const most = 8
	var starts [most]int // of the newest elements
	count := 0
	for p := jsontext.SkipSpace(text, 1); text[p] != ']'; {
		starts[count%most] = p
		count++
		if p = jsontext.SkipSpace(text, jsontext.ValueEnd(text, p)); text[p] == ',' {
			p = jsontext.SkipSpace(text, p+1)
		}
	}
	n.Size, n.Open = "["+draw.Count(count)+"]", depth == 1 && t.touched(pointer)
	from := 0
	if count > most {
		from = count - 3
		n.Kids = append(n.Kids, node{Note: "0 … " + draw.Count(from-1) + " not shown"})
	}
	for i := from; i < count; i++ {
		if t.left <= 0 || depth >= mostTreeDepth {
			n.Kids = append(n.Kids, node{Note: draw.Plural(count-i, "more") + " not shown"})
			break
		}
		t.left--
		n.Kids = append(n.Kids, t.value(draw.Count(i), text[starts[i%most]:], depth+1, pointer+"/"+strconv.Itoa(i)))
	}
}

// masked hides values that are secrets according to a finding.
func masked(s string, hide []string) string {
	for _, secret := range hide {
		if len(secret) >= 4 {
			s = strings.ReplaceAll(s, secret, "••••••••")
		}
	}
	return s
}

// secretsIn reads the values at the places where findings report secrets.
func secretsIn(state []byte, paths []string) (values []string) {
	var root any
	for _, path := range paths {
		if root == nil && json.Unmarshal(state, &root) != nil {
			return nil
		}
		values = append(values, texts(lookUp(root, path))...)
	}
	return values
}

// secretsInDiff reads the values in a difference at the places where findings report
// secrets. The newer state no longer has a secret that was replaced or removed, and a large
// one is not read.
func secretsInDiff(d *ckpt.Diff, paths []string) (values []string) {
	if len(paths) == 0 {
		return nil
	}
	var ops []struct {
		Path  string
		Value json.RawMessage
	}
	_ = json.Unmarshal(d.Patch, &ops) // without operations, the page shows none
	in := func(at string, raw json.RawMessage) {
		var v any
		if json.Unmarshal(raw, &v) != nil {
			return
		}
		for _, path := range paths {
			switch {
			case strings.HasPrefix(at+"/", path+"/"):
				values = append(values, texts(v)...)
			case strings.HasPrefix(path, at+"/"):
				values = append(values, texts(lookUp(v, path[len(at):]))...)
			}
		}
	}
	for _, o := range ops {
		in(o.Path, o.Value)
	}
	for _, list := range [][]ckpt.DiffField{d.Summary.Changed, d.Summary.Removed} {
		for i := range list {
			in(list[i].Path, list[i].From)
		}
	}
	return values
}

// secretPaths returns the places where findings report secrets: in the state, or in other things that have names.
func secretPaths(findings []ckpt.Finding, in ...string) (paths []string) {
	if len(in) == 0 {
		in = []string{"", "state"}
	}
	for i := range findings {
		f := &findings[i]
		var e struct{ Path, In string }
		if f.Rule == ckpt.RuleSecret && json.Unmarshal(f.Evidence, &e) == nil && slices.Contains(in, e.In) {
			paths = append(paths, e.Path)
		}
	}
	return paths
}

// maskedJSON is plainJSON without the values that are secrets. JSON can write the same text
// in several ways, so the value is read first.
func maskedJSON(raw string, hide []string) string {
	var v any
	d := json.NewDecoder(strings.NewReader(raw))
	d.UseNumber()
	if len(hide) == 0 || d.Decode(&v) != nil {
		return masked(plainJSON(json.RawMessage(raw)), hide)
	}
	v = maskedTexts(v, hide)
	if s, is := v.(string); is {
		return s
	}
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	_ = e.Encode(v) // a value that was just read can be written
	return b.String()
}

// maskedTexts hides secrets in all texts of a value.
func maskedTexts(v any, hide []string) any {
	switch v := v.(type) {
	case string:
		return masked(v, hide)
	case []any:
		for i := range v {
			v[i] = maskedTexts(v[i], hide)
		}
	case map[string]any:
		for name := range v {
			v[name] = maskedTexts(v[name], hide)
		}
	}
	return v
}

// texts returns all texts in a value.
func texts(v any) (list []string) {
	switch v := v.(type) {
	case string:
		list = append(list, v)
	case []any:
		for _, x := range v {
			list = append(list, texts(x)...)
		}
	case map[string]any:
		for _, x := range v {
			list = append(list, texts(x)...)
		}
	}
	return list
}

// lookUp follows a JSON pointer.
func lookUp(v any, pointer string) any {
	if pointer == "" {
		return v
	}
	for _, name := range strings.Split(strings.TrimPrefix(pointer, "/"), "/") {
		name = jsontext.UnescapePointer(name)
		switch x := v.(type) {
		case map[string]any:
			v = x[name]
		case []any:
			i := 0
			for _, c := range name {
				if c < '0' || c > '9' {
					return nil
				}
				i = i*10 + int(c-'0')
				if i > len(x) {
					return nil
				}
			}
			if i >= len(x) {
				return nil
			}
			v = x[i]
		default:
			return nil
		}
	}
	return v
}

// diffGroup has the changes below one top-level member.
type diffGroup struct {
	Path, Counts string
	Lines        []diffLine
}

// diffLine is an added or removed line.
type diffLine struct {
	Class, Sign, Word, Text string
}

// diffOf groups a difference by the top-level members, and cuts long values.
func diffOf(d *ckpt.Diff, hide []string) (groups []diffGroup, changed map[string]bool, more int) {
	changed = map[string]bool{}
	var ops []struct {
		Op    string          `json:"op"`
		Path  string          `json:"path"`
		Value json.RawMessage `json:"value"`
	}
	if json.Unmarshal(d.Patch, &ops) != nil {
		return nil, changed, 0
	}
	old := map[string]*ckpt.DiffField{}
	for _, list := range [][]ckpt.DiffField{d.Summary.Changed, d.Summary.Removed} {
		for i := range list {
			old[list[i].Path] = &list[i]
		}
	}
	index, lines := map[string]int{}, 0
	counts := map[string][3]int{}
	for _, o := range ops {
		top := topOf(o.Path)
		changed[o.Path] = true
		if _, ok := index[top]; !ok {
			if lines >= mostDiffLines {
				more++
				continue
			}
			index[top] = len(groups)
			groups = append(groups, diffGroup{Path: draw.FirstLine(top, mostValue)})
		}
		g := &groups[index[top]]
		n := counts[top]
		n[map[string]int{"add": 0, "remove": 1}[o.Op]+2*b2i(o.Op != "add" && o.Op != "remove")]++
		counts[top] = n
		if lines >= mostDiffLines {
			more++
			continue
		}
		name := draw.FirstLine(strings.TrimPrefix(o.Path[len(top):], "/"), mostValue)
		if name != "" {
			name += ": "
		}
		if o.Op == "remove" || o.Op == "replace" {
			was := oldValue(old[top], o.Path[len(top):])
			if was != "" || o.Op == "remove" {
				g.Lines, lines = append(g.Lines, diffLine{"d", "−", "removed ", name + cutValue(was, hide)}), lines+1
			}
		}
		if o.Op == "add" || o.Op == "replace" {
			g.Lines, lines = append(g.Lines, diffLine{"a", "+", "added ", name + cutValue(string(o.Value), hide)}), lines+1
		}
	}
	for top, n := range counts {
		groups[index[top]].Counts = countsText(n)
	}
	return groups, changed, more
}

func b2i(b bool) int {
	if b {
		return 1
	}
	return 0
}

func countsText(n [3]int) string {
	parts := []string{}
	for i, word := range []string{" added", " removed", " changed"} {
		if n[i] > 0 {
			parts = append(parts, draw.Count(n[i])+word)
		}
	}
	return strings.Join(parts, ", ")
}

// topOf returns the first part of a pointer.
func topOf(path string) string {
	if i := strings.IndexByte(strings.TrimPrefix(path, "/"), '/'); i >= 0 {
		return path[:i+1]
	}
	return path
}

// oldValue returns the old value at a place, if the summary has it whole.
func oldValue(f *ckpt.DiffField, rest string) string {
	if f == nil || f.Cut {
		return ""
	}
	if rest == "" {
		return string(f.From)
	}
	var v any
	if json.Unmarshal(f.From, &v) != nil {
		return ""
	}
	if v = lookUp(v, rest); v == nil {
		return ""
	}
	b, err := json.Marshal(v)
	if err != nil {
		return ""
	}
	return string(b)
}

// cutValue returns a JSON value on one line, cut to a length.
func cutValue(raw string, hide []string) string {
	text := strings.TrimSpace(strings.ReplaceAll(strings.TrimSuffix(maskedJSON(raw, hide), "\n"), "\n", "⏎ "))
	if utf8.RuneCountInString(text) > mostDiffValue {
		return string([]rune(text)[:mostDiffValue]) + " … " + draw.Bytes(int64(len(raw)))
	}
	return text
}

// editable returns a JSON state that a person can edit: indented, and with an escape for
// every character that a page cannot show.
func editable(state []byte) string {
	var b bytes.Buffer
	if json.Indent(&b, bytes.TrimSpace(state), "", "  ") != nil { // Indent keeps what follows the value
		return string(state)
	}
	if !bytes.ContainsFunc(b.Bytes(), hidden) {
		return b.String()
	}
	var out strings.Builder
	for _, r := range b.String() {
		if !hidden(r) {
			out.WriteRune(r)
			continue
		}
		quoted, _ := json.Marshal(string(r))
		text := strings.Trim(string(quoted), `"`)
		if text == string(r) {
			text = utf16Escape(r)
		}
		out.WriteString(text)
	}
	return out.String()
}

// utf16Escape writes a character as a \u escape of JSON.
func utf16Escape(r rune) string {
	const digits = "0123456789abcdef"
	unit := func(u rune) string {
		return `\u` + string([]byte{digits[u>>12&15], digits[u>>8&15], digits[u>>4&15], digits[u&15]})
	}
	if r > 0xffff {
		r -= 0x10000
		return unit(0xd800+r>>10) + unit(0xdc00+r&0x3ff)
	}
	return unit(r)
}
