package endpoint

import (
	"errors"
	"unsafe"

	"golang.org/x/sys/unix"
)

// peerCredentials reads what the kernel recorded when the peer called connect. It reads
// the groups only if they can matter.
func peerCredentials(fd int, withGroups bool) (credentials, error) {
	u, err := unix.GetsockoptUcred(fd, unix.SOL_SOCKET, unix.SO_PEERCRED)
	if err != nil {
		return credentials{}, err
	}
	c := credentials{uid: u.Uid, gid: u.Gid, pid: int(u.Pid)}
	if withGroups {
		c.groups, err = peerGroups(fd)
	}
	return c, err
}

// peerGroups reads SO_PEERGROUPS. On a kernel without it, the peer has no supplementary
// groups, and therefore fewer rights, never more.
func peerGroups(fd int) ([]uint32, error) {
	for room := 64; ; {
		groups := make([]uint32, room)
		n, err := getPeerGroups(fd, groups)
		switch {
		case err == nil:
			return groups[:n], nil
		case errors.Is(err, unix.ENOPROTOOPT):
			return nil, nil
		case !errors.Is(err, unix.ERANGE) || n <= room:
			return nil, err
		}
		room = n // the kernel reported the number of groups
	}
}

// getPeerGroups exists because x/sys has no call for it.
func getPeerGroups(fd int, groups []uint32) (int, error) {
	size := uint32(len(groups)) * 4
	_, _, errno := unix.Syscall6(unix.SYS_GETSOCKOPT, uintptr(fd), unix.SOL_SOCKET, unix.SO_PEERGROUPS,
		uintptr(unsafe.Pointer(&groups[0])), uintptr(unsafe.Pointer(&size)), 0)
	if errno != 0 {
		return int(size / 4), errno
	}
	return int(size / 4), nil
}
