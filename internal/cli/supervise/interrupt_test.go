package supervise

import (
	"io"
	"syscall"
	"testing"
	"time"

	ckpt "github.com/ckptsidecar/ckptsidecar"
	"github.com/ckptsidecar/ckptsidecar/internal/cli"
)

// TestCtrlCEndsACommandHoweverLongItTakes: the terminal sends Ctrl-C to the command itself, which may still finish a
// call. It does not start again, unless the key was pressed in an earlier attempt, for example in a prompt of its own.
func TestCtrlCEndsACommandHoweverLongItTakes(t *testing.T) {
	t.Parallel()
	now := time.Now()
	for _, test := range []struct {
		name    string
		pressed time.Duration // how long ago
		code    int
		again   bool
	}{
		{"the command reports that it was interrupted", 2 * grace, 1, false},
		{"the signal ends it", 2 * grace, 128 + int(syscall.SIGINT), false},
		{"the key was for an earlier attempt", time.Hour, 1, true},
	} {
		s := &supervisor{a: &cli.App{Flags: &cli.Flags{JSON: true}, Stderr: io.Discard}, cmd: &Command{Agent: "a", MaxRestarts: 5},
			fromUser: true, stopped: now.Add(-test.pressed)}
		end := &outcome{code: test.code, lived: 3 * grace, died: now}
		own := false
		if test.code == 1 && !test.again {
			own = s.staysEnded(t.Context(), end, ckpt.RunInterrupted)
		}
		if again := s.goesOn(end, own); again != test.again {
			t.Errorf("%s: it starts again: %v", test.name, again)
		}
	}
}
