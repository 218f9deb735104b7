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

// longestBeside is the longest that bind adds to the folder's path. It counts
// against sun_path too, which matters for very short socket names only.
const longestBeside = "/.4294967295/s"

// bind makes the socket in a private folder beside its place and moves it into
// place when it listens and has its group and mode. It returns what the file
// is, for removeIfSame.
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
	ul.SetUnlinkOnClose(false) // Go knows only the name it was bound to
	if made, err = s.dress(name); err == nil {
		err = moveInto(name, s.path)
	}
	if err != nil {
		return nil, nil, errors.Join(err, ul.Close())
	}
	return ul, made, nil
}

// privateFolder is closed to others from its first moment. The chmod only opens
// it to ourselves, where the umask took even that.
func (s site) privateFolder() (string, error) {
	tmp, err := os.MkdirTemp(s.dir, ".")
	if err != nil {
		return "", err
	}
	return tmp, os.Chmod(tmp, 0o700)
}

// nameIn keeps the socket's own name where it fits. The name that a socket was
// bound to is what ss, lsof and the addresses of its connections show for ever,
// so it had better be one to recognize.
func (s site) nameIn(tmp string) string {
	if name := filepath.Join(tmp, filepath.Base(s.path)); len(name) <= maxPath {
		return name
	}
	return filepath.Join(tmp, "s")
}

// dress gives the socket its group and then its mode, so that a mode for the
// group never holds for the group it was born with.
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

// removeIfSame removes the path only while it is the file that was made. The
// listener is still open then, so its inode number cannot have gone to another.
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

// stillThere says whether a path is the socket that was made.
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
