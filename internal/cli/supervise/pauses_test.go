package supervise

import (
	"testing"
	"time"

	ckpt "github.com/ckptsidecar/ckptsidecar"
)

// TestPausesBeforeRestartsAreCapped: a command is started again within
// --max-backoff, however often it has crashed, and for any jitter.
func TestPausesBeforeRestartsAreCapped(t *testing.T) {
	c := &Command{Backoff: ckpt.Duration(time.Millisecond), MaxBackoff: ckpt.Duration(time.Second)}
	s := &supervisor{cmd: c, pauses: c.pauses()}
	for n := range 500 {
		pause := s.nextPause()
		if pause <= 0 || pause > time.Second {
			t.Fatalf("pause %d is %s", n+1, pause)
		}
		if n > 20 && pause < time.Second/4 {
			t.Fatalf("pause %d is %s: they should have grown", n+1, pause)
		}
	}
}
