package host

import (
	"os"
	"sync"

	"golang.org/x/sys/windows"
)

// machineSID is the SID of this machine, with which the SIDs of its own accounts begin.
// It is "" where Windows does not say.
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
