package drift

import (
	"strconv"
	"time"

	ckpt "github.com/ckptsidecar/ckptsidecar"
)

// String returns the threshold in words: "3 in 12".
func (t threshold) String() string {
	value := strconv.FormatFloat(t.value, 'g', 6, 64)
	if t.window == 0 {
		return value
	}
	return value + " in " + strconv.Itoa(t.window)
}

func outOf(n, among int) string { return strconv.Itoa(n) + " in " + strconv.Itoa(among) }

func b2i(b bool) int {
	if b {
		return 1
	}
	return 0
}

// spentText returns a length of time without insignificant digits.
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
