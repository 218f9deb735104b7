package foreign

import (
	"strings"
)

// sources are what may be the code in a model's answer, the likeliest first:
// each fenced block by itself; all of them in a row, if they are several; and
// the answer as it stands.
func sources(answer string) []string {
	blocks := fenced(answer)
	list := blocks
	if len(blocks) > 1 {
		list = append(list, strings.Join(blocks, ""))
	}
	return append(list, answer)
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
