package client

import (
	"cmp"
	"context"
	"log/slog"
	"os"
	"sync"
	"time"

	ckpt "github.com/ckptsidecar/ckptsidecar"
	"github.com/ckptsidecar/ckptsidecar/internal/ipc/client"
)

// The defaults of a Client.
const (
	DefaultDeadline  = 5 * time.Second
	DefaultSpoolSize = 1 << 30 // bytes
)

// Client talks to the daemon. The zero Client is ready to use. It is safe for concurrent use:
// requests use one connection, in order. It must not be copied after first use.
type Client struct {
	Socket string // the daemon's socket or pipe; "" for $CKPTSIDECAR_SOCKET, or else the user's own, then the system's
	Owner  string // whose agents; "" for the caller's own. Only administrators can set it
	// Deadline is how long a call waits for a daemon that is away, busy or silent. 0 means
	// DefaultDeadline, below 0 not at all. For the answer of a silent daemon, reads and questions
	// wait for at least a minute, and so do all calls if Deadline is below 0. The start of a run takes
	// longer while it gets on with spooled writes.
	Deadline time.Duration
	// FailOpen lets the agent continue without a daemon: a write that cannot be sent within the
	// deadline is spooled, and a run that starts goes on from what earlier processes of it have spooled.
	FailOpen  bool
	SpoolDir  string // "" for the usual folder (docs/SPOOL.md)
	SpoolSize int64  // the most bytes that can wait; 0 means DefaultSpoolSize
	// DropWhenFull decides about a write that cannot be spooled either, because the folder is full
	// or cannot be written. If it is true, the write succeeds as dropped, and the client logs it.
	// If it is false, the write returns an error.
	DropWhenFull bool
	// Autostart starts "ckptsidecar serve", found on the path, if no daemon answers.
	Autostart bool
	Log       *slog.Logger // the log for the client's own messages; nil for slog.Default

	once     sync.Once
	wire     *client.Client
	spool    *spool
	delivery *delivery
	others   others
}

func (c *Client) init() {
	c.once.Do(func() {
		c.wire = &client.Client{Socket: c.Socket, Owner: c.Owner, Retry: max(c.deadline(), 0)}
		socket := wholeEndpoint(cmp.Or(c.Socket, os.Getenv(client.EnvSocket)))
		c.spool = &spool{dir: c.SpoolDir, most: cmp.Or(c.SpoolSize, DefaultSpoolSize), socket: socket, owner: c.Owner, send: c.send, log: c.log}
		c.delivery = &delivery{spool: c.spool, deadline: c.deadline(), silence: silenceMost, failOpen: c.FailOpen, dropWhenFull: c.DropWhenFull, log: c.log}
		c.wire.Outbox = c.delivery
		if c.Autostart {
			c.wire.Absent = (&starter{probe: c.Socket, socket: socket, log: c.log}).start
		}
	})
}

func (c *Client) deadline() time.Duration { return cmp.Or(c.Deadline, DefaultDeadline) }

// forAnswer limits a call that is not spooled, so that a silent daemon does not hold the agent up
// for ever.
func (c *Client) forAnswer(ctx context.Context) (context.Context, context.CancelFunc) {
	return within(ctx, max(c.delivery.deadline, c.delivery.silence))
}

// send sends a write that was made at the given time and waited in the spool since.
func (c *Client) send(ctx context.Context, r *client.Request, made ckpt.Time) error {
	ctx, cancel := within(ctx, silenceMost)
	defer cancel()
	_, err := c.wire.Send(ctx, r, made)
	return err
}

func (c *Client) log() *slog.Logger {
	if c.Log != nil {
		return c.Log
	}
	return slog.Default()
}

// Close closes the connection. The client may be used again.
func (c *Client) Close() {
	c.init()
	c.others.stop()
	c.wire.Close()
}

// Replay sends the spooled writes for this client's daemon. It returns its results even if it could
// not send all writes.
func (c *Client) Replay(ctx context.Context) (Replayed, error) {
	c.init()
	return c.spool.replay(ctx)
}

// ReplayRun sends the spooled writes of one run for this client's daemon. Call it before you resume
// or end a run that another process has worked on: the daemon refuses what comes later. If some
// writes still wait, the error says why. A spool that cannot be read holds nothing up.
func (c *Client) ReplayRun(ctx context.Context, agent, run string) (Replayed, error) {
	c.init()
	run = cmp.Or(run, ckpt.MainRun)
	if _, _, err := c.spool.waiting(); err != nil {
		return Replayed{}, nil
	}
	defer c.spool.lock(agent, run)()
	r, err := c.spool.replayWhere(ctx, c.spool.ofRun(agent, run))
	if err = cmp.Or(err, r.cause); err == nil {
		return r, nil
	}
	return r, ckpt.Wrap(ckpt.CodeBusy, err, "earlier writes of run %s of agent %s still wait in the spool: %s", run, agent, reason(err))
}
