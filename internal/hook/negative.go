package hook

import (
	"regexp"
	"strconv"
	"strings"

	ckpt "github.com/ckptsidecar/ckptsidecar"
)

// Outcome returns StepNegative if a command answered no and did not fail: for example,
// a search found nothing, or two files differ.
func (in *Input) Outcome() ckpt.Ref {
	line, shell := in.command()
	code, output := in.exit()
	if !shell || code != 1 {
		return ""
	}
	if strings.TrimSpace(output) == "" { // a failure would have said what was wrong
		return ckpt.StepNegative
	}
	if words := lastOf(limit(line, maxLine)); len(words) > 0 && saysNo(words, output) {
		return ckpt.StepNegative
	}
	return ""
}

// saysNo reports whether the exit code 1 of a command means no, although it has written
// something. These commands fail with 2 or more, except for find, which returns 1 if it
// may not read a folder.
func saysNo(words []string, output string) bool {
	switch words[0] {
	case "diff", "cmp", "comm", "colordiff":
		return true
	case "git":
		return len(words) > 1 && (words[1] == "diff" || words[1] == "grep")
	case "which", "command", "type", "pgrep", "grep", "egrep", "fgrep", "rg", "ag", "ack", "test", "[", "[[":
		return everyLine(output, noSuchCommand)
	case "find":
		return everyLine(output, mayNotLook)
	}
	return false
}

var (
	noSuchCommand = regexp.MustCompile(`(?i)^(\S*which: )?no \S+ in \(|not found$`)
	mayNotLook    = regexp.MustCompile(`^find: .*: Permission denied$|^[^:]*$`)
)

func everyLine(text string, is *regexp.Regexp) bool {
	for _, line := range strings.Split(strings.TrimSpace(text), "\n") {
		if !is.MatchString(strings.TrimSpace(line)) {
			return false
		}
	}
	return true
}

// claudeExit is how Claude Code reports that a command failed: its exit code, and its
// output on the next lines.
var claudeExit = regexp.MustCompile(`^Exit code (\d+)(?:\n|$)`)

// exit returns the exit code of a command and its output; 0 if the input has no exit
// code.
func (in *Input) exit() (code int, output string) {
	if m := claudeExit.FindStringSubmatch(in.Error); m != nil {
		code, _ = strconv.Atoi(m[1])
		return code, in.Error[len(m[0]):]
	}
	if end := in.reported(); end != nil && end.code != nil {
		return *end.code, end.output
	}
	return 0, ""
}
