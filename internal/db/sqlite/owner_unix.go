//go:build unix

package sqlite

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"syscall"
)

// fileOwner is whose files are.
type fileOwner struct{ uid, gid int }

// ownerToBe is whose the files of a database are, or, where it is not there
// yet, whose its folder is. Root must leave them to the daemon's user.
func ownerToBe(path string) fileOwner {
	for _, name := range []string{path, filepath.Dir(path)} {
		if info, err := os.Stat(name); err == nil {
			stat := info.Sys().(*syscall.Stat_t)
			return fileOwner{int(stat.Uid), int(stat.Gid)}
		}
	}
	return fileOwner{os.Geteuid(), os.Getegid()}
}

// give gives all files of a database to their owner, where we may.
func (o fileOwner) give(path string, beside []string) error {
	if os.Geteuid() != 0 {
		return nil
	}
	var errs []error
	for _, suffix := range slices.Concat(beside, []string{".lock", reserveSuffix}, companions) {
		if err := os.Lchown(path+suffix, o.uid, o.gid); !os.IsNotExist(err) {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}
