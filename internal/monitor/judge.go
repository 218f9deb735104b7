package monitor

import (
	"fmt"
	"time"

	ckpt "github.com/ckptsidecar/ckptsidecar"
	"github.com/ckptsidecar/ckptsidecar/internal/liveness"
)

// Seen is what the monitor itself has seen of a run. The durations are measured by a
// clock that nobody sets, and count only while the monitor was looking. So they include
// neither a jump of the wall clock nor a stop of the daemon or of the whole machine.
type Seen struct {
	Owner liveness.State
	Quiet time.Duration // for how long LastBeat has not changed
	Stuck time.Duration // for how long LastProgress has not changed
}

// Judge returns which status a running run must get, and why in a sentence. It returns
// "" and "" if the run goes on.
func Judge(run liveness.Run, seen Seen) (ckpt.RunStatus, string) {
	switch {
	case seen.Owner == liveness.Dead:
		return ckpt.RunInterrupted, fmt.Sprintf("the owner's process %d has ended; %s", run.Process.PID, last("message from the owner", run.LastBeat))
	case reached(seen.Quiet, run.HeartbeatTimeout):
		return ckpt.RunTimedOut, fmt.Sprintf("no message from the owner for %s, the limit is %s; %s%s",
			rounded(seen.Quiet), ckpt.Duration(run.HeartbeatTimeout), last("message from the owner", run.LastBeat), standsStill(run, seen))
	case reached(seen.Stuck, run.ProgressTimeout):
		return ckpt.RunTimedOut, fmt.Sprintf("no progress for %s, the limit is %s; %s, %s",
			rounded(seen.Stuck), ckpt.Duration(run.ProgressTimeout), last("progress", run.LastProgress), last("message from the owner", run.LastBeat))
	}
	return "", ""
}

func reached(d, limit time.Duration) bool { return limit > 0 && d >= limit }

// rounded keeps what matters: tenths of a second, and milliseconds of short times.
func rounded(d time.Duration) ckpt.Duration {
	if d < 10*time.Second {
		return ckpt.Duration(d.Round(time.Millisecond))
	}
	return ckpt.Duration(d.Round(100 * time.Millisecond))
}

func last(what string, t time.Time) string {
	if t.IsZero() {
		return "there was no " + what + " yet"
	}
	return "the last " + what + " was at " + ckpt.At(t).String()
}

func standsStill(run liveness.Run, seen Seen) string {
	if seen.Owner != liveness.Alive {
		return ""
	}
	return fmt.Sprintf("; its process %d is there and may be frozen", run.Process.PID)
}
