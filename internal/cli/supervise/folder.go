package supervise

import (
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/ckptsidecar/ckptsidecar/internal/osfile"
)

// exec writes files for its command into a folder of its own, among the temporary files.
// If a supervisor is killed, the folder stays, with a plan that can contain a state; the
// next supervisor removes it. A live supervisor holds a lock on a file in the folder.
// Process ids are no evidence of life if several namespaces share the temporary files.
const (
	execFolder = "ckptsidecar-exec-"
	execLock   = "lock"
	execYoung  = time.Minute // a folder without a lock may be about to get one
)

// makeExecFolder creates the folder and takes its lock.
func makeExecFolder() (folder string, lock *os.File, err error) {
	if folder, err = os.MkdirTemp("", execFolder); err != nil { // 0700
		return "", nil, err
	}
	if lock, err = osfile.LockAt(filepath.Join(folder, execLock)); err != nil {
		_ = os.RemoveAll(folder)
		return "", nil, err
	}
	return folder, lock, nil
}

// sweepExecFolders removes the folders of dead supervisors. It only touches folders of
// this user, and follows no link.
func sweepExecFolders(temporary string, now time.Time) {
	entries, err := os.ReadDir(temporary)
	if err != nil {
		return
	}
	for _, e := range entries {
		info, err := e.Info()
		if err != nil || !e.IsDir() || !strings.HasPrefix(e.Name(), execFolder) || !isMine(info) {
			continue
		}
		folder := filepath.Join(temporary, e.Name())
		if execEnded(folder, info, now) {
			_ = os.RemoveAll(folder)
		}
	}
}

// execEnded reports whether no process holds the lock of a folder.
func execEnded(folder string, info fs.FileInfo, now time.Time) bool {
	path := filepath.Join(folder, execLock)
	at, err := os.Lstat(path)
	if err != nil || !at.Mode().IsRegular() {
		return now.Sub(info.ModTime()) > execYoung
	}
	if now.Sub(at.ModTime()) < execYoung { // it was just created, and is possibly not locked yet
		return false
	}
	lock, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		return false
	}
	defer lock.Close()
	return osfile.Lock(lock) == nil
}
