package hook

import (
	"encoding/json"
	"regexp"
	"strconv"
	"strings"

	ckpt "github.com/ckptsidecar/ckptsidecar"
)

// Outcome is negative where a command answered with no and did not fail: a
// search that found nothing, two files that differ.
func (in *Input) Outcome() ckpt.Ref {
	line, shell := in.command()
	code, output := in.exit()
	if !shell || code != 1 {
		return ""
	}
	if strings.TrimSpace(output) == "" { // it would have said what was wrong
		return ckpt.StepNegative
	}
	commands := commandsOf(limit(line, maxLine))
	if len(commands) == 0 {
		return ""
	}
	words := strings.Fields(commands[len(commands)-1]) // the one whose exit code it is
	if len(words) > 0 && saysNo(words, output) {
		return ckpt.StepNegative
	}
	return ""
}

// saysNo says whether the exit code 1 of a command means no, whatever it has
// written. What could not be done has 2 or more, except for find, which has 1
// where it may not look into a folder.
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

// claudeExit is how Claude Code tells that a command failed: its exit code, and
// on the next lines all that it wrote.
var claudeExit = regexp.MustCompile(`^Exit code (\d+)(?:\n|$)`)

// exit is the exit code of a command and what it has written; 0 where no code
// is told.
func (in *Input) exit() (code int, output string) {
	if m := claudeExit.FindStringSubmatch(in.Error); m != nil {
		code, _ = strconv.Atoi(m[1])
		return code, in.Error[len(m[0]):]
	}
	var r struct {
		Code   *int   `json:"exit_code"`
		ExitOf *int   `json:"exitCode"`
		Output string `json:"output"`
		Stdout string `json:"stdout"`
		Stderr string `json:"stderr"`
		Meta   struct {
			Code *int `json:"exit_code"`
		} `json:"metadata"`
	}
	if json.Unmarshal(in.ToolResponse, &r) != nil {
		return 0, ""
	}
	for _, c := range []*int{r.Code, r.ExitOf, r.Meta.Code} {
		if c != nil {
			return *c, r.Output + r.Stdout + r.Stderr
		}
	}
	return 0, ""
}
