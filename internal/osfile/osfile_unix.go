//go:build unix

package osfile

import (
	"io/fs"
	"os"
	"syscall"
)

// noFollow refuses a link as the last part of a path. O_NONBLOCK keeps the open of a FIFO from waiting.
const noFollow = syscall.O_NOFOLLOW | syscall.O_NONBLOCK

// SyncFolder makes the names in a folder survive a power loss.
func SyncFolder(dir string) error {
	f, err := os.Open(dir)
	if err != nil {
		return err
	}
	defer f.Close()
	return f.Sync()
}

// Names counts the names of the file that has a path and was found there. A removed file that is still open has none.
func Names(_ string, info fs.FileInfo) uint64 {
	if st, ok := info.Sys().(*syscall.Stat_t); ok {
		return uint64(st.Nlink)
	}
	return 1
}

// ProcessIsGone reports whether no process on this machine runs with this id. A process that may not be signaled runs.
func ProcessIsGone(pid int) bool { return syscall.Kill(pid, 0) == syscall.ESRCH }

// giveLike gives a file that root has made to the owner of another one.
func giveLike(f *os.File, like fs.FileInfo) error {
	st, ok := like.Sys().(*syscall.Stat_t)
	if !ok || os.Geteuid() != 0 {
		return nil
	}
	return f.Chown(int(st.Uid), int(st.Gid))
}
