//go:build linux || darwin

package endpoint

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// longestBeside is the longest name that bind adds to the folder's path. It counts
// against sun_path too, which matters only for very short socket names.
const longestBeside = "/.4294967295/s"

// bind creates the socket in a private folder next to its place. When the socket listens
// and has its group and mode, bind moves it into place. It returns the file's identity,
// for removeIfSame.
func (s site) bind(ctx context.Context) (_ *net.UnixListener, made fs.FileInfo, err error) {
	tmp, err := s.privateFolder()
	if err != nil {
		return nil, nil, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(tmp)) }()

	name := s.nameIn(tmp)
	var lc net.ListenConfig
	l, err := lc.Listen(ctx, "unix", name)
	if err != nil {
		return nil, nil, err
	}
	ul := l.(*net.UnixListener)
	ul.SetUnlinkOnClose(false) // Go only knows the name that it was bound to
	if made, err = s.dress(name); err == nil {
		err = moveInto(name, s.path)
	}
	if err != nil {
		return nil, nil, errors.Join(err, ul.Close())
	}
	return ul, made, nil
}

// privateFolder creates a folder that is closed to other users from its first moment. The
// chmod only opens it to the daemon itself, if the umask removed even that.
func (s site) privateFolder() (string, error) {
	tmp, err := os.MkdirTemp(s.dir, ".")
	if err != nil {
		return "", err
	}
	return tmp, os.Chmod(tmp, 0o700)
}

// nameIn keeps the socket's own name if it fits. The name that a socket was bound to is
// what ss, lsof and the addresses of its connections always show, so it should be
// recognizable.
func (s site) nameIn(tmp string) string {
	if name := filepath.Join(tmp, filepath.Base(s.path)); len(name) <= maxPath {
		return name
	}
	return filepath.Join(tmp, "s")
}

// dress sets the socket's group and then its mode, so that a mode for the group never
// applies to the group that the socket was created with.
func (s site) dress(name string) (fs.FileInfo, error) {
	if s.gid != noGroup {
		if err := os.Lchown(name, -1, s.gid); err != nil {
			return nil, err
		}
	}
	if err := os.Chmod(name, s.mode); err != nil {
		return nil, err
	}
	return os.Lstat(name)
}

// removeIfSame removes the path only if it is still the file that was created. The
// listener is still open at this time, so no other file can have its inode number.
func removeIfSame(path string, made fs.FileInfo) error {
	now, err := os.Lstat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil || !os.SameFile(now, made) {
		return err
	}
	return unix.Unlink(path)
}

// stillThere returns an error unless a path is the socket that was created.
func stillThere(path string, made fs.FileInfo) error {
	now, err := os.Lstat(path)
	if err != nil {
		return fmt.Errorf("the socket is gone, so no client can find the daemon: %w", err)
	}
	if !os.SameFile(now, made) {
		return fmt.Errorf("the socket %s was replaced by another, so no client can find the daemon", path)
	}
	return nil
}
