package manual

import (
	"fmt"
	"io"
	"strings"
)

func zshCompletion(w io.Writer, list []place) {
	fmt.Fprint(w, `#compdef ckptsidecar
# Completion of ckptsidecar for zsh.
_ckptsidecar_words() {
    reply=()
    case "$1" in
`)
	for _, p := range list {
		fmt.Fprintf(w, "    %s) reply=(", quote(p.Path))
		for _, word := range p.words {
			fmt.Fprintf(w, "\n        %s", quote(described(word)))
		}
		fmt.Fprint(w, ") ;;\n")
	}
	fmt.Fprint(w, `    esac
}
_ckptsidecar_names() {
    case "$1" in
`)
	for _, kind := range []string{completeAgents, completeCheckpoints} {
		fmt.Fprintf(w, "    %s) echo %s ;;\n", quoted(list, kind, "|"), kind)
	}
	fmt.Fprint(w, `    esac
}
_ckptsidecar() {
    local here="" next i kind=""
    local -a reply names
    for ((i = 2; i < CURRENT; i++)); do
        next="${here:+$here }${words[i]}"
        _ckptsidecar_words "$next"
        (( ${#reply} )) && here="$next"
    done
    if [[ "${words[CURRENT-1]}" == --run ]]; then
        kind=runs
    elif [[ "${words[CURRENT]}" != -* ]]; then
        kind="$(_ckptsidecar_names "$here")"
    fi
    [[ -n "$kind" ]] && names=(${(f)"$(${words[1]} complete-names $kind "${words[CURRENT]}" 2>/dev/null)"})
    (( ${#names} )) && compadd -- $names
    _ckptsidecar_words "$here"
    _describe ckptsidecar reply || (( ${#names} )) || _files
}
if [[ ${funcstack[1]} == _ckptsidecar ]]; then
    _ckptsidecar "$@" # loaded from a folder of completions, at the first use
else
    compdef _ckptsidecar ckptsidecar
fi
`)
}

// described returns a word and its meaning in the form for zsh.
func described(w word) string {
	if w.help == "" {
		return w.text
	}
	return w.text + ":" + strings.ReplaceAll(w.help, ":", "\\:")
}

// quote returns a word in single quotes, which every Unix shell understands.
func quote(s string) string { return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'" }

func fishCompletion(w io.Writer, list []place) {
	fmt.Fprintln(w, "# Completion of ckptsidecar for fish.")
	for _, p := range list {
		condition := "__fish_use_subcommand"
		if p.Path != "" {
			condition = "__fish_seen_subcommand_from " + strings.ReplaceAll(p.Path, " ", "; and __fish_seen_subcommand_from ")
		}
		for _, word := range p.words {
			fmt.Fprintln(w, fishLine(condition, word))
		}
		if p.names != "" {
			fmt.Fprintf(w, "complete -c ckptsidecar -n %s -a '(ckptsidecar complete-names %s (commandline -ct) 2>/dev/null)'\n",
				fishQuote(condition), p.names)
		}
	}
}

func fishLine(condition string, w word) string {
	line := fmt.Sprintf("complete -c ckptsidecar -n %s", fishQuote(condition))
	switch {
	case w.file:
		line += " -r -l " + strings.TrimPrefix(w.text, "--")
	case w.flag:
		line += " -l " + strings.TrimPrefix(w.text, "--")
	default:
		line += " -a " + w.text
	}
	if w.help != "" {
		line += " -d " + fishQuote(w.help)
	}
	return line
}

func fishQuote(s string) string {
	return "'" + strings.NewReplacer(`\`, `\\`, "'", `\'`).Replace(s) + "'"
}

func powershellCompletion(w io.Writer, list []place) {
	fmt.Fprint(w, `# Completion of ckptsidecar for PowerShell.
$ckptsidecarWords = @{
`)
	for _, p := range list {
		fmt.Fprintf(w, "    '%s' = '%s'\n", p.Path, texts(p.words))
	}
	fmt.Fprint(w, `}
$ckptsidecarNames = @{
`)
	for _, p := range list {
		if p.names != "" {
			fmt.Fprintf(w, "    '%s' = '%s'\n", p.Path, p.names)
		}
	}
	fmt.Fprint(w, `}
Register-ArgumentCompleter -Native -CommandName ckptsidecar -ScriptBlock {
    param($word, $ast, $position)
    $here = ''
    foreach ($element in $ast.CommandElements | Select-Object -Skip 1) {
        $next = "$here $element".Trim()
        if ($ckptsidecarWords.ContainsKey($next)) { $here = $next }
    }
    $offers = $ckptsidecarWords[$here] -split ' '
    if ($ckptsidecarNames.ContainsKey($here)) { $offers += @(& ckptsidecar complete-names $ckptsidecarNames[$here] "$word" 2>$null) }
    $offers | Where-Object { $_ -like "$word*" } |
        ForEach-Object { [System.Management.Automation.CompletionResult]::new($_) }
}
`)
}

// quoted returns the quoted paths of the places where the daemon completes names of a kind.
func quoted(list []place, kind, between string) string {
	var paths []string
	for _, p := range list {
		if p.names == kind {
			paths = append(paths, quote(p.Path))
		}
	}
	return strings.Join(paths, between)
}
