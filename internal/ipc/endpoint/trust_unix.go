//go:build linux || darwin

package endpoint

import (
	"fmt"
	"net"
	"os"
	"path/filepath"
)

// The range of uids that systemd assigns to services while they run (DynamicUser=).
const (
	firstDynamicUser = 61184
	lastDynamicUser  = 65519
)

// StrangerError means that the endpoint belongs to a user whom this process does not
// trust with states. Nothing was sent to that user.
type StrangerError struct {
	Peer uint32 // the user who listens
	Self uint32 // the user who wanted to connect
}

func (e *StrangerError) Error() string {
	return fmt.Sprintf("uid %d listens there, and this process is uid %d; it talks only to daemons of root, "+
		"of its own user and of the service's user",
		e.Peer, e.Self)
}

// checkListener asks the kernel who listens at the other end, before the first byte is
// sent. doc.go has the rule.
func checkListener(c net.Conn, path string) error {
	uc, ok := c.(*net.UnixConn)
	if !ok {
		return fmt.Errorf("%T has no kernel identity", c)
	}
	cred, err := doorman{adminGID: noGroup}.read(uc)
	if err != nil {
		return fmt.Errorf("cannot read who listens: %w", err)
	}
	self := uint32(os.Geteuid())
	if cred.uid == 0 || cred.uid == self || isServiceUser(cred.uid, path) {
		return nil
	}
	return &StrangerError{Peer: cred.uid, Self: self}
}

// isServiceUser reports whether root has given the place of the socket to uid.
func isServiceUser(uid uint32, path string) bool {
	if uid == overflowID {
		return false
	}
	dir, err := filepath.EvalSymlinks(filepath.Dir(path))
	if err != nil {
		return false
	}
	folder, err := os.Stat(dir)
	if err != nil || folder.Mode()&0o022 != 0 {
		return false
	}
	switch ownerOf(folder) {
	case 0:
		socket, err := os.Lstat(filepath.Join(dir, filepath.Base(path)))
		return err == nil && ownerOf(socket) == uid && aboveIsRoots(dir, true)
	case uid:
		return (path == Default(true) || isSystemAccount(uid)) && aboveIsRoots(dir, false)
	}
	return false
}

// aboveIsRoots reports whether only root can replace dir by another folder. A sticky
// folder such as /tmp prevents other users from replacing a folder of root, but every
// user can create a new one there.
func aboveIsRoots(dir string, stickyCounts bool) bool {
	for up := filepath.Dir(dir); ; up = filepath.Dir(up) {
		fi, err := os.Stat(up)
		if err != nil || ownerOf(fi) != 0 {
			return false
		}
		sticky := stickyCounts && fi.Mode()&os.ModeSticky != 0
		if fi.Mode()&0o022 != 0 && !sticky {
			return false
		}
		if up == filepath.Dir(up) {
			return true
		}
	}
}

// isSystemAccount distinguishes the accounts of services from those of people. Root
// creates folders for both: /run/ckptsidecar for one, /run/user/1000 for the other.
func isSystemAccount(uid uint32) bool {
	return uid < firstPerson || uid >= firstDynamicUser && uid <= lastDynamicUser
}
