package endpoint

import (
	"errors"
	"fmt"
	"io/fs"
	"math"
	"os"
	"strings"
)

// CheckIdentityMap refuses a user namespace whose ids are not the host's. All users that
// do not exist in such a map look like one user (65534), and a daemon for several users
// could not tell them apart.
func CheckIdentityMap() error {
	text, err := os.ReadFile("/proc/self/uid_map")
	if errors.Is(err, fs.ErrNotExist) && hasProc() {
		return nil // a kernel without user namespaces
	}
	if err != nil {
		return fmt.Errorf("cannot tell whether user ids are the host's: %w", err)
	}
	if !isIdentity(string(text)) {
		return fmt.Errorf("user ids are remapped here (/proc/self/uid_map is %w), so a daemon for several users cannot "+
			"tell them apart: run it outside the user namespace (PrivateUsers=off), or run it for one user only", ErrIdentityMap)
	}
	return nil
}

func hasProc() bool {
	_, err := os.Stat("/proc/self/stat")
	return err == nil
}

// isIdentity reports whether the map maps every uid to itself. A map that does so only
// for some uids leaves the rest indistinguishable.
func isIdentity(text string) bool {
	var next uint64
	for line := range strings.Lines(text) {
		var inside, outside, count uint64
		if _, err := fmt.Sscan(line, &inside, &outside, &count); err != nil {
			return false
		}
		if inside != next || outside != next {
			return false
		}
		next += count
	}
	return next == math.MaxUint32 // 4294967295 is "no uid", so it is never mapped
}
