//go:build linux || darwin

package endpoint

import (
	"fmt"
	"net"
	"os"
	"slices"
	"strconv"
)

// overflowID is what the kernel reports for a user or group that does not exist in this
// user namespace. Many different users look like it, so it identifies nobody.
const overflowID = 65534

// credentials are what the kernel knows about the process that connected.
type credentials struct {
	uid, gid uint32
	groups   []uint32
	pid      int
}

// doorman decides who may connect and who is an admin.
type doorman struct {
	self       uint32
	singleUser bool
	adminGID   int
}

func newDoorman(o Options) (doorman, error) {
	gid, err := groupID(o.AdminGroup)
	if err != nil {
		return doorman{}, fmt.Errorf("admin %w", err)
	}
	if gid == overflowID {
		return doorman{}, fmt.Errorf(
			"admin group %q has the number %d, which stands for all unknown groups: choose another group", o.AdminGroup, overflowID)
	}
	return doorman{self: uint32(os.Geteuid()), singleUser: o.SingleUser, adminGID: gid}, nil
}

// admit is the whole rule. In a user's own daemon, everyone who may connect is an admin.
func (d doorman) admit(c credentials) (Peer, error) {
	if d.singleUser && c.uid != 0 && c.uid != d.self {
		return Peer{}, refused("uid %d is not the owner of this daemon (uid %d)", c.uid, d.self)
	}
	if !d.singleUser && c.uid == overflowID {
		return Peer{}, refused("uid %d stands for all unknown users, so it identifies nobody", c.uid)
	}
	owner := "uid:" + strconv.FormatUint(uint64(c.uid), 10)
	return Peer{Owner: owner, PID: c.pid, Admin: c.uid == 0 || d.singleUser || d.inAdminGroup(c)}, nil
}

func (d doorman) inAdminGroup(c credentials) bool {
	if d.adminGID == noGroup {
		return false
	}
	gid := uint32(d.adminGID)
	return c.gid == gid || slices.Contains(c.groups, gid)
}

// unixPeerConn keeps the methods of *net.UnixConn. One of them is CloseWrite, which
// net/http uses to end a reply without a reset.
type unixPeerConn struct {
	*net.UnixConn
	peer Peer
}

func (c *unixPeerConn) Peer() Peer { return c.peer }

func (d doorman) identify(c net.Conn) (PeerConn, error) {
	uc, ok := c.(*net.UnixConn)
	if !ok {
		return nil, refused("%T has no kernel identity", c)
	}
	cred, err := d.read(uc)
	if err != nil {
		return nil, refused("cannot read who connected: %w", err)
	}
	peer, err := d.admit(cred)
	if err != nil {
		return nil, err
	}
	return &unixPeerConn{UnixConn: uc, peer: peer}, nil
}

// read asks the kernel through the connection's descriptor.
func (d doorman) read(uc *net.UnixConn) (c credentials, err error) {
	raw, err := uc.SyscallConn()
	if err != nil {
		return c, err
	}
	ctlErr := raw.Control(func(fd uintptr) { c, err = peerCredentials(int(fd), d.adminGID != noGroup) })
	if ctlErr != nil {
		return c, ctlErr
	}
	return c, err
}
