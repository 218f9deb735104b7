package endpoint

import (
	"errors"

	"golang.org/x/sys/unix"
)

// moveInto renames, and fails if the destination exists. A file system without that kind
// of rename gets a hard link, which fails likewise; the old name is removed together with
// its folder.
func moveInto(from, to string) error {
	err := unix.RenamexNp(from, to, unix.RENAME_EXCL)
	if errors.Is(err, unix.ENOTSUP) || errors.Is(err, unix.EINVAL) {
		return unix.Link(from, to)
	}
	return err
}
