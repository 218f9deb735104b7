package osfile

import "golang.org/x/sys/unix"

// FileSystem reports whether a folder is in memory or on the network.
func FileSystem(dir string) (memory, network bool) {
	var s unix.Statfs_t
	if unix.Statfs(dir, &s) != nil {
		return false, false
	}
	switch uint32(s.Type) {
	case unix.TMPFS_MAGIC, unix.RAMFS_MAGIC:
		return true, false
	case unix.NFS_SUPER_MAGIC, unix.SMB_SUPER_MAGIC, unix.SMB2_SUPER_MAGIC, unix.CIFS_SUPER_MAGIC, unix.V9FS_MAGIC:
		return false, true
	}
	return false, false
}
