package endpoint

import (
	"fmt"
	"strings"

	"golang.org/x/sys/windows"
)

// clientRights are FILE_GENERIC_READ and FILE_GENERIC_WRITE without the bit 0x4,
// which means "append" on a file and FILE_CREATE_PIPE_INSTANCE on a pipe.
const clientRights = (windows.FILE_GENERIC_READ | windows.FILE_GENERIC_WRITE) &^ createInstance

const createInstance = 0x4

// descriptor is the pipe's security descriptor, in SDDL.
//
// O: names the daemon's own account as the owner, because a client checks the owner
// before it trusts the pipe, and a user cannot create a pipe that belongs to another
// account. D:P is a list that inherits nothing. Refusals come first, because the first
// entry that matches decides: NU is every logon over the network (S-1-5-2; go-winio asks
// for PIPE_REJECT_REMOTE_CLIENTS as well), AN the anonymous logon (S-1-5-7). Only the
// daemon's own account gets GA, full access, because go-winio creates an instance of the
// pipe for each connection. LocalSystem (SY), elevated Administrators (BA) and the
// clients (AU, every authenticated user, or the configured group) get 0x12019b, which is
// read and write without the right to create instances: a program with that right could
// answer the daemon's clients. A client that asks for GENERIC_WRITE, which contains the
// bit, can still connect, because the pipe file system ignores the bit when it checks a
// client. A user's own daemon has no entry for others at all. go-winio's FILE_CREATE
// makes sure that the pipe is the first of its name (FILE_FLAG_FIRST_PIPE_INSTANCE).
func descriptor(owner, clients string) string {
	s := fmt.Sprintf("O:%[1]sD:P(D;;GA;;;NU)(D;;GA;;;AN)(A;;GA;;;%[1]s)", owner)
	for _, who := range []string{"SY", "BA", clients} {
		if who != "" {
			s += fmt.Sprintf("(A;;0x%x;;;%s)", clientRights, who)
		}
	}
	return s
}

// clientsOf returns who may open the pipe in addition to its owner and administrators.
func clientsOf(o Options) (string, error) {
	switch {
	case o.SingleUser:
		return "", nil
	case o.Group == "":
		return "AU", nil
	}
	sid, err := groupSID(o.Group)
	if err != nil {
		return "", err
	}
	return sid, nil
}

// groupSID returns a SID unchanged and looks up a name. "" stays "".
func groupSID(name string) (string, error) {
	if name == "" || strings.HasPrefix(name, "S-1-") {
		return name, checkSID(name)
	}
	sid, _, _, err := windows.LookupSID("", name)
	if err != nil {
		return "", fmt.Errorf("group %q: %w; create it, or give its SID", name, err)
	}
	return sid.String(), nil
}

func checkSID(s string) error {
	if s == "" {
		return nil
	}
	if _, err := windows.StringToSid(s); err != nil {
		return fmt.Errorf("group %q is no SID: %w", s, err)
	}
	return nil
}
