package term

import (
	"context"
	"os"
	"os/signal"
	"syscall"
)

// UntilUnread returns a context that also ends when the program that reads stdout or stderr has
// ended, as in `demo | head`. Without it, SIGPIPE would kill this process at the next write, and the
// files that the command removes at its end would stay.
func UntilUnread(ctx context.Context) (context.Context, context.CancelFunc) {
	return signal.NotifyContext(ctx, syscall.SIGPIPE)
}

// OutliveReaders lets this process go on when the program that reads stdout or stderr has ended: a
// write to them fails, and nothing else happens. A daemon must not stop because the reader of its
// log did, nor may the supervisor of an agent.
func OutliveReaders() { signal.Notify(make(chan os.Signal, 1), syscall.SIGPIPE) }
