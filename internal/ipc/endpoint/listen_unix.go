//go:build linux || darwin

package endpoint

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"

	"github.com/ckptsidecar/ckptsidecar/internal/osfile"
)

// Listen creates the socket and listens on it. The context limits only the opening; Close
// ends the listener. If a daemon answers at Options.Path, the error is ErrInUse. If
// something else occupies the path, the error is an *OccupiedError.
func Listen(ctx context.Context, o Options) (net.Listener, error) {
	door, err := o.door()
	if err != nil {
		return nil, err
	}
	s, err := newSite(o)
	if err != nil {
		return nil, err
	}
	if err := prepareFolder(s.dir, s.dirMode); err != nil {
		return nil, err
	}
	lock, err := lockBeside(s.path)
	if err != nil {
		return nil, err
	}
	l, err := s.open(ctx, o, door)
	if err != nil {
		return nil, errors.Join(err, osfile.Unlock(lock))
	}
	l.release = func() error { return osfile.Unlock(lock) }
	return l, nil
}

// FromListener wraps an inherited listener, such as one from systemd's socket activation.
// The socket belongs to the program that created it: Close keeps its file, and its
// permissions are not checked.
func FromListener(inner net.Listener, o Options) (net.Listener, error) {
	ul, ok := inner.(*net.UnixListener)
	if !ok || ul.Addr().Network() != "unix" {
		return nil, fmt.Errorf("inherited listener %s %s is not a Unix stream socket, and only those report who connects: use "+
			"ListenStream= with a path", inner.Addr().Network(), inner.Addr())
	}
	door, err := o.door()
	if err != nil {
		return nil, err
	}
	ul.SetUnlinkOnClose(false)
	return newListener(ul, o, door.identify), nil
}

// door decides who may connect before any peer can try.
func (o Options) door() (doorman, error) {
	if !o.SingleUser {
		if err := CheckIdentityMap(); err != nil {
			return doorman{}, err
		}
	}
	return newDoorman(o)
}

// site is a socket's path and permissions, with all defaults filled in.
type site struct {
	path, dir     string
	mode, dirMode os.FileMode
	gid           int
}

func newSite(o Options) (site, error) {
	path, err := absolute(o.Path)
	if err != nil {
		return site{}, err
	}
	gid, err := groupID(o.Group)
	if err != nil {
		return site{}, fmt.Errorf("socket %w", err)
	}
	s := site{path: path, dir: filepath.Dir(path), mode: 0o660, dirMode: 0o755, gid: gid}
	if o.SingleUser {
		s.mode, s.dirMode = 0o600, 0o700
	}
	if o.Mode != 0 {
		s.mode = o.Mode
	}
	if s.mode&^os.ModePerm != 0 {
		return site{}, fmt.Errorf("socket mode %v has more than permission bits", s.mode)
	}
	return s, checkLength(path, len(s.dir)+len(longestBeside))
}

// open runs under the lock, so that no other daemon changes the path at the same time.
func (s site) open(ctx context.Context, o Options, door doorman) (*listener, error) {
	if err := clearWay(ctx, s.path); err != nil {
		return nil, err
	}
	inner, made, err := s.bind(ctx)
	if err != nil {
		return nil, fmt.Errorf("make the socket %s: %w", s.path, err)
	}
	l := newListener(inner, o, door.identify)
	l.addr = &net.UnixAddr{Name: s.path, Net: "unix"}
	l.withdraw = func() error { return removeIfSame(s.path, made) }
	l.reach = func() error { return stillThere(s.path, made) }
	return l, nil
}
