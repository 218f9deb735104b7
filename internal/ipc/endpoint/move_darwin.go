package endpoint

import (
	"errors"

	"golang.org/x/sys/unix"
)

// moveInto renames, and fails where something is in the way. File systems
// without that kind of rename get a hard link, which fails likewise; the old
// name goes with its folder.
func moveInto(from, to string) error {
	err := unix.RenamexNp(from, to, unix.RENAME_EXCL)
	if errors.Is(err, unix.ENOTSUP) || errors.Is(err, unix.EINVAL) {
		return unix.Link(from, to)
	}
	return err
}
