//go:build unix

package osfile

import "golang.org/x/sys/unix"

// DiskSpace is how many bytes a user may still write to the disk of a folder, and
// how many bytes that disk has.
func DiskSpace(dir string) (free, total int64, err error) {
	var s unix.Statfs_t
	if err := unix.Statfs(dir, &s); err != nil {
		return 0, 0, err
	}
	return int64(s.Bavail) * int64(s.Bsize), int64(s.Blocks) * int64(s.Bsize), nil
}
