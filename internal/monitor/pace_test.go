package monitor

import (
	"testing"
	"time"
)

// TestPace: a short limit is checked more often, but never without a pause, and
// a long one at least once per interval.
func TestPace(t *testing.T) {
	for tight, want := range map[time.Duration]time.Duration{
		0: time.Second, time.Minute: time.Second, 8 * time.Second: time.Second, 4 * time.Second: 500 * time.Millisecond,
		time.Second: 125 * time.Millisecond, 80 * time.Millisecond: quickest,
	} {
		if got := (&Monitor{tight: tight}).pace(); got != want {
			t.Errorf("with a limit of %s it looks every %s, want %s", tight, got, want)
		}
	}
}
