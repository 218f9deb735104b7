//go:build unix

package sqlite

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"syscall"
)

// fileOwner is the owner of files.
type fileOwner struct{ uid, gid int }

// ownerToBe is the owner of a database's files, or of its folder if the database is not there yet.
// Root must leave the files to the daemon's user.
func ownerToBe(path string) fileOwner {
	for _, name := range []string{path, filepath.Dir(path)} {
		if info, err := os.Stat(name); err == nil {
			stat := info.Sys().(*syscall.Stat_t)
			return fileOwner{int(stat.Uid), int(stat.Gid)}
		}
	}
	return fileOwner{os.Geteuid(), os.Getegid()}
}

// give gives all files of a database to their owner, if this process is root.
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
