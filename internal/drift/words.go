package drift

import (
	"fmt"
	"strconv"
)

// String is the threshold in words: "3 in 12".
func (t Threshold) String() string {
	value := strconv.FormatFloat(t.Value, 'g', 6, 64)
	if t.Window == 0 {
		return value
	}
	return value + " in " + strconv.Itoa(t.Window)
}

func outOf(n, among int) string { return strconv.Itoa(n) + " in " + strconv.Itoa(among) }

// count is a number and what is counted: "1 step", "3 steps".
func count(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return strconv.Itoa(n) + " " + what + "s"
}

func times(n int) string {
	switch n {
	case 1:
		return "once"
	case 2:
		return "twice"
	}
	return strconv.Itoa(n) + " times"
}

// sentence makes the sentences of the findings.
func sentence(format string, args ...any) string { return fmt.Sprintf(format, args...) }

func b2i(b bool) int {
	if b {
		return 1
	}
	return 0
}
