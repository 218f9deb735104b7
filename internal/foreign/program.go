package foreign

import (
	"strings"
)

// codeOf finds the code in a model's answer, and how much of it has run. The code is
// the answer itself if the answer begins with what has run, otherwise its block between
// fences, otherwise all of it. If there are several blocks, nobody knows which were
// meant to run.
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

// fenced returns the blocks of code between lines that begin with three backquotes. The
// last block need not be closed, because the model may have been cut off.
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

// offsetOf returns how far a source has run: to the end of the executed code, which
// must be the beginning of the source. A statement must end there: "x = 1" does not
// count as the beginning of "x = 10" or of "x = 1 + 1".
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
