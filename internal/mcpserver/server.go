package mcpserver

import (
	"context"
	"io"
	"reflect"
	"sync"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	ckpt "github.com/ckptsidecar/ckptsidecar"
	"github.com/ckptsidecar/ckptsidecar/internal/ipc/client"
)

// Options say for which agent the server is.
type Options struct {
	Client  *client.Client // the connection to the daemon
	Agent   string         // the agent that the tools are about
	Run     string         // the run if a tool names none; "" means main
	PID     int            // the process that owns the runs; 0 means this one
	Version string
}

// Server is one server, for one host.
type Server struct {
	client *client.Client
	agent  string
	run    string
	pid    int
	mcp    *mcp.Server

	turn sync.Mutex // held by a tool that writes: two that claim at once would fence each other

	mu    sync.Mutex
	gives map[string]reflect.Type // by tool

	held  map[string]int64   // by run: the epoch under which this process has claimed it
	begun map[[2]string]bool // steps that were reported as started, by run and key
}

const instructions = "ckptsidecar keeps durable checkpoints of your work, so that it can go on after a crash, " +
	"a lost connection or a mistake.\n" +
	"1. At the beginning of a piece of work call resume_run: it says whether an earlier session left it " +
	"unfinished, and gives back the state to go on from.\n" +
	"2. Call save_checkpoint after every piece of work that would be costly to do again, " +
	"with all that you would need to go on without this conversation: goal, plan, what is done, " +
	"what is next, open questions.\n" +
	"3. Before anything that cannot be undone (a deployment, a payment, a message to people, a deletion, " +
	"a push) call begin_operation, and afterwards finish_operation.\n" +
	"4. Report tool calls with report_step: it notices when you go in circles and says so. Take its advice.\n" +
	"Nothing here deletes anything."

// Serve talks to one host until the host hangs up. Then it suspends the runs that this
// process has claimed, because no process works on them any longer.
func (s *Server) Serve(ctx context.Context, in io.ReadCloser, out io.WriteCloser) error {
	err := s.mcp.Run(ctx, &mcp.IOTransport{Reader: in, Writer: out})
	s.leave(context.WithoutCancel(ctx))
	if ctx.Err() != nil {
		return nil // it was told to end, which is not an error
	}
	return err
}

// leaveMost is how long a server that ends waits for the daemon.
const leaveMost = 2 * time.Second

func (s *Server) leave(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, leaveMost)
	defer cancel()
	s.mu.Lock()
	defer s.mu.Unlock()
	for run, epoch := range s.held {
		// If the daemon is away, it finds out by itself that this process is gone.
		_, _, _ = s.client.EndRun(ctx, ckpt.RunRef{Agent: s.agent, Run: run, Epoch: &epoch}, ckpt.EndRequest{Status: ckpt.RunSuspended})
		delete(s.held, run)
	}
}
