package host

import (
	"fmt"
	"io/fs"
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

// SyncData waits until a file's bytes are on the disk.
func SyncData(f *os.File) error { return unix.Fdatasync(int(f.Fd())) }

// Lock takes a lock, which is released when this process ends or the returned file is closed. It
// fails if another process has the lock.
func Lock(path string) (*os.File, error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, err
	}
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		f.Close()
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return f, nil
}

// Disk is the file system that is measured.
type Disk struct{ dir *os.File }

// OpenDisk opens the disk below a folder, and refuses a file system that is in memory.
func OpenDisk(dir string) (*Disk, error) {
	var s unix.Statfs_t
	if err := unix.Statfs(dir, &s); err != nil {
		return nil, fmt.Errorf("%s: %w", dir, err)
	}
	if s.Type == unix.TMPFS_MAGIC || s.Type == unix.RAMFS_MAGIC {
		return nil, fmt.Errorf("%s is in memory, where a flush costs nothing: name a folder on a disk with --dir", dir)
	}
	f, err := os.Open(dir)
	return &Disk{f}, err
}

// Close closes the folder of the disk.
func (d *Disk) Close() error { return d.dir.Close() }

// Settle waits until everything that any process has written is on the disk, so that no measurement
// pays for the one before.
func (d *Disk) Settle() error { return unix.Syncfs(int(d.dir.Fd())) }

// Free returns how many bytes can still be written.
func (d *Disk) Free() (int64, error) {
	var s unix.Statfs_t
	err := unix.Fstatfs(int(d.dir.Fd()), &s)
	return int64(s.Bavail) * s.Frsize, err
}

// Kind returns the name of the file system.
func (d *Disk) Kind() string {
	var s unix.Statfs_t
	if err := unix.Fstatfs(int(d.dir.Fd()), &s); err != nil {
		return "unknown"
	}
	if name := names[s.Type]; name != "" {
		return name
	}
	return fmt.Sprintf("file system %#x", s.Type)
}

var names = map[int64]string{
	unix.EXT4_SUPER_MAGIC: "ext4", unix.XFS_SUPER_MAGIC: "xfs", unix.BTRFS_SUPER_MAGIC: "btrfs",
	unix.OVERLAYFS_SUPER_MAGIC: "overlayfs", unix.F2FS_SUPER_MAGIC: "f2fs", 0x2fc12fc1: "zfs",
}

func allocated(info fs.FileInfo) int64 {
	if s, ok := info.Sys().(*syscall.Stat_t); ok {
		return s.Blocks * 512
	}
	return info.Size()
}
