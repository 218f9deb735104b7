package host

import (
	"os"
	"sync"

	"golang.org/x/sys/windows"
)

// machineSID returns the SID of this machine. The SIDs of the machine's own accounts
// begin with it. It is "" if Windows does not tell it.
var machineSID = sync.OnceValue(func() string {
	name, err := os.Hostname()
	if err != nil {
		return ""
	}
	sid, _, _, err := windows.LookupSID("", name)
	if err != nil {
		return ""
	}
	return sid.String()
})
