//go:build unix

package main

import "golang.org/x/sys/unix"

// diskSpace is what a user may still fill, and all there is.
func diskSpace(dir string) (free, total int64, err error) {
	var s unix.Statfs_t
	if err := unix.Statfs(dir, &s); err != nil {
		return 0, 0, err
	}
	return int64(s.Bavail) * int64(s.Bsize), int64(s.Blocks) * int64(s.Bsize), nil
}

// lookModes reports the files that let too many in.
func lookModes(list ...private) (found []finding) {
	for _, p := range list {
		found = append(found, lookMode(p)...)
	}
	return found
}
