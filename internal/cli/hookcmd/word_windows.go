package hookcmd

import "strings"

// commandWord quotes a word for whatever shell calls hooks: cmd, PowerShell and
// Git's bash all take double quotes, and slashes in paths.
func commandWord(word string) string {
	if word != "" && !strings.ContainsAny(word, " \t\"&|<>^()%!';*?[]$`\\") {
		return word
	}
	return `"` + strings.ReplaceAll(strings.ReplaceAll(word, `\`, "/"), `"`, `\"`) + `"`
}
