package apitest

import (
	"context"
	"errors"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"syscall"
	"testing"

	"github.com/ckptsidecar/ckptsidecar/internal/ipc/endpoint"
)

// TestRoutesOfRealUsers sends the whole table over a socket, as users of the
// system. The kernel reports their identities.
func TestRoutesOfRealUsers(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root can be several users")
	}
	askAll(t, func() door { return &socket{} })
}

// socket is a door on a real socket, as the system's service has it.
type socket struct{ path string }

func (s *socket) listener(t *testing.T) net.Listener {
	t.Helper()
	dir, err := os.MkdirTemp("", "s") // a path that is short enough for a socket
	must(t, err)
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	must(t, os.Chmod(dir, 0o755))
	s.path = filepath.Join(dir, "s")
	ln, err := endpoint.Listen(t.Context(), endpoint.Options{Path: s.path, Mode: 0o666})
	must(t, err)
	return ln
}

// dial connects as another user. The kernel takes the identity from the thread
// that connects, so one thread becomes that user for a moment. If a thread
// cannot change back, it ends with its goroutine.
func (s *socket) dial(ctx context.Context, w who) (net.Conn, error) {
	type dialed struct {
		conn net.Conn
		err  error
	}
	done := make(chan dialed, 1)
	go func() {
		runtime.LockOSThread()
		if err := become(w.uid); err != nil {
			done <- dialed{err: err}
			return
		}
		conn, err := new(net.Dialer).DialContext(ctx, "unix", s.path)
		if back := become(0); back != nil {
			done <- dialed{err: errors.Join(err, back)}
			return
		}
		runtime.UnlockOSThread()
		done <- dialed{conn, err}
	}()
	d := <-done
	return d.conn, d.err
}

// become changes the effective user of only this thread.
func become(uid uint32) error {
	const stays = ^uintptr(0)
	if _, _, errno := syscall.RawSyscall(syscall.SYS_SETRESUID, stays, uintptr(uid), stays); errno != 0 {
		return errno
	}
	return nil
}
