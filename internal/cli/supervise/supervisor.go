package supervise

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"time"

	"github.com/cenkalti/backoff/v4"
	ckpt "github.com/ckptsidecar/ckptsidecar"
	agent "github.com/ckptsidecar/ckptsidecar/client"
	"github.com/ckptsidecar/ckptsidecar/internal/cli"
	"github.com/ckptsidecar/ckptsidecar/internal/ipc/client"
)

// supervisor runs one command repeatedly until the command has done its work.
type supervisor struct {
	a       *cli.App
	cmd     *Command
	client  *client.Client
	sender  replayer // for what the command has spooled
	path    string   // of the program
	folder  string   // for the plan; only this user can read it
	lock    *os.File // shows that this supervisor is alive
	signals chan os.Signal

	epoch    int64
	pauses   *backoff.ExponentialBackOff
	restarts int
	again    bool      // the command has been started before
	stopped  time.Time // when exec was last asked to stop
	fromUser bool      // by a key that the child has seen too, and may use for another purpose
}

// replayer sends the spooled writes of a run.
type replayer interface {
	ReplayRun(ctx context.Context, agent, run string) (agent.Replayed, error)
}

// outcome is how an attempt ended.
type outcome struct {
	child  *child
	code   int           // the child's exit code
	why    string        // the reason for the end, in words
	lived  time.Duration // how long it ran
	died   time.Time     // when it ended
	beaten time.Time     // when the daemon last accepted a heartbeat for it
	frozen bool          // it was killed because it hung
	fenced bool          // it was stopped because another process owns the run
	drift  bool          // it was stopped because of critical drift
	lease  bool          // it was stopped because another host may own the run
	back   bool          // it was stopped because the daemon has an older past of the run
}

// stopped reports whether exec has stopped the command in order to start it again.
func (o *outcome) stopped() bool { return o.drift || o.lease || o.back }

func (s *supervisor) ref(epoch *int64) ckpt.RunRef {
	return ckpt.RunRef{Agent: s.cmd.Agent, Run: s.cmd.InRun, Epoch: epoch}
}

// note reports an event on standard error, next to the output of the command.
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
