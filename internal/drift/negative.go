package drift

import (
	"bytes"
	"encoding/json"
	"strings"

	ckpt "github.com/ckptsidecar/ckptsidecar"
	"github.com/ckptsidecar/ckptsidecar/internal/drift/normalise"
)

// isNegative reports whether a step has a negative answer: the agent said so, or the step
// failed without saying what went wrong, such as a search that finds nothing. A step with
// an unknown result is not negative.
func isNegative(s *ckpt.Step) bool {
	if s.Outcome == ckpt.StepNegative {
		return true
	}
	if s.Status != ckpt.StepFailed || len(s.Result) == 0 || len(s.Result) > maxArgsText {
		return false
	}
	result := bytes.TrimSpace(s.Result)
	if string(result) == "null" {
		return false
	}
	return saysNothing("", result, 0) && isSilent(string(s.Error))
}

// saysNothing reports whether a JSON value has no text with a word in it, and no exit
// code of a program that could not do its work.
func saysNothing(name string, value []byte, depth int) bool {
	value = bytes.TrimSpace(value)
	if len(value) == 0 {
		return true
	}
	if depth > maxTextDepth {
		return false
	}
	switch value[0] {
	case '"':
		return isSilent(stringOf(value))
	case '[':
		var items []json.RawMessage
		if json.Unmarshal(value, &items) != nil {
			return false
		}
		for _, item := range items {
			if !saysNothing("", item, depth+1) {
				return false
			}
		}
		return true
	case '{':
		var members map[string]json.RawMessage
		if json.Unmarshal(value, &members) != nil {
			return false
		}
		for key, member := range members {
			if key != "type" && !saysNothing(key, member, depth+1) {
				return false
			}
		}
		return true
	case 't', 'f', 'n':
		return true
	}
	return !namesExit(name) || string(value) == "0" || string(value) == "1"
}

// namesExit reports whether a member is an exit code or the status of an answer.
func namesExit(name string) bool {
	name = strings.ToLower(name)
	return strings.Contains(name, "code") || strings.Contains(name, "status") || strings.Contains(name, "exit")
}

// exitWords are the words with which tools report an exit code, or that there is nothing
// to report.
var exitWords = map[string]bool{
	"exit": true, "exited": true, "code": true, "status": true, "returncode": true, "return": true, "returned": true, "rc": true, "with": true,
	"non": true, "zero": true, "nonzero": true, "no": true, "output": true, "the": true, "command": true, "process": true,
	"failed": true, "finished": true,
	"stdout": true, "stderr": true, "empty": true,
}

// isSilent reports whether a text has no words except markup and exitWords, and no number
// except 1: other exit codes come from programs that could not do their work.
func isSilent(s string) bool {
	if len(s) > maxComplaint {
		return false
	}
	b := bytes.ToLower([]byte(s))
	silent := true
	for i := 0; i < len(b) && silent; {
		switch {
		case b[i] == '<':
			end := bytes.IndexByte(b[i:], '>')
			if end < 0 {
				return false
			}
			i += end + 1
		case normalise.IsWord(b[i]):
			n := normalise.WordLen(b[i:])
			word := string(b[i : i+n])
			silent = exitWords[word] || word == "1"
			i += n
		default:
			i++
		}
	}
	return silent
}
