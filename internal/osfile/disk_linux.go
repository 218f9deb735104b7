package osfile

import "golang.org/x/sys/unix"

// DiskSpace returns how many bytes a user can still write to the disk of a folder, and the size of
// that disk in bytes.
func DiskSpace(dir string) (free, total int64, err error) {
	var s unix.Statfs_t
	if err := unix.Statfs(dir, &s); err != nil {
		return 0, 0, err
	}
	free, total = spaceOf(&s)
	return free, total, nil
}

// spaceOf returns the bytes of counted blocks. They have Frsize bytes. Bsize is how many bytes to
// read at once, which is more on FUSE and virtiofs. Old file systems leave Frsize out.
func spaceOf(s *unix.Statfs_t) (free, total int64) {
	block := int64(s.Frsize)
	if block == 0 {
		block = int64(s.Bsize)
	}
	return int64(s.Bavail) * block, int64(s.Blocks) * block
}
