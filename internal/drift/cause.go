package drift

import (
	"bytes"
	"encoding/json"
	"slices"
	"strings"

	ckpt "github.com/ckptsidecar/ckptsidecar"
	"github.com/ckptsidecar/ckptsidecar/internal/drift/normalise"
	"github.com/ckptsidecar/ckptsidecar/internal/jsontext"
)

// The limits of the text that is searched for a complaint, and of the arguments that are
// searched for the call's own words. If a step did not fail, a longer text is a document,
// whatever it says.
const (
	maxComplaint = 300
	maxCause     = 400
	maxArgsText  = 4096
	maxOutput    = 4096 // bytes at the end of a long text
	maxExitNote  = 60
)

// causeOf returns the error signature of a step. Two calls with the same problem have the
// same signature, even if each message repeats words of its own call. It is "" if the
// step did not complain.
func causeOf(s *ckpt.Step, result []byte) string {
	failed := s.Status == ckpt.StepFailed
	text := []byte(s.Error)
	if len(text) == 0 || len(result) > 0 && saysOnlyExit(text) {
		text = innerText(result)
	}
	if !failed && !complains(s.Result, text) || isReplaced(text) {
		return ""
	}
	if failed && saysTimedOut(text) {
		return timedOutCause
	}
	masked := maskWords(normalise.Text(complaintIn(text)), ownWords(s))
	if len(masked) == 0 {
		return ""
	}
	return digest(16, masked)
}

// saysOnlyExit reports whether an error is only the exit code of a program. In this case,
// the output of the program says what went wrong.
func saysOnlyExit(text []byte) bool {
	if len(text) > maxExitNote {
		return false
	}
	only := true
	eachWord(text, func(word []byte) {
		only = only && (exitWords[string(bytes.ToLower(word))] || normalise.Digits(word) == len(word))
	})
	return only
}

// complaintIn returns the part of a text that says what went wrong. In a long output
// these are the lines that name an error, and the last ones matter most.
func complaintIn(text []byte) []byte {
	if len(text) <= 2*maxCause {
		return text
	}
	var named []byte
	for line := range bytes.Lines(text[max(0, len(text)-maxOutput):]) {
		if namesError(line) {
			named = append(named, line...)
		}
	}
	if len(named) == 0 {
		return text[:min(len(text), 4*maxCause)]
	}
	return named[max(0, len(named)-maxCause):]
}

// timedOut is the complaint of a call that was stopped because it took too long. Its
// output until then does not matter.
var (
	timedOut       = []byte("timed out")
	timedOutCause  = digest(16, timedOut)
	timedOutNumber = number(timedOutCause)
)

// saysTimedOut reports whether the start or the end of a text says that the call timed
// out.
func saysTimedOut(text []byte) bool {
	first, last := text[:min(len(text), maxCause)], text[max(0, len(text)-maxCause):]
	return bytes.Contains(bytes.ToLower(first), timedOut) || bytes.Contains(bytes.ToLower(last), timedOut)
}

// errorNames are the words with which programs name an error.
var errorNames = []string{"error", "exception", "failed", "failure", "fatal", "panic", "denied", "no such", "not found",
	"cannot", "can't", "timed out", "unable"}

func namesError(line []byte) bool {
	lower := bytes.ToLower(line)
	return slices.ContainsFunc(errorNames, func(word string) bool { return bytes.Contains(lower, []byte(word)) })
}

// innerText unwraps a result that is one text inside arrays, or inside JSON in a string,
// as tools and frameworks write it. It returns any other result unchanged.
func innerText(text []byte) []byte {
	for range 3 {
		trimmed := bytes.TrimSpace(text)
		if len(trimmed) < 2 || len(trimmed) > maxArgsText || trimmed[0] != '[' && trimmed[0] != '"' && trimmed[0] != '{' {
			return text
		}
		var found []string
		if jsontext.Check(trimmed) != nil {
			return text
		}
		texts(trimmed, 0, func(s string) bool {
			found = append(found, s)
			return len(found) < maxTexts
		})
		if len(found) == 0 {
			return text
		}
		text = []byte(strings.Join(found, "\n"))
	}
	return text
}

// complains reports whether the result of a step that did not fail is still a failure: an
// object that says so, or a short text that begins like an error or mentions a temporary
// problem.
func complains(result ckpt.JSON, text []byte) bool {
	if saysFailure(result) {
		return true
	}
	trimmed := bytes.TrimSpace(text)
	if len(trimmed) == 0 || len(trimmed) > maxComplaint {
		return false
	}
	lower := string(bytes.ToLower(bytes.TrimLeft(trimmed, "<[(*#!'\" \t\n")))
	for _, word := range []string{"error", "exception", "traceback", "failed", "failure", "fatal"} {
		if rest, ok := strings.CutPrefix(lower, word); ok && (rest == "" || !normalise.IsWord(rest[0])) {
			return true
		}
	}
	for _, words := range passingTrouble {
		if strings.Contains(lower, words) {
			return true
		}
	}
	return false
}

// passingTrouble are the words of services that are overloaded, slow or unreachable.
var passingTrouble = []string{
	"rate limit", "rate-limit", "too many requests", "quota exceeded", "timed out", "try again", "please retry",
	"retry the", "retry later", "retry after", "temporarily", "unavailable", "overloaded", "connection refused", "connection reset",
	"http error 4", "http error 5", "http 4", "http 5", "bad gateway",
}

// saysFailure reports whether a result is an object that says that it is a failure.
func saysFailure(result ckpt.JSON) bool {
	result = bytes.TrimSpace(result)
	if len(result) < 2 || result[0] != '{' || len(result) > maxArgsText {
		return false
	}
	var members map[string]json.RawMessage
	if json.Unmarshal(result, &members) != nil {
		return false
	}
	for key, value := range members {
		switch key {
		case "isError", "is_error":
			if string(value) == "true" {
				return true
			}
		case "success", "ok":
			if string(value) == "false" {
				return true
			}
		case "error":
			switch string(value) {
			case "null", "false", `""`, "0", "{}", "[]":
			default:
				return true
			}
		}
	}
	return false
}

// ownWords returns the words of a call: its tool and its arguments.
func ownWords(s *ckpt.Step) map[string]bool {
	words := map[string]bool{strings.ToLower(s.Name): true}
	eachWord([]byte(s.Name), func(word []byte) { words[string(bytes.ToLower(word))] = true })
	args := textOf(s.Args)
	eachWord(args[:min(len(args), maxArgsText)], func(word []byte) { words[string(bytes.ToLower(word))] = true })
	return words
}

func eachWord(text []byte, visit func([]byte)) {
	for i := 0; i < len(text); {
		if !normalise.IsWord(text[i]) {
			i++
			continue
		}
		n := normalise.WordLen(text[i:])
		visit(text[i : i+n])
		i += n
	}
}

// maskWords removes from a complaint what belongs to the call and not to the problem: the
// call's own words, quotations and numbers.
func maskWords(text []byte, own map[string]bool) []byte {
	text = bytes.ToLower(text[:min(len(text), maxCause)])
	out := make([]byte, 0, len(text))
	for i := 0; i < len(text); {
		c := text[i]
		switch {
		case c == '\'' && i > 0 && normalise.IsWord(text[i-1]):
			i++ // an apostrophe
		case c == '\'' || c == '"' || c == '`':
			n := quoted(text[i:])
			if n > 1 {
				out = append(out, '"')
			}
			i += n
		case !normalise.IsWord(c):
			if c != ' ' && c != '\n' {
				out = append(out, c)
			}
			i++
		default:
			n := normalise.WordLen(text[i:])
			if word := text[i : i+n]; !own[string(word)] && normalise.Digits(word) < n {
				out = append(append(out, ' '), withoutDigits(word)...)
			}
			i += n
		}
	}
	return bytes.TrimSpace(out)
}

// quoted returns the length of the short quotation at the start of b, or 1.
func quoted(b []byte) int {
	end := bytes.IndexByte(b[1:min(len(b), 100)], b[0])
	if end < 0 {
		return 1
	}
	return end + 2
}

func withoutDigits(word []byte) []byte {
	return slices.DeleteFunc(slices.Clone(word), normalise.IsDigit)
}
