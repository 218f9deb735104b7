package drift

import (
	"fmt"
	"math"
	"strconv"
	"time"

	ckpt "github.com/ckptsidecar/ckptsidecar"
)

// String is the threshold in words: "3 in 12".
func (t threshold) String() string {
	value := strconv.FormatFloat(t.value, 'g', 6, 64)
	if t.window == 0 {
		return value
	}
	return value + " in " + strconv.Itoa(t.window)
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

// figure is a number with as many digits as matter.
func figure(x float64) string {
	if x == math.Trunc(x) && math.Abs(x) < 1e15 {
		return strconv.FormatFloat(x, 'f', 0, 64)
	}
	return strconv.FormatFloat(x, 'g', 4, 64)
}

// spentText is a length of time without digits that do not matter.
func spentText(d time.Duration) string {
	switch {
	case d >= time.Hour:
		d = d.Round(time.Minute)
	case d >= time.Minute:
		d = d.Round(time.Second)
	default:
		d = d.Round(time.Millisecond)
	}
	return ckpt.Duration(d).String()
}
