package foreign

import (
	"strings"
)

// codeOf finds the code in a model's answer and how much of it has run: the
// answer itself where it begins with what has run, else its block between
// fences, else all of it. Of several blocks nobody can say which were to run.
func codeOf(answer, executed string) (source string, offset int, why string) {
	blocks := fenced(answer)
	if offset, ok := offsetOf(answer, executed); ok && (executed != "" || len(blocks) == 0) {
		return answer, offset, ""
	}
	switch len(blocks) {
	case 0:
	case 1:
		if offset, ok := offsetOf(blocks[0], executed); ok {
			return blocks[0], offset, ""
		}
	default:
		return "", 0, "its llm_response has several blocks of code, and it is not known which of them were meant to run"
	}
	return "", 0, "its executed_code is not the start of the code in its llm_response"
}

// fenced are the blocks of code between lines that begin with three backquotes.
// The last need not be closed: the model may have been cut off.
func fenced(answer string) (blocks []string) {
	var block strings.Builder
	inside := false
	for line := range strings.SplitAfterSeq(answer, "\n") {
		fence := strings.HasPrefix(strings.TrimLeft(line, " "), "```")
		switch {
		case !fence && inside:
			block.WriteString(line)
		case fence && inside:
			blocks = append(blocks, block.String())
			block.Reset()
			inside = false
		case fence:
			inside = true
		}
	}
	if inside {
		blocks = append(blocks, block.String())
	}
	return blocks
}

// offsetOf is up to where a source has run: to the end of the code that was
// executed, which must be its beginning. "x = 1" has not run as the beginning of
// "x = 10" or of "x = 1 + 1": a statement must end there.
func offsetOf(source, executed string) (int, bool) {
	rest, ok := strings.CutPrefix(source, executed)
	if !ok {
		return 0, false
	}
	if executed == "" || strings.HasSuffix(executed, "\n") {
		return len(executed), true
	}
	gap := len(rest) - len(strings.TrimLeft(rest, " \t"))
	switch next := rest[gap:]; {
	case next == "", next[0] == '\n', next[0] == '#', strings.HasPrefix(next, "\r\n"):
		return len(executed), true
	case next[0] == ';': // it ends the statement, and would be an error at the beginning of the rest
		gap++
		gap += len(rest[gap:]) - len(strings.TrimLeft(rest[gap:], " \t"))
		return len(executed) + gap, true
	}
	return 0, false
}
