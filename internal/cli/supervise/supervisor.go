package supervise

import (
	"encoding/json"
	"fmt"
	"os"
	"time"

	"github.com/cenkalti/backoff/v4"
	ckpt "github.com/ckptsidecar/ckptsidecar"
	"github.com/ckptsidecar/ckptsidecar/internal/cli"
	"github.com/ckptsidecar/ckptsidecar/internal/ipc/client"
)

// supervisor runs one command again and again until it has done its work.
type supervisor struct {
	a       *cli.App
	cmd     *Command
	client  *client.Client
	path    string   // of the program
	folder  string   // for the plan, of this user alone
	lock    *os.File // says that this supervisor lives
	signals chan os.Signal

	epoch    int64
	pauses   *backoff.ExponentialBackOff
	restarts int
	stopped  time.Time // when it was last asked to stop
	fromUser bool      // by a key that the child has seen too, and may have meant otherwise
}

// outcome is how an attempt ended.
type outcome struct {
	code   int           // the child's exit code
	why    string        // it ended, in words
	lived  time.Duration // how long it had run
	died   time.Time     // when it had ended
	beaten time.Time     // when the daemon last took a heartbeat for it
	frozen bool          // it was killed because it hung
	fenced bool          // it was stopped because somebody else owns the run
	drift  bool          // it was stopped because of critical drift
	lease  bool          // it was stopped because another host may own the run
}

func (s *supervisor) ref(epoch *int64) ckpt.RunRef {
	return ckpt.RunRef{Agent: s.cmd.Agent, Run: s.cmd.InRun, Epoch: epoch}
}

// note tells what happens, on standard error beside what the command says.
func (s *supervisor) note(event, format string, args ...any) {
	text := fmt.Sprintf(format, args...)
	if !s.a.JSON {
		s.a.Tell("%s %s", s.a.Err.Dim("ckptsidecar exec:"), text)
		return
	}
	_ = json.NewEncoder(s.a.Stderr).Encode(struct {
		At     ckpt.Time `json:"at"`
		Event  string    `json:"event"`
		Detail string    `json:"detail"`
	}{ckpt.At(time.Now()), event, text})
}
