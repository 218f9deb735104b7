//go:build linux || darwin

package endpoint

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/user"
	"path/filepath"
	"strconv"
	"syscall"

	"golang.org/x/sys/unix"
)

func dial(ctx context.Context, path string) (net.Conn, error) {
	abs, err := absolute(path)
	if err != nil {
		return nil, err
	}
	var d net.Dialer
	c, err := d.DialContext(ctx, "unix", abs)
	if err != nil {
		return nil, err
	}
	if err := checkListener(c, abs); err != nil {
		_ = c.Close()
		return nil, err
	}
	return c, nil
}

// howToJoin names the group that may connect, and the command that lets this user in. A socket in a folder that this
// user may not enter belongs to the group of the folder.
func howToJoin(path string) string {
	info, err := os.Stat(path)
	if err != nil {
		info, err = os.Stat(filepath.Dir(path))
	}
	if err != nil {
		return "join the group that owns it"
	}
	st, ok := info.Sys().(*syscall.Stat_t)
	if !ok || info.Mode()&0o060 == 0 || st.Gid == 0 {
		return "only its owner may"
	}
	group, err := user.LookupGroupId(strconv.FormatUint(uint64(st.Gid), 10))
	if err != nil {
		return fmt.Sprintf("join the group %d, which owns it", st.Gid)
	}
	me, err := user.Current()
	if err != nil {
		return fmt.Sprintf("join the group %s (%d), which owns it", group.Name, st.Gid)
	}
	return fmt.Sprintf("join the group %s, which owns it (sudo usermod -aG %s %s, then log in again)", group.Name, group.Name, me.Username)
}

// isStale reports whether the socket file exists but no program listens behind it.
func isStale(err error) bool { return errors.Is(err, unix.ECONNREFUSED) }

// isBusy reports whether the listener exists but its backlog is full.
func isBusy(err error) bool { return errors.Is(err, unix.EAGAIN) }
