package democmd

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"time"

	ckpt "github.com/ckptsidecar/ckptsidecar"
	"github.com/ckptsidecar/ckptsidecar/internal/cli"
	"github.com/ckptsidecar/ckptsidecar/internal/cli/term"
	"github.com/ckptsidecar/ckptsidecar/internal/ipc/client"
)

// demoAgent is the name of the agent in the demo.
const demoAgent = "demo"

// work is the state of a long job. Each step needs the result of the previous one, so a
// step that is skipped or done twice changes the result.
type work struct {
	Step int    `json:"step"`
	Sum  int64  `json:"sum"`
	Hash string `json:"hash"`
}

func (w work) next() work {
	n := w.Step + 1
	sum := sha256.Sum256(fmt.Appendf(nil, "%s %d", w.Hash, n))
	return work{Step: n, Sum: w.Sum + int64(n)*int64(n), Hash: hex.EncodeToString(sum[:])}
}

// Agent is the hidden command demo-agent: the agent that the demo kills.
type Agent struct {
	Steps int
	Pause time.Duration `default:"4ms"`
	Hold  bool          // do nothing until the input ends
}

// Run does everything that an agent must do: ask for the saved state, continue from it,
// and save after each step.
func (c *Agent) Run(ctx context.Context, a *cli.App) error {
	if c.Hold {
		_, err := cli.Stoppable(ctx, func() (int64, error) { return io.Copy(io.Discard, a.Stdin) })
		return err
	}
	client, state := a.Client(), work{}
	got, _, err := client.Restore(ctx, ckpt.RestoreRequest{Agent: demoAgent, Reason: "start"})
	switch {
	case ckpt.CodeOf(err) == ckpt.CodeNotFound: // this is the first start
	case err != nil:
		return err
	default:
		if err := json.Unmarshal(got.State, &state); err != nil {
			return err
		}
	}
	for state.Step < c.Steps {
		time.Sleep(c.Pause) // simulates the work
		state = state.next()
		if err := save(ctx, client, state); err != nil {
			return err
		}
		term.Printf(a.Stdout, "step %d saved\n", state.Step)
	}
	return nil
}

func save(ctx context.Context, client *client.Client, state work) error {
	text, err := json.Marshal(state)
	if err != nil {
		return err
	}
	_, err = client.Save(ctx, &ckpt.SaveRequest{
		Agent: demoAgent, Kind: ckpt.KindRoutine, ContentType: ckpt.ContentTypeJSON, State: text,
	})
	return err
}
