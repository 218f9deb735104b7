//go:build unix

package supervise

import (
	"io/fs"
	"os"
	"syscall"
)

// lockExec takes the lock of a folder. The lock ends together with the process.
func lockExec(f *os.File) error { return syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB) }

// isMine reports whether a file belongs to this user.
func isMine(info fs.FileInfo) bool {
	s, ok := info.Sys().(*syscall.Stat_t)
	return ok && int(s.Uid) == os.Geteuid()
}
