package endpoint

import (
	"os/user"
	"strconv"

	"golang.org/x/sys/unix"
)

// peerCredentials reads what the kernel recorded when the peer called connect. The first
// of the kernel's groups is the primary one.
func peerCredentials(fd int, withGroups bool) (credentials, error) {
	x, err := unix.GetsockoptXucred(fd, unix.SOL_LOCAL, unix.LOCAL_PEERCRED)
	if err != nil {
		return credentials{}, err
	}
	pid, err := unix.GetsockoptInt(fd, unix.SOL_LOCAL, unix.LOCAL_PEERPID)
	if err != nil {
		pid = 0 // it is only a hint: without it, the connection is still accepted
	}
	n := min(max(int(x.Ngroups), 0), len(x.Groups))
	c := credentials{uid: x.Uid, gid: overflowID, groups: x.Groups[:n], pid: pid}
	if n > 0 {
		c.gid = x.Groups[0]
	}
	if withGroups && n == len(x.Groups) {
		c.groups = append(c.groups, directoryGroups(x.Uid)...)
	}
	return c, nil
}

// directoryGroups asks the directory for the groups for which the kernel's list has no
// room. If they are unknown, the peer has fewer rights, never more.
func directoryGroups(uid uint32) []uint32 {
	u, err := user.LookupId(strconv.FormatUint(uint64(uid), 10))
	if err != nil {
		return nil
	}
	ids, err := u.GroupIds()
	if err != nil {
		return nil
	}
	var list []uint32
	for _, id := range ids {
		if n, err := strconv.ParseUint(id, 10, 32); err == nil {
			list = append(list, uint32(n))
		}
	}
	return list
}
