package endpoint

import (
	"context"
	"errors"
	"fmt"
	"net"

	"github.com/Microsoft/go-winio"
)

// pipeBuffer is what a peer can write before the other end reads.
const pipeBuffer = 64 << 10

// Listen makes the pipe and listens on it. The context bounds the opening only:
// it is Close that ends the listener. A name that a daemon answers at gives
// ErrInUse, one that somebody else took an *OccupiedError.
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

// FromListener is for inherited sockets, which Windows does not hand over.
func FromListener(inner net.Listener, o Options) (net.Listener, error) {
	return nil, fmt.Errorf("inherited listener: %w on Windows", errors.ErrUnsupported)
}

// whyNot finds out who has the name already. The failure itself only says that
// access is denied.
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
