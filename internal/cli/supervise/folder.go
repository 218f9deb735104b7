package supervise

import (
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// What exec puts down for its command lies in a folder of its own, among the
// temporary files. A supervisor that is killed leaves it behind, with a plan that
// may hold a state; the next one sweeps it. Whether a supervisor lives is said by
// the lock that it holds on a file in the folder: process numbers do not tell
// where several namespaces share the temporary files.
const (
	execFolder = "ckptsidecar-exec-"
	execLock   = "lock"
	execYoung  = time.Minute // a folder without a lock may be on its way to have one
)

// makeExecFolder makes the folder and takes its lock.
func makeExecFolder() (folder string, lock *os.File, err error) {
	if folder, err = os.MkdirTemp("", execFolder); err != nil { // 0700
		return "", nil, err
	}
	lock, err = os.OpenFile(filepath.Join(folder, execLock), os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
	if err == nil {
		err = lockExec(lock)
	}
	if err != nil {
		_ = os.RemoveAll(folder)
		return "", nil, err
	}
	return folder, lock, nil
}

// sweepExecFolders removes the folders of supervisors that are gone. It only
// touches folders of this user, and follows no link.
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

// execEnded says whether nobody holds the lock of a folder.
func execEnded(folder string, info fs.FileInfo, now time.Time) bool {
	path := filepath.Join(folder, execLock)
	at, err := os.Lstat(path)
	if err != nil || !at.Mode().IsRegular() {
		return now.Sub(info.ModTime()) > execYoung
	}
	if now.Sub(at.ModTime()) < execYoung { // made, and perhaps not locked yet
		return false
	}
	lock, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		return false
	}
	defer lock.Close()
	return lockExec(lock) == nil
}
