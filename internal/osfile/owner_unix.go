//go:build unix

package osfile

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
)

// Owner is a user with one group, as the owner of a folder.
type Owner struct{ UID, GID int }

// Controller returns the user who can change what is in a folder: the first owner other than root on the path down to
// it, including links on the path. That user can put anything at the places below. The group is that of the folder, or
// of the lowest part of the path that exists. If only root controls the path, the result is root.
func Controller(folder string) (Owner, error) {
	path, err := filepath.Abs(folder)
	if err != nil {
		return Owner{}, err
	}
	var owner Owner
	for range 40 {
		resolved, err := owner.along(path)
		if err != nil || resolved == "" {
			return owner, err
		}
		path = resolved
	}
	return owner, &fs.PathError{Op: "resolve", Path: folder, Err: syscall.ELOOP}
}

// along walks down a path until its end or a link. It returns the path with that link resolved, "" at the end.
func (o *Owner) along(path string) (resolved string, err error) {
	parts := strings.FieldsFunc(path, func(r rune) bool { return r == '/' })
	at := "/"
	for i, part := range parts {
		next := filepath.Join(at, part)
		info, err := os.Lstat(next)
		if errors.Is(err, fs.ErrNotExist) {
			return "", nil
		}
		if err != nil {
			return "", err
		}
		st := info.Sys().(*syscall.Stat_t)
		if o.UID == 0 {
			o.UID = int(st.Uid)
		}
		if info.Mode()&fs.ModeSymlink == 0 {
			o.GID, at = int(st.Gid), next
			continue
		}
		target, err := os.Readlink(next)
		if err != nil {
			return "", err
		}
		if !filepath.IsAbs(target) {
			target = filepath.Join(at, target)
		}
		return filepath.Join(append([]string{target}, parts[i+1:]...)...), nil
	}
	return "", nil
}

// IsRoot says whether the owner is root.
func (o Owner) IsRoot() bool { return o.UID == 0 }

// Become permanently gives up root's rights and continues as the owner. It changes the whole process, so it is for
// commands that end soon after. It does nothing if the process is not root's or the owner is root.
func (o Owner) Become() error {
	if os.Geteuid() != 0 || o.IsRoot() {
		return nil
	}
	err := syscall.Setgroups([]int{o.GID})
	if err == nil {
		err = syscall.Setgid(o.GID)
	}
	if err == nil {
		err = syscall.Setuid(o.UID)
	}
	if err != nil {
		return fmt.Errorf("root's rights cannot be given up for those of uid %d: %w", o.UID, err)
	}
	return nil
}

// During runs f with the owner's rights, and then takes root's rights back.
func (o Owner) During(f func() error) (err error) {
	if os.Geteuid() != 0 || o.IsRoot() {
		return f()
	}
	groups, err := syscall.Getgroups()
	if err != nil {
		return err
	}
	group := os.Getegid()
	steps := []func() error{
		func() error { return syscall.Setgroups([]int{o.GID}) },
		func() error { return syscall.Setregid(-1, o.GID) },
		func() error { return syscall.Setreuid(-1, o.UID) },
	}
	back := []func() error{
		func() error { return syscall.Setgroups(groups) },
		func() error { return syscall.Setregid(-1, group) },
		func() error { return syscall.Setreuid(-1, 0) },
	}
	done := 0
	defer func() {
		for done > 0 {
			done--
			if undone := back[done](); undone != nil {
				err = errors.Join(err, fmt.Errorf("root's rights cannot be taken back: %w", undone))
			}
		}
	}()
	for _, step := range steps {
		if err := step(); err != nil {
			return fmt.Errorf("the rights of uid %d cannot be taken: %w", o.UID, err)
		}
		done++
	}
	return f()
}
