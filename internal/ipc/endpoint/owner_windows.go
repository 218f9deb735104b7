package endpoint

import (
	"fmt"
	"net"

	"golang.org/x/sys/windows"
)

// serviceAccount is the virtual account of this program's service.
const serviceAccount = `NT SERVICE\ckptsidecar`

// StrangerError means that the pipe belongs to an account that this process does not
// trust with states. Nothing was sent to it.
type StrangerError struct{ SID string }

func (e *StrangerError) Error() string {
	return "the pipe belongs to " + e.SID + ", which is neither the service, an administrator nor you; stop the program that created it"
}

// checkOwner protects a client against squatters: any user can create a pipe with any
// free name, but not one that belongs to another account.
func checkOwner(c net.Conn) error {
	h, err := handleOf(c)
	if err != nil {
		return err
	}
	sd, err := windows.GetSecurityInfo(h, windows.SE_KERNEL_OBJECT, windows.OWNER_SECURITY_INFORMATION)
	if err != nil {
		return fmt.Errorf("cannot read the owner of the pipe: %w", err)
	}
	owner, _, err := sd.Owner()
	if err != nil {
		return fmt.Errorf("cannot read the owner of the pipe: %w", err)
	}
	if owner == nil || !trusted(owner) {
		return &StrangerError{SID: owner.String()}
	}
	return nil
}

func trusted(owner *windows.SID) bool {
	if owner.IsWellKnown(windows.WinLocalSystemSid) || owner.IsWellKnown(windows.WinBuiltinAdministratorsSid) {
		return true
	}
	if self, err := selfSID(); err == nil && owner.String() == self {
		return true
	}
	service, _, _, err := windows.LookupSID("", serviceAccount)
	return err == nil && owner.Equals(service)
}

func selfSID() (string, error) {
	u, err := windows.GetCurrentProcessToken().GetTokenUser()
	if err != nil {
		return "", fmt.Errorf("who am I: %w", err)
	}
	return u.User.Sid.String(), nil
}

// handleOf returns the pipe's handle from go-winio's connection.
func handleOf(c net.Conn) (windows.Handle, error) {
	f, ok := c.(interface{ Fd() uintptr })
	if !ok {
		return 0, fmt.Errorf("%T has no pipe handle", c)
	}
	return windows.Handle(f.Fd()), nil
}
