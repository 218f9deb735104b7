package endpoint

import (
	"errors"

	"golang.org/x/sys/unix"
)

// moveInto renames, and fails if the destination exists. A file system without that kind
// of rename (NFS) gets a hard link, which fails likewise; the old name is removed
// together with its folder.
func moveInto(from, to string) error {
	err := unix.Renameat2(unix.AT_FDCWD, from, unix.AT_FDCWD, to, unix.RENAME_NOREPLACE)
	if errors.Is(err, unix.EINVAL) || errors.Is(err, unix.ENOSYS) {
		return unix.Link(from, to)
	}
	return err
}
