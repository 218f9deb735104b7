//go:build unix

package supervise

import (
	"io/fs"
	"os"
	"syscall"
)

// isMine reports whether a file belongs to this user.
func isMine(info fs.FileInfo) bool {
	s, ok := info.Sys().(*syscall.Stat_t)
	return ok && int(s.Uid) == os.Geteuid()
}
