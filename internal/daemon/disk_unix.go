//go:build unix

package daemon

import "golang.org/x/sys/unix"

// DiskSpace is what a user may still fill of the disk of a folder, and all
// there is, in bytes.
func DiskSpace(dir string) (free, total int64, err error) {
	var s unix.Statfs_t
	if err := unix.Statfs(dir, &s); err != nil {
		return 0, 0, err
	}
	return int64(s.Bavail) * int64(s.Bsize), int64(s.Blocks) * int64(s.Bsize), nil
}
