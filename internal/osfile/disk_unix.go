//go:build unix && !linux

package osfile

import "golang.org/x/sys/unix"

// DiskSpace returns how many bytes a user can still write to the disk of a folder, and the size of
// that disk in bytes.
func DiskSpace(dir string) (free, total int64, err error) {
	var s unix.Statfs_t
	if err := unix.Statfs(dir, &s); err != nil {
		return 0, 0, err
	}
	return int64(s.Bavail) * int64(s.Bsize), int64(s.Blocks) * int64(s.Bsize), nil
}
