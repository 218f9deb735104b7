//go:build unix

package sqlite

import (
	"io/fs"
	"syscall"
	"time"
)

// links counts the names of a file. A removed file that is still open has none, but then its path
// is gone too.
func links(info fs.FileInfo) uint64 {
	st, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return 1
	}
	return uint64(st.Nlink)
}

// writtenAt is when a file was last written.
func writtenAt(info fs.FileInfo) time.Time { return info.ModTime() }
