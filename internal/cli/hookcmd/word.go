package hookcmd

import (
	"path/filepath"
	"regexp"
	"runtime"
	"strings"

	ckpt "github.com/ckptsidecar/ckptsidecar"
)

// commandWord quotes a word for the shell that runs hooks.
func commandWord(word string) string { return quote(runtime.GOOS, word) }

// pathWord quotes a path for the shell that runs hooks. On Windows, every shell accepts
// slashes.
func pathWord(path string) string { return quote(runtime.GOOS, filepath.ToSlash(path)) }

// quote quotes a word for any shell that runs hooks on a system. On Windows these are cmd,
// PowerShell and Git's bash, which all accept double quotes. They take a backslash as it
// is, except before a quote.
func quote(system, word string) string {
	if system != "windows" {
		return ckpt.ShellWord(word)
	}
	if word != "" && !strings.ContainsAny(word, " \t\"&|<>^()%!';*?[]$`\\") {
		return word
	}
	word = regexp.MustCompile(`(\\*)"`).ReplaceAllString(word, `${1}${1}\"`)
	word = regexp.MustCompile(`\\+$`).ReplaceAllString(word, `${0}${0}`)
	return `"` + word + `"`
}

// patterns returns regular expressions for the shell that runs hooks. On Windows, Git's bash takes
// a backslash before a backslash, a dollar or a backquote away, also within double quotes. Therefore
// these are written as codes, except in a pattern with a literal part.
func patterns(system string, all []string) []string {
	if system != "windows" {
		return all
	}
	codes := strings.NewReplacer(`\\`, `\x5c`, `\$`, `\x24`, "\\`", `\x60`, "`", `\x60`)
	written := make([]string, len(all))
	for i, pattern := range all {
		if written[i] = pattern; !strings.Contains(pattern, `\Q`) {
			written[i] = codes.Replace(pattern)
		}
	}
	return written
}
