package drift

import (
	"bytes"
	"encoding/json"
	"io"
	"strings"
	"unicode/utf8"

	ckpt "github.com/ckptsidecar/ckptsidecar"
	"github.com/ckptsidecar/ckptsidecar/internal/drift/normalise"
	"github.com/ckptsidecar/ckptsidecar/internal/drift/observer"
	"github.com/ckptsidecar/ckptsidecar/internal/jsontext"
)

// printOf makes the fingerprint of a step that has ended.
func printOf(s *ckpt.Step) observer.StepPrint {
	call := callOf(s.Name, s.Args)
	print := observer.StepPrint{
		Key: s.Key, Tool: s.Name, Sig: observer.UnknownCall, Shape: call.shape, Effect: call.effect, Turn: string(s.Turn),
		Failed: s.Status == ckpt.StepFailed, Negative: isNegative(s), Began: s.StartedAt.Time, At: s.EndedAt.Time, Measures: s.Measures,
	}
	if call.known {
		print.Sig = sigOf(s.Name, s.Args)
	}
	result := textOf(s.Result)
	if normal := normalise.Text(knownOutcome(s, result)); len(normal) > 0 {
		print.Res = digest(32, normal)
	}
	print.Unparsable = unparsable(s.Result)
	if !print.Negative {
		print.Cause = causeOf(s, result)
	}
	return print
}

// knownOutcome returns the result of a step, or its error if it has no result. It is
// empty if that was redacted or cut on the way to the daemon.
func knownOutcome(s *ckpt.Step, result []byte) []byte {
	switch {
	case len(result) > 0:
		if len(s.Result) <= maxCallArgs && resultSaysTooLittle(s.Result, result) {
			return nil
		}
		return result
	case isReplaced([]byte(s.Error)):
		return nil
	}
	return []byte(s.Error)
}

// resultSaysTooLittle is saysTooLittle for a result whose text is known.
func resultSaysTooLittle(value ckpt.JSON, text []byte) bool {
	if bytes.TrimSpace(value)[0] == '"' {
		return isReplaced(text)
	}
	return isMarked(value) && saysTooLittle(value, 0)
}

// sigOf returns the hash of a call: its tool, and its arguments in canonical form.
func sigOf(tool string, args ckpt.JSON) string {
	canonical, err := jsontext.Canonical(args)
	if err != nil {
		canonical = args // the arguments are no valid JSON, but they still identify the call
	}
	return digest(32, []byte(tool), []byte{0}, canonical)
}

// unparsable reports whether a text in a result begins like JSON and cannot be parsed. It
// also looks into JSON inside a text. A text that says that it was cut is not judged.
func unparsable(result ckpt.JSON) bool {
	return bytes.ContainsAny(result, "{[") && brokenText(result, 2)
}

func brokenText(value []byte, deeper int) bool {
	broken := false
	texts(value, 0, func(s string) bool {
		if beginsLikeJSON(s) && !saysItWasCut(s) && !isCutOff(s) {
			broken = !isJSONs(s) || deeper > 0 && brokenText([]byte(s), deeper-1)
		}
		return !broken
	})
	return broken
}

// beginsLikeJSON reports whether a text begins with a brace followed by a name or
// nothing, or with a bracket followed by a text, an object or an array that begins like
// JSON itself. A bracket followed by a word or a number is a log line. Brackets can also
// begin a list as Python prints it, a table of TOML or a test of a shell.
func beginsLikeJSON(s string) bool {
	rest := bytes.TrimLeft([]byte(s[:min(len(s), 256)]), " \t\r\n\ufeff")
	for depth := 0; len(rest) > 1; depth++ {
		first := rest[0]
		rest = bytes.TrimLeft(rest[1:], " \t\r\n")
		if len(rest) == 0 {
			return depth > 0
		}
		switch {
		case first == '{':
			return rest[0] == '"' || rest[0] == '}'
		case first != '[':
			return false
		case rest[0] == '[' || rest[0] == '{':
			if len(rest) == 1 {
				return true
			}
		default:
			return rest[0] == '"' || depth > 0 && beginsValue(rest)
		}
	}
	return false
}

// beginsValue reports whether a text begins with the end of an array, a number, or a word
// of JSON.
func beginsValue(b []byte) bool {
	for _, word := range []string{"true", "false", "null"} {
		if bytes.HasPrefix(b, []byte(word)) {
			return len(b) == len(word) || !normalise.IsWord(b[len(word)])
		}
	}
	if b[0] == '-' {
		b = b[1:]
	}
	return len(b) > 0 && (b[0] == ']' || normalise.IsDigit(b[0]))
}

func saysItWasCut(s string) bool {
	for _, mark := range []string{"...", "…", "truncated", "omitted"} {
		if bytes.Contains([]byte(s), []byte(mark)) {
			return true
		}
	}
	return false
}

// isJSONs reports whether a text is one JSON value or several in a row. Lines of words may
// follow: tools add hints.
func isJSONs(s string) bool {
	decoder := json.NewDecoder(strings.NewReader(s))
	for {
		end := decoder.InputOffset()
		var value json.RawMessage
		if err := decoder.Decode(&value); err != nil {
			return err == io.EOF || end > 0 && isHint(s[end:])
		}
	}
}

// isHint reports whether what follows a JSON value is lines of words.
func isHint(rest string) bool {
	words := strings.TrimLeft(rest, " \t\r\n")
	return strings.Contains(rest[:len(rest)-len(words)], "\n") && !strings.ContainsAny(words[:min(1, len(words))], "]},:") && !beginsLikeJSON(words)
}

// leastCut is the least round length at which a tool cuts its result.
const leastCut = 1000

// isCutOff reports whether a text has a round length: a tool cut it.
func isCutOff(s string) bool {
	n := utf8.RuneCountInString(s)
	return n >= leastCut && (n%500 == 0 || n%1024 == 0) || len(s) >= leastCut && (len(s)%500 == 0 || len(s)%1024 == 0)
}
