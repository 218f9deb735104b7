//go:build unix

package db

import (
	"io/fs"
	"syscall"
)

// links counts the names of a file; a removed one that is still open has none,
// but then its path is gone too.
func links(info fs.FileInfo) uint64 {
	st, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return 1
	}
	return uint64(st.Nlink)
}
