package hook

import (
	"regexp"
	"slices"
	"strings"

	"mvdan.cc/sh/v3/syntax"
)

// maxNested is how deep scripts in arguments are read, such as that of `sh -c`.
const maxNested = 8

// commandsOf returns the commands that a line of a shell would run, also inside of other commands, without what only
// starts them: sudo, variables, a path, npx. A redirection that empties a file without a command is "> FILE".
func commandsOf(line string) (list []string) { return commandsIn(line, maxNested) }

func commandsIn(script string, deep int) (list []string) {
	file, err := syntax.NewParser().Parse(strings.NewReader(script), "")
	if err != nil { // another shell's language, such as that of PowerShell, or half a line
		return roughly(script)
	}
	documents := map[*syntax.CallExpr]string{}
	syntax.Walk(file, func(node syntax.Node) bool {
		switch n := node.(type) {
		case *syntax.Stmt:
			call, is := n.Cmd.(*syntax.CallExpr)
			for _, r := range n.Redirs {
				switch {
				case r.Hdoc != nil && is:
					documents[call] = sourceOf(r.Hdoc)
				case (r.Op == syntax.RdrOut || r.Op == syntax.RdrClob) && (n.Cmd == nil || is && doesNothing(call)):
					if target := shown(r.Word); !strings.HasPrefix(target, "/dev/") {
						list = append(list, "> "+target+" ")
					}
				}
			}
		case *syntax.CallExpr:
			list = append(list, commandsOfCall(n, documents[n], deep)...)
		}
		return true
	})
	return list
}

// doesNothing reports whether a command is only there for its redirections.
func doesNothing(c *syntax.CallExpr) bool {
	words := shownWords(c.Args)
	return len(words) == 0 || len(words) == 1 && (words[0] == ":" || words[0] == "true") || strings.Join(words, " ") == "cat /dev/null"
}

// roughly splits what is not of this language.
func roughly(line string) (list []string) {
	for _, one := range strings.FieldsFunc(line, func(r rune) bool { return strings.ContainsRune("\n;|&", r) }) {
		if words := strings.Fields(one); len(words) > 0 {
			list = append(list, strings.Join(words, " ")+" ")
		}
	}
	return list
}

// commandsOfCall returns the command of a call, and those of the script that the call runs. document is its here-document.
func commandsOfCall(c *syntax.CallExpr, document string, deep int) (list []string) {
	words := started(shownWords(c.Args))
	if len(words) == 0 {
		return nil
	}
	text := strings.Join(strings.Fields(strings.Join(words, " ")+" "+document), " ")
	list = append(list, text+" ")
	if deep == 0 {
		return list
	}
	for _, script := range []string{scriptOf(started(valuesOf(c.Args))), documentOf(words[0], document)} {
		if script != "" {
			list = append(list, commandsIn(script, deep-1)...)
		}
	}
	return list
}

// shownWords returns the words of a call as a person reads them: without quotes where none are needed.
func shownWords(words []*syntax.Word) (list []string) {
	for _, w := range words {
		list = append(list, shown(w))
	}
	return list
}

func shown(w *syntax.Word) string {
	if value, is := valueOf(w); is && shellWord(value) {
		return value
	}
	return sourceOf(w)
}

// shellWord reports whether a word can stand without quotes.
func shellWord(word string) bool {
	return word != "" && !strings.ContainsAny(word, " \t\n'\"\\$`;&|<>()#*?[")
}

// valuesOf returns the words of a call as its program gets them, as far as that is known before it runs.
func valuesOf(words []*syntax.Word) (list []string) {
	for _, w := range words {
		value, is := valueOf(w)
		if !is {
			value = sourceOf(w)
		}
		list = append(list, value)
	}
	return list
}

// escapes are the characters that a backslash hides from the shell.
var escapes = lazily(`\\(?s:(.))`)

// valueOf returns the value of a word in which nothing is expanded.
func valueOf(w *syntax.Word) (value string, is bool) {
	var b strings.Builder
	for _, part := range w.Parts {
		switch p := part.(type) {
		case *syntax.Lit:
			b.WriteString(escapes().ReplaceAllString(strings.ReplaceAll(p.Value, "\\\n", ""), "$1"))
		case *syntax.SglQuoted:
			b.WriteString(p.Value)
		case *syntax.DblQuoted:
			for _, inner := range p.Parts {
				lit, is := inner.(*syntax.Lit)
				if !is {
					return "", false
				}
				b.WriteString(regexp.MustCompile("\\\\([$`\"\\\\])").ReplaceAllString(lit.Value, "$1"))
			}
		default:
			return "", false
		}
	}
	return b.String(), true
}

func sourceOf(node syntax.Node) string {
	var b strings.Builder
	_ = syntax.NewPrinter().Print(&b, node) // a builder takes everything
	return b.String()
}

// starters are the programs that start another one, with those of their options whose value is a word of its own.
var starters = map[string]string{
	"sudo": "gpCTRDrtuUh", "doas": "uC", "xargs": "IEdnPLsa", "timeout": "ks", "env": "uC", "nohup": "", "nice": "n", "ionice": "cnp", "command": "",
	"builtin": "", "exec": "a", "stdbuf": "ioe", "setsid": "", "watch": "n", "parallel": "jI", "time": "fo",
	"npx": "pc", "bunx": "", "pnpx": "", "uvx": "",
}

// startersBy are the verbs with which programs start another one.
var startersBy = map[string][]string{
	"npm": {"exec", "x"}, "pnpm": {"exec", "dlx"}, "yarn": {"exec", "dlx"}, "bun": {"x"},
	"uv": {"run"}, "poetry": {"run"}, "pdm": {"run"}, "pipenv": {"run"}, "rye": {"run"}, "hatch": {"run"}, "pipx": {"run"}, "bundle": {"exec"},
}

var (
	python     = lazily(`^python[\d.]*$`)
	assignment = lazily(`^[A-Za-z_]\w*=`)
	duration   = lazily(`^\d+(\.\d+)?[smhd]?$`)
)

// started returns the words of the command that is started in the end.
func started(words []string) []string {
	for len(words) > 0 {
		words = slices.Clone(words)
		if i := strings.LastIndexAny(words[0], `/\`); i >= 0 && i+1 < len(words[0]) && !strings.ContainsAny(words[0], " '\"") {
			words[0] = words[0][i+1:]
		}
		name, rest := words[0], words[1:]
		valued, starts := starters[name]
		switch {
		case starts:
		case len(rest) > 0 && slices.Contains(startersBy[name], rest[0]):
			rest = rest[1:]
		case len(rest) > 1 && python().MatchString(name) && rest[0] == "-m":
			rest = rest[1:]
		default:
			return words
		}
		rest = withoutOptions(rest, valued)
		for len(rest) > 0 && (assignment().MatchString(rest[0]) || duration().MatchString(rest[0])) {
			rest = rest[1:]
		}
		if len(rest) == 0 {
			return words
		}
		words = rest
	}
	return nil
}

// withoutOptions returns the words after the options. valued are the letters of options whose value is a word of its own.
func withoutOptions(words []string, valued string) []string {
	for len(words) > 0 && strings.HasPrefix(words[0], "-") && words[0] != "-" {
		option := words[0]
		words = words[1:]
		if option == "--" {
			break
		}
		if len(option) == 2 && strings.Contains(valued, option[1:]) && len(words) > 0 {
			words = words[1:]
		}
	}
	return words
}

// scriptShells run a script that their arguments or their input have.
var scriptShells = []string{"sh", "bash", "zsh", "dash", "ksh", "ash"}

// scriptOf returns the script in the arguments of a command, "" if the command has none.
func scriptOf(words []string) string {
	if len(words) < 2 {
		return ""
	}
	name, rest := words[0], words[1:]
	switch {
	case slices.Contains(scriptShells, name), name == "su":
		for i, word := range rest {
			if strings.HasPrefix(word, "-") && !strings.HasPrefix(word, "--") && strings.Contains(word, "c") && i+1 < len(rest) {
				return rest[i+1]
			}
		}
	case name == "eval":
		return strings.Join(rest, " ")
	case name == "ssh":
		if rest = withoutOptions(rest, "BbcDEeFIiJLlmOopQRSWw"); len(rest) > 1 {
			return strings.Join(withoutOptions(rest[1:], ""), " ") // the host is first
		}
	}
	return ""
}

// documentOf returns the here-document of a command that runs it.
func documentOf(name, document string) string {
	if slices.Contains(scriptShells, name) || name == "ssh" {
		return document
	}
	return ""
}

// lastOf returns the words of the command whose exit code is that of the line, nil if that is not sure.
func lastOf(line string) []string {
	file, err := syntax.NewParser().Parse(strings.NewReader(line), "")
	if err != nil || len(file.Stmts) == 0 {
		return nil
	}
	for stmt := file.Stmts[len(file.Stmts)-1]; !stmt.Negated; {
		var inner []*syntax.Stmt
		switch c := stmt.Cmd.(type) {
		case *syntax.BinaryCmd:
			inner = []*syntax.Stmt{c.Y}
		case *syntax.Block:
			inner = c.Stmts
		case *syntax.Subshell:
			inner = c.Stmts
		case *syntax.TestClause:
			return []string{"[["}
		case *syntax.CallExpr:
			return started(shownWords(c.Args))
		}
		if len(inner) == 0 {
			return nil
		}
		stmt = inner[len(inner)-1]
	}
	return nil
}
