//go:build linux || darwin

package endpoint

import (
	"fmt"
	"os/user"
	"strconv"
)

// noGroup stands for "no group configured". chown reads it as "do not change".
const noGroup = -1

// groupID resolves a group's name or number. This is done once, at start: a group that is
// renamed or renumbered needs a restart, but no lookup can be slow or fail while a peer
// waits.
func groupID(name string) (int, error) {
	if name == "" {
		return noGroup, nil
	}
	if n, err := strconv.ParseUint(name, 10, 31); err == nil {
		return int(n), nil
	}
	g, err := user.LookupGroup(name)
	if err != nil {
		return noGroup, fmt.Errorf("group %q: %w; create it, or give its number", name, err)
	}
	return strconv.Atoi(g.Gid)
}
