package client

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
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

// Client speaks to the daemon. The zero Client is ready. It is safe for
// concurrent use: requests go over one connection, in order. It must not be
// copied once used.
type Client struct {
	Socket   string        // the daemon's socket or pipe; "" for $CKPTSIDECAR_SOCKET, then the user's own, then the system's
	Owner    string        // whose agents; "" for the caller's own. For administrators
	Deadline time.Duration // how long a call waits for a daemon that is away, busy or silent; 0 means DefaultDeadline, below 0 not at all
	// FailOpen lets the agent go on without a daemon: what cannot be sent
	// within the deadline is spooled.
	FailOpen  bool
	SpoolDir  string // "" for the usual folder (docs/SPOOL.md)
	SpoolSize int64  // bytes that may wait; 0 means DefaultSpoolSize
	// DropWhenFull makes a write that cannot be spooled either, because the
	// folder is full or cannot be written, succeed as dropped, and logs it.
	// Without it, it is an error.
	DropWhenFull bool
	// Autostart starts "ckptsidecar serve", found on the path, where no daemon
	// answers.
	Autostart bool
	Log       *slog.Logger // what the client has to say about itself; nil for slog.Default

	once    sync.Once
	wire    *client.Client
	spool   *spool
	started startOnce
}

func (c *Client) init() {
	c.once.Do(func() {
		c.wire = &client.Client{Socket: c.Socket, Owner: c.Owner, Retry: max(c.deadline(), 0)}
		c.spool = &spool{dir: c.SpoolDir, most: cmp.Or(c.SpoolSize, DefaultSpoolSize), client: c}
		c.wire.Outbox = c
		if c.Autostart {
			c.wire.Absent = c.start
		}
	})
}

func (c *Client) deadline() time.Duration { return cmp.Or(c.Deadline, DefaultDeadline) }

func (c *Client) log() *slog.Logger {
	if c.Log != nil {
		return c.Log
	}
	return slog.Default()
}

// Close closes the connection. The client may be used again.
func (c *Client) Close() {
	c.init()
	c.wire.Close()
}

// Wire is the client of the whole API, over the same connection.
func (c *Client) Wire() *client.Client {
	c.init()
	return c.wire
}

// Agent names one of the caller's agents. It need not be there yet: its first
// save makes it.
func (c *Client) Agent(name string) *Agent {
	c.init()
	return &Agent{client: c, Name: name}
}

// Fate is what became of a write.
type Fate string

// The fates of a write that is not an error.
const (
	Stored  Fate = "stored"  // on disk in the daemon's database
	Spooled Fate = "spooled" // on disk in the spool, to be sent later
	Dropped Fate = "dropped" // nowhere; only with DropWhenFull
)

var errDropped = errors.New("dropped: it could neither be sent nor spooled")

// fate sorts the error of a write.
func fate(err error) (Fate, error) {
	var kept *client.KeptError
	switch {
	case err == nil:
		return Stored, nil
	case errors.As(err, &kept):
		return Spooled, nil
	case errors.Is(err, errDropped):
		return Dropped, nil
	}
	return "", err
}

// Write is the client's outbox: it is asked about every write that may be made
// later.
func (c *Client) Write(ctx context.Context, r *client.Request, send func(context.Context) error) error {
	if !c.FailOpen {
		return c.tryToSend(ctx, send)
	}
	defer c.spool.lock(r.Agent, r.Run)()
	err := c.spool.clear(ctx, r.Agent, r.Run)
	if err == nil {
		if err = c.tryToSend(ctx, send); !passes(err) {
			return err
		}
	}
	if ctx.Err() != nil && errors.Is(err, ctx.Err()) {
		return err // the agent itself has given up
	}
	return c.keep(r, err)
}

// tryToSend sends within the deadline.
func (c *Client) tryToSend(ctx context.Context, send func(context.Context) error) error {
	if d := c.deadline(); d > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeoutCause(ctx, d, errSilent)
		defer cancel()
	}
	return send(ctx)
}

var errSilent = errors.New("the daemon did not answer in time")

// keep spools a write, or does what the user chose where that fails.
func (c *Client) keep(r *client.Request, why error) error {
	err := c.spool.add(r)
	if err == nil {
		return &client.KeptError{Err: why}
	}
	err = ckpt.Wrap(ckpt.CodeStorageFull, err, "the daemon is away (%v), and the spool cannot take this: %v", why, err)
	if !c.DropWhenFull {
		return err
	}
	c.log().Error("a write was dropped", "agent", r.Agent, "run", r.Run, "error", err)
	return errDropped
}

// Replay sends what waits in the spool and belongs to this client's daemon. It
// answers what it did also where it could not send all.
func (c *Client) Replay(ctx context.Context) (Replayed, error) {
	c.init()
	return c.spool.replay(ctx)
}

// passes says that a write may get through later, by itself.
func passes(err error) bool {
	if err == nil {
		return false
	}
	var e *ckpt.Error
	if !errors.As(err, &e) {
		return true // nobody there
	}
	switch e.Code {
	case ckpt.CodeBusy, ckpt.CodeQuota, ckpt.CodeStorageFull, ckpt.CodeInternal, ckpt.CodeCorrupt:
		return true
	}
	return false
}
