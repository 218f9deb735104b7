package endpoint

import (
	"fmt"
	"net"
	"slices"
	"time"
)

// Well-known SIDs that influence the decision.
const (
	sidSystem    = "S-1-5-18"
	sidAdmins    = "S-1-5-32-544"
	sidNetwork   = "S-1-5-2"
	sidAnonymous = "S-1-5-7"
)

// credentials are what the kernel knows about the process that connected. They do not
// contain groups that only deny, such as Administrators before elevation.
type credentials struct {
	user   string
	groups []string
	pid    int
}

// doorman decides who may connect and who is an admin.
type doorman struct {
	self       string
	singleUser bool
	adminGroup string
}

func newDoorman(o Options) (doorman, error) {
	admin, err := groupSID(o.AdminGroup)
	if err != nil {
		return doorman{}, fmt.Errorf("admin %w", err)
	}
	self, err := selfSID()
	if err != nil {
		return doorman{}, err
	}
	return doorman{self: self, singleUser: o.SingleUser, adminGroup: admin}, nil
}

// admit is the whole rule. In a user's own daemon, everyone who may connect is an admin.
// The descriptor has refused network and anonymous logons already. Checking them here
// again costs nothing and depends on no list.
func (d doorman) admit(c credentials) (Peer, error) {
	root := c.user == sidSystem || slices.Contains(c.groups, sidAdmins)
	switch {
	case c.user == "" || c.user == sidAnonymous:
		return Peer{}, refused("the client is anonymous")
	case slices.Contains(c.groups, sidNetwork):
		return Peer{}, refused("%s came over the network", c.user)
	case d.singleUser && !root && c.user != d.self:
		return Peer{}, refused("%s is not the owner of this daemon (%s)", c.user, d.self)
	}
	admin := root || d.singleUser || d.adminGroup != "" && slices.Contains(c.groups, d.adminGroup)
	return Peer{Owner: c.user, PID: c.pid, Admin: admin}, nil
}

type pipePeerConn struct {
	net.Conn
	peer Peer
}

func (c *pipePeerConn) Peer() Peer { return c.peer }

func (d doorman) identify(c net.Conn) (PeerConn, error) {
	at := time.Now()
	h, err := handleOf(c)
	if err != nil {
		return nil, refused("%w", err)
	}
	cred, err := clientCredentials(h, at)
	if err != nil {
		return nil, refused("cannot read who connected: %w", err)
	}
	peer, err := d.admit(cred)
	if err != nil {
		return nil, err
	}
	return &pipePeerConn{Conn: c, peer: peer}, nil
}
