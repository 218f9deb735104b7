package drift

import (
	"bytes"
	"encoding/json"
	"path"
	"slices"
	"strings"

	ckpt "github.com/ckptsidecar/ckptsidecar"
)

// call is what a step asked for, as far as the detectors need it.
type call struct {
	known  bool   // all of the arguments are there, so that two calls can be compared
	shape  string // what kind of work it is
	effect string // what it sets to what; "" where it sets nothing that is known
}

// maxCallArgs is the size of the largest arguments that are looked into. Larger
// ones are compared as a whole all the same.
const maxCallArgs = 1 << 20

// callOf reads a call.
func callOf(tool string, args ckpt.JSON) call {
	args = bytes.TrimSpace(args)
	if len(args) == 0 || string(args) == "null" {
		return call{}
	}
	c := call{known: true}
	if len(args) > maxCallArgs {
		return c
	}
	c.known = !isMarked(args) || !saysTooLittle(args, 0)
	commands, other := commandsIn(tool, args)
	switch {
	case len(commands) > 0:
		c.shape = digest(16, []byte("command"), []byte{0}, []byte(shapeOf(commands)))
		c.effect = effectOfCommands(commands)
	default:
		c.shape = digest(16, []byte("args"), []byte{0}, []byte(strings.Join(other, "\x00")))
		c.effect = effectOfEdit(args)
	}
	return c
}

// stems are in every mark of what was replaced or cut.
var stems = [][]byte{
	[]byte("edact"), []byte("EDACT"), []byte("emoved"), []byte("EMOVED"), []byte("ask"), []byte("ASK"), []byte("idden"),
	[]byte("IDDEN"), []byte("ilter"), []byte("ILTER"),
	[]byte("crub"), []byte("CRUB"), []byte("mitted"), []byte("MITTED"), []byte("runcat"), []byte("RUNCAT"), []byte("cut"),
	[]byte("CUT"), []byte("lided"), []byte("LIDED"),
	[]byte("lipped"), []byte("LIPPED"), []byte("***"),
}

// isMarked says whether a value may say that something was replaced or cut. Most
// say nothing like it, and are not taken apart to find out.
func isMarked(value []byte) bool {
	return slices.ContainsFunc(stems, func(stem []byte) bool { return bytes.Contains(value, stem) })
}

// saysTooLittle says whether a part of the arguments was replaced or cut on the
// way here, so that what differs between two calls may be missing. What stands
// in the place of a secret does not count: a secret is the same each time.
func saysTooLittle(value []byte, depth int) bool {
	if depth > maxTextDepth {
		return false
	}
	value = bytes.TrimSpace(value)
	if len(value) == 0 {
		return false
	}
	switch value[0] {
	case '"':
		return isReplaced(stringOf(value))
	case '[':
		var items []json.RawMessage
		if json.Unmarshal(value, &items) != nil {
			return false
		}
		return slices.ContainsFunc(items[:min(len(items), maxTexts)], func(item json.RawMessage) bool { return saysTooLittle(item, depth+1) })
	case '{':
		return objectSaysTooLittle(value, depth)
	}
	return false
}

func objectSaysTooLittle(value []byte, depth int) bool {
	var members map[string]json.RawMessage
	if json.Unmarshal(value, &members) != nil {
		return false
	}
	if isCutMark(members) {
		return true
	}
	for key, member := range members {
		if !isSecretName(key) && saysTooLittle(member, depth+1) {
			return true
		}
	}
	return false
}

// isCutMark says whether an object stands for a longer value that it does not
// tell from others. With a hash it does.
func isCutMark(members map[string]json.RawMessage) bool {
	cut := false
	for _, name := range []string{"cut", "truncated", "redacted"} {
		cut = cut || string(members[name]) == "true"
	}
	return cut && members["sha256"] == nil
}

// isSecretName says whether a member is one that programs keep secrets in.
func isSecretName(name string) bool {
	name = strings.ToLower(name)
	for _, word := range []string{"password", "passwd", "secret", "token", "api_key", "apikey", "api-key", "authorization", "credential", "cookie"} {
		if strings.Contains(name, word) {
			return true
		}
	}
	return false
}

// The words that recorders write in the place of what they leave out, with
// whatever brackets and punctuation around them.
var (
	replacedWords = []string{"redacted", "removed", "masked", "hidden", "filtered", "scrubbed", "omitted", "truncated"}
	cutWords      = []string{"truncated", "cut off", "omitted", "elided", "clipped"}
)

// maxCutMark is how long a note at the end of a text may be that says that the
// text was cut.
const maxCutMark = 80

// isReplaced says whether a text stands for another, or was cut at its end: the
// whole text is a mark such as __REDACTED__, or it ends with one such as
// "[truncated]" in brackets.
func isReplaced(s string) bool {
	s = strings.TrimSpace(s)
	if s == "" {
		return false
	}
	if len(s) <= maxCutMark {
		word := strings.ToLower(strings.Trim(s, "_[]<>(){}*#-.…\"' "))
		if slices.Contains(replacedWords, word) || word == "" && strings.Trim(s, "*") == "" && len(s) >= 3 {
			return true
		}
	}
	tail := s[max(0, len(s)-maxCutMark):]
	open := strings.LastIndexAny(tail, "[<(")
	if open < 0 || !strings.ContainsAny(tail[len(tail)-1:], "]>)") {
		return false
	}
	tail = strings.ToLower(tail[open:])
	return slices.ContainsFunc(cutWords, func(w string) bool { return strings.Contains(tail, w) })
}

// commandNames are the arguments that hold a command line.
var commandNames = []string{"command", "cmd", "commands", "script"}

// shellWords are the words in the names of tools whose only argument is a
// command line.
var shellWords = []string{"bash", "shell", "exec", "terminal", "powershell", "run_command"}

// commandsIn are the commands of a call that runs some, else the names of its
// arguments.
func commandsIn(tool string, args []byte) (commands [][]string, names []string) {
	if args[0] == '"' {
		lower := strings.ToLower(tool)
		if slices.ContainsFunc(shellWords, func(w string) bool { return strings.Contains(lower, w) }) {
			return splitCommands(stringOf(args)), nil
		}
		return nil, nil
	}
	var members map[string]json.RawMessage
	if args[0] != '{' || json.Unmarshal(args, &members) != nil {
		return nil, nil
	}
	for _, name := range commandNames {
		if commands = splitCommands(lineOf(members[name])); len(commands) > 0 {
			return commands, nil
		}
	}
	return nil, sortedKeys(members, maxTexts)
}

// lineOf is a command line that is written as a text or as a list of words.
func lineOf(value json.RawMessage) string {
	if len(value) == 0 {
		return ""
	}
	var words []string
	if value[0] == '[' && json.Unmarshal(value, &words) == nil {
		if len(words) == 3 && strings.HasPrefix(words[1], "-") && strings.HasSuffix(words[1], "c") {
			return words[2] // sh -c LINE
		}
		return strings.Join(words, " ")
	}
	return stringOf(value)
}

// shapeOf says what kind of work a command line does: the word of the command
// that does it, and of programs that do many things what they do.
func shapeOf(commands [][]string) string {
	var words []string
	for _, command := range commands {
		word := commandWord(command)
		if !quickWords[word] && !slices.Contains(words, word) {
			words = append(words, word)
		}
		if len(words) == 3 {
			break
		}
	}
	if len(words) == 0 && len(commands) > 0 {
		words = append(words, commandWord(commands[0]))
	}
	return strings.Join(words, " ")
}

// quickWords are commands that say nothing of what a line is for.
var quickWords = map[string]bool{"cd": true, "echo": true, "export": true, "set": true, "true": true, "pwd": true,
	"source": true, ".": true, "sleep": true,
	"head": true, "tail": true, "cat": true, "printf": true, "mkdir": true, "then": true, "fi": true, "do": true, "done": true, "sort": true, "wc": true}

// manyThings are programs whose first plain argument says what they do.
var manyThings = map[string]bool{"git": true, "go": true, "cargo": true, "npm": true, "pnpm": true, "yarn": true,
	"npx": true, "pip": true, "pip3": true, "uv": true,
	"make": true, "docker": true, "kubectl": true, "python": true, "python3": true, "apt": true, "apt-get": true, "mvn": true,
	"gradle": true, "dotnet": true,
	"terraform": true, "helm": true, "bazel": true, "poetry": true, "gh": true}

// commandWord is the name of a command without its folder.
func commandWord(command []string) string {
	word := path.Base(strings.ReplaceAll(command[0], "\\", "/"))
	if !manyThings[word] {
		return word
	}
	skip := false
	for _, w := range command[1:] {
		if skip || strings.HasPrefix(w, "-") {
			skip = !skip && word == "git" && (w == "-C" || w == "-c")
			continue
		}
		if strings.HasPrefix(word, "python") { // the module, or whatever script
			if slices.Contains(command, "-m") {
				return word + " " + w
			}
			return word
		}
		if isPlainWord(w) {
			return word + " " + w
		}
		break
	}
	return word
}

func isPlainWord(w string) bool {
	for _, c := range w {
		if (c < 'a' || c > 'z') && c != '-' && c != ':' {
			return false
		}
	}
	return w != ""
}
