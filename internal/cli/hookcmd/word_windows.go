package hookcmd

import "strings"

// commandWord quotes a word for any shell that runs hooks: cmd, PowerShell and Git's bash
// all accept double quotes, and slashes in paths.
func commandWord(word string) string {
	if word != "" && !strings.ContainsAny(word, " \t\"&|<>^()%!';*?[]$`\\") {
		return word
	}
	return `"` + strings.ReplaceAll(strings.ReplaceAll(word, `\`, "/"), `"`, `\"`) + `"`
}
