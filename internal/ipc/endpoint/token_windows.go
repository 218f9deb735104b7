package endpoint

import (
	"fmt"
	"time"

	"golang.org/x/sys/windows"
)

// clientCredentials reads the token of the process at the other end.
//
// It uses the client's process and not impersonation, because a pipe has no identity to
// impersonate before the first read, unless the client asked for it, and the daemon needs
// the identity at accept. This has one weak point: a client passes its end to another
// process and exits, and a process of another user gets its pid. The start time solves
// this: a process that began after the connection did not make it.
//
// The daemon must have the right to inspect its clients' processes. LocalSystem has it,
// and a user has it for their own processes. A service under a lesser account does not
// have it.
func clientCredentials(pipe windows.Handle, at time.Time) (credentials, error) {
	var pid uint32
	if err := windows.GetNamedPipeClientProcessId(pipe, &pid); err != nil {
		return credentials{}, err
	}
	process, err := windows.OpenProcess(windows.PROCESS_QUERY_LIMITED_INFORMATION, false, pid)
	if err != nil {
		return credentials{}, fmt.Errorf("process %d: %w", pid, err)
	}
	defer windows.CloseHandle(process)
	if err := startedBefore(process, at); err != nil {
		return credentials{}, fmt.Errorf("process %d: %w", pid, err)
	}
	c, err := tokenCredentials(process)
	if err != nil {
		return credentials{}, fmt.Errorf("token of process %d: %w", pid, err)
	}
	c.pid = int(pid)
	return c, nil
}

func startedBefore(process windows.Handle, at time.Time) error {
	var start, exit, kernel, user windows.Filetime
	if err := windows.GetProcessTimes(process, &start, &exit, &kernel, &user); err != nil {
		return err
	}
	if began := time.Unix(0, start.Nanoseconds()); began.After(at) {
		return fmt.Errorf("it started at %v, after the connection (or the clock was set back)", began)
	}
	return nil
}

func tokenCredentials(process windows.Handle) (credentials, error) {
	var token windows.Token
	if err := windows.OpenProcessToken(process, windows.TOKEN_QUERY, &token); err != nil {
		return credentials{}, err
	}
	defer token.Close()
	user, err := token.GetTokenUser()
	if err != nil {
		return credentials{}, err
	}
	groups, err := token.GetTokenGroups()
	if err != nil {
		return credentials{}, err
	}
	return credentials{user: user.User.Sid.String(), groups: effective(groups.AllGroups())}, nil
}

// effective leaves out the groups that grant nothing.
func effective(all []windows.SIDAndAttributes) []string {
	var list []string
	for _, g := range all {
		on := g.Attributes&windows.SE_GROUP_ENABLED != 0
		if on && g.Attributes&windows.SE_GROUP_USE_FOR_DENY_ONLY == 0 {
			list = append(list, g.Sid.String())
		}
	}
	return list
}
