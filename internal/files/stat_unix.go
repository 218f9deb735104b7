//go:build unix

package files

import (
	"io/fs"
	"syscall"
)

// noWait keeps the open of a named pipe from blocking.
const noWait = syscall.O_NONBLOCK

// identity returns what distinguishes a file from another file at the same path, and
// one version of it from the next.
func identity(info fs.FileInfo) (device, inode uint64, changed int64) {
	if st, ok := info.Sys().(*syscall.Stat_t); ok {
		return uint64(st.Dev), st.Ino, changeTime(st)
	}
	return 0, 0, 0
}
