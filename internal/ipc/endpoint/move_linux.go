package endpoint

import (
	"errors"

	"golang.org/x/sys/unix"
)

// moveInto renames, and fails where something is in the way. File systems
// without that kind of rename (NFS) get a hard link, which fails likewise; the
// old name goes with its folder.
func moveInto(from, to string) error {
	err := unix.Renameat2(unix.AT_FDCWD, from, unix.AT_FDCWD, to, unix.RENAME_NOREPLACE)
	if errors.Is(err, unix.EINVAL) || errors.Is(err, unix.ENOSYS) {
		return unix.Link(from, to)
	}
	return err
}
