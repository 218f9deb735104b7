package manual

import (
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/alecthomas/kong"
	"github.com/ckptsidecar/ckptsidecar/internal/cli"
)

// Completion prints a completion script for a shell.
type Completion struct {
	Shell string `arg:"" enum:"bash,zsh,fish,powershell" help:"bash, zsh, fish or powershell."`
}

// Help returns the additional text of `completion --help`.
func (c *Completion) Help() string {
	return `bash:        source <(ckptsidecar completion bash)
zsh:         source <(ckptsidecar completion zsh)
fish:        ckptsidecar completion fish | source
powershell:  ckptsidecar completion powershell | Out-String | Invoke-Expression`
}

func (c *Completion) Run(a *cli.App, parser *kong.Kong) error {
	write := map[string]func(io.Writer, []place){
		"bash": bashCompletion, "zsh": zshCompletion, "fish": fishCompletion, "powershell": powershellCompletion,
	}[c.Shell]
	write(a.Data(), Places(parser.Model.Node))
	return nil
}

// Places reads the places from kong's model, so that a new command or flag is completed
// automatically.
func Places(root *kong.Node) []place {
	var list []place
	var walk func(n *kong.Node, path []string)
	walk = func(n *kong.Node, path []string) {
		p := place{Path: strings.Join(path, " "), names: namesAt(n)}
		for _, child := range n.Children {
			if !child.Hidden {
				p.words = append(p.words, word{text: child.Name, help: firstSentence(child.Help)})
			}
		}
		p.words = append(p.words, values(n)...)
		p.words = append(p.words, flags(n)...)
		list = append(list, p)
		for _, child := range n.Children {
			if !child.Hidden {
				walk(child, append(slices.Clone(path), child.Name))
			}
		}
	}
	walk(root, nil)
	return list
}

// values returns the possible values of an argument with a fixed set of values.
func values(n *kong.Node) (list []word) {
	for _, arg := range n.Positional {
		for _, v := range arg.EnumSlice() {
			if v != "" {
				list = append(list, word{text: v})
			}
		}
	}
	return list
}

// flags returns the flags of a node and of the nodes above it.
func flags(n *kong.Node) (list []word) {
	for _, group := range n.AllFlags(true) {
		for _, f := range group {
			file := f.PlaceHolder == "FILE" || f.PlaceHolder == "PATH" || f.PlaceHolder == "DIR"
			list = append(list, word{text: "--" + f.Name, help: firstSentence(f.Help), flag: true, file: file})
		}
	}
	return list
}

func firstSentence(help string) string {
	if before, _, found := strings.Cut(help, ". "); found {
		return before
	}
	return strings.TrimSuffix(help, ".")
}

func bashCompletion(w io.Writer, list []place) {
	fmt.Fprint(w, `# Completion of ckptsidecar for bash.
_ckptsidecar_words() {
    case "$1" in
`)
	for _, p := range list {
		fmt.Fprintf(w, "    %q) echo %q ;;\n", p.Path, texts(p.words))
	}
	fmt.Fprint(w, `    esac
}
_ckptsidecar_names() {
    case "$1" in
`)
	for _, kind := range []string{completeAgents, completeCheckpoints} {
		fmt.Fprintf(w, "    %s) echo %s ;;\n", quoted(list, kind, "|"), kind)
	}
	fmt.Fprintf(w, `    esac
}
_ckptsidecar() {
    local here="" next i names="" current="${COMP_WORDS[COMP_CWORD]}" previous="${COMP_WORDS[COMP_CWORD-1]}"
    for ((i = 1; i < COMP_CWORD; i++)); do
        next="${here:+$here }${COMP_WORDS[i]}"
        [[ -n "$(_ckptsidecar_words "$next")" ]] && here="$next"
    done
    case "$previous" in %s) COMPREPLY=($(compgen -f -- "$current")); return ;; esac
    if [[ "$previous" == --run ]]; then
        COMPREPLY=($(compgen -W "$("${COMP_WORDS[0]}" complete-names runs "$current" 2>/dev/null)" -- "$current"))
        return 0
    fi
    [[ "$current" != -* ]] && names="$(_ckptsidecar_names "$here")"
    [[ -n "$names" ]] && names="$("${COMP_WORDS[0]}" complete-names "$names" "$current" 2>/dev/null)"
    COMPREPLY=($(compgen -W "$(_ckptsidecar_words "$here") $names" -- "$current"))
    [[ ${#COMPREPLY[@]} -eq 0 && "$current" != -* ]] && COMPREPLY=($(compgen -f -- "$current"))
    return 0
}
complete -o filenames -F _ckptsidecar ckptsidecar
`, strings.Join(fileFlags(list), "|"))
}

// fileFlags returns the flags that are followed by a file name, and "-o".
func fileFlags(list []place) []string {
	names := []string{"-o"}
	for _, p := range list {
		for _, w := range p.words {
			if w.file && !slices.Contains(names, w.text) {
				names = append(names, w.text)
			}
		}
	}
	return names
}
