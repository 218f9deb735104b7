package endpoint

import (
	"context"
	"errors"
	"fmt"
	"net"

	"github.com/Microsoft/go-winio"
)

// pipeBuffer is the number of bytes that a peer can write before the other end reads.
const pipeBuffer = 64 << 10

// Listen creates the pipe and listens on it. The context limits only the opening; Close
// ends the listener. If a daemon answers at the name, the error is ErrInUse. If another
// program has taken the name, the error is an *OccupiedError.
func Listen(ctx context.Context, o Options) (net.Listener, error) {
	if err := checkName(o.Path); err != nil {
		return nil, err
	}
	door, err := newDoorman(o)
	if err != nil {
		return nil, err
	}
	clients, err := clientsOf(o)
	if err != nil {
		return nil, fmt.Errorf("pipe %w", err)
	}
	inner, err := winio.ListenPipe(o.Path, &winio.PipeConfig{
		SecurityDescriptor: descriptor(door.self, clients),
		InputBufferSize:    pipeBuffer,
		OutputBufferSize:   pipeBuffer,
	})
	if err != nil {
		return nil, whyNot(ctx, o.Path, err)
	}
	return newListener(inner, o, door.identify), nil
}

// FromListener is for inherited sockets, which Windows does not have.
func FromListener(inner net.Listener, o Options) (net.Listener, error) {
	return nil, fmt.Errorf("inherited listener: %w on Windows", errors.ErrUnsupported)
}

// whyNot finds out who has taken the name. The error itself only says that access is
// denied.
func whyNot(ctx context.Context, path string, cause error) error {
	c, err := dial(ctx, path)
	if err == nil {
		_ = c.Close()
		return inUse(path, "somebody answers")
	}
	var owner *StrangerError
	if errors.As(err, &owner) {
		return &OccupiedError{path, "a pipe of " + owner.SID, "stop the program that created it, or choose another name with --socket"}
	}
	if isBusy(err) {
		return inUse(path, "another program has the pipe open")
	}
	return fmt.Errorf("make the pipe %s: %w", path, cause)
}
