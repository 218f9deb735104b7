package drift

import (
	"slices"
	"strings"

	"github.com/ckptsidecar/ckptsidecar/internal/drift/normalise"
)

// effectOfCommands returns which work of the agent a command line reverts: files of a
// working tree that go back to the committed version, or all of them. It is "" for other
// commands.
func effectOfCommands(commands [][]string) string {
	for _, command := range commands {
		if command[0] != "git" {
			continue
		}
		if files, takesBack := takenBack(command[1:]); takesBack {
			slices.Sort(files)
			return effectOf("git", strings.Join(files, "\x00"), "as committed")
		}
	}
	return ""
}

// takenBack returns the files that a git command reverts; none means all of them.
func takenBack(words []string) (files []string, ok bool) {
	for len(words) > 1 && strings.HasPrefix(words[0], "-") { // as in git -C DIR, git -c NAME=VALUE
		words = words[min(2, len(words)-1):]
	}
	if len(words) == 0 {
		return nil, false
	}
	var plain []string
	paths, staged, creates := false, false, false
	for _, w := range words[1:] {
		switch {
		case w == "--":
			paths = true
			plain = nil
		case w == "--staged" || w == "--cached" || w == "--soft" || w == "--mixed":
			staged = true
		case w == "-b" || w == "-B" || w == "--track" || w == "--orphan" || w == "--detach":
			creates = true
		case !strings.HasPrefix(w, "-"):
			plain = append(plain, w)
		}
	}
	switch words[0] {
	case "checkout":
		if len(plain) > 1 && plain[0] == "HEAD" {
			plain = plain[1:]
			paths = true
		}
		return plain, len(plain) > 0 && !creates && (paths || slices.ContainsFunc(plain, looksLikeFile))
	case "restore":
		return plain, len(plain) > 0 && !staged
	case "reset":
		return nil, slices.Contains(words, "--hard")
	}
	return nil, false
}

// looksLikeFile distinguishes a file from a branch.
func looksLikeFile(word string) bool {
	name := word[strings.LastIndexByte(word, '/')+1:]
	dot := strings.LastIndexByte(name, '.')
	return word == "." || dot >= 0 && dot+1 < len(name) && normalise.IsLetter(name[dot+1])
}

// The names that editing tools give to a file and to the written content.
var (
	fileNames    = []string{"file_path", "path", "filename", "file", "target_file", "notebook_path"}
	oldNames     = []string{"old_string", "old_str", "old_text", "search"}
	newNames     = []string{"new_string", "new_str", "new_text", "replace", "content", "contents", "file_text", "new_source"}
	minEffective = 8 // least bytes of written content; less can be the same by chance
)

// effectOfEdit returns which content a call of an editing tool writes into which file. It
// is "" for other calls.
func effectOfEdit(members map[string][]byte) string {
	file, written := firstText(members, fileNames), firstText(members, newNames)
	if file == "" || len(written) < minEffective || isReplaced([]byte(written)) {
		return ""
	}
	return effectOf(file, firstText(members, oldNames), written)
}

func firstText(members map[string][]byte, names []string) string {
	for _, name := range names {
		if value := members[name]; len(value) > 0 && value[0] == '"' {
			return stringOf(value)
		}
	}
	return ""
}

func effectOf(parts ...string) string {
	list := make([][]byte, 0, 2*len(parts))
	for _, part := range parts {
		list = append(list, []byte(part), []byte{0})
	}
	return digest(16, list...)
}
