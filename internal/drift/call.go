package drift

import (
	"bytes"
	"encoding/json"
	"path"
	"slices"
	"strings"

	ckpt "github.com/ckptsidecar/ckptsidecar"
	"github.com/ckptsidecar/ckptsidecar/internal/jsontext"
)

// call is the part of a step's call that the detectors need.
type call struct {
	known  bool   // all arguments are known, so that two calls can be compared
	shape  string // the kind of work that it does
	effect string // what it sets, and to which value; "" if that is unknown or it sets nothing
}

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
	members := argumentsOf(args)
	commands := commandsIn(tool, args, members)
	switch {
	case len(commands) > 0:
		c.shape = digest(16, []byte("command"), []byte{0}, []byte(shapeOf(commands)))
		c.effect = effectOfCommands(commands)
	default:
		c.shape = digest(16, []byte("args"), []byte{0}, []byte(strings.Join(sortedKeys(members, maxTexts), "\x00")))
		c.effect = effectOfEdit(members)
	}
	return c
}

// commandNames are the arguments that contain a command line.
var commandNames = []string{"command", "cmd", "commands", "script"}

// shellWords are words in the names of tools whose only argument is a command line.
var shellWords = []string{"bash", "shell", "exec", "terminal", "powershell", "run_command"}

// argumentsOf returns the members of the arguments object of a call, or nil if the
// arguments are no object.
func argumentsOf(value []byte) map[string][]byte {
	if len(value) == 0 || value[0] != '{' {
		return nil
	}
	members := map[string][]byte{}
	if !jsontext.Members(value, func(name string, value []byte) bool {
		members[name] = value
		return true
	}) {
		return nil
	}
	return members
}

// commandsIn returns the commands that a call runs, if any.
func commandsIn(tool string, args []byte, members map[string][]byte) (commands [][]string) {
	if args[0] == '"' {
		lower := strings.ToLower(tool)
		if slices.ContainsFunc(shellWords, func(w string) bool { return strings.Contains(lower, w) }) {
			return splitCommands(stringOf(args))
		}
		return nil
	}
	for _, name := range commandNames {
		if commands = splitCommands(lineOf(members[name])); len(commands) > 0 {
			return commands
		}
	}
	return nil
}

// lineOf returns a command line that is given as a text or as a list of words.
func lineOf(value []byte) string {
	if len(value) == 0 {
		return ""
	}
	var words []string
	if value[0] == '[' && json.Unmarshal(value, &words) == nil {
		if len(words) == 3 && strings.HasPrefix(words[1], "-") && strings.HasSuffix(words[1], "c") {
			return words[2] // the words are sh -c LINE
		}
		return strings.Join(words, " ")
	}
	return stringOf(value)
}

// shapeOf returns the kind of work that a command line does. It is the name of the main
// command. For a program that does many things, such as git, its subcommand follows.
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

// quickWords are commands that do not show the purpose of a command line.
var quickWords = map[string]bool{"cd": true, "echo": true, "export": true, "set": true, "true": true, "pwd": true,
	"source": true, ".": true, "sleep": true,
	"head": true, "tail": true, "cat": true, "printf": true, "mkdir": true, "then": true, "fi": true, "do": true,
	"done": true, "sort": true, "wc": true}

// manyThings are programs whose first plain argument shows what they do.
var manyThings = map[string]bool{"git": true, "go": true, "cargo": true, "npm": true, "pnpm": true, "yarn": true,
	"npx": true, "pip": true, "pip3": true, "uv": true,
	"make": true, "docker": true, "kubectl": true, "python": true, "python3": true, "apt": true, "apt-get": true, "mvn": true,
	"gradle": true, "dotnet": true,
	"terraform": true, "helm": true, "bazel": true, "poetry": true, "gh": true}

// commandWord returns the name of a command without its folder.
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
		if strings.HasPrefix(word, "python") { // the module, or the name of the script
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
