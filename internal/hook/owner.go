package hook

import (
	"path/filepath"
	"slices"
	"strings"
)

// shells are programs that start hooks for an agent. They are not the agent.
var shells = []string{"sh", "bash", "dash", "zsh", "ksh", "fish", "ash", "busybox", "env", "timeout", "cmd", "powershell", "pwsh", "conhost"}

// maxAncestors limits the search: no product puts so many shells in between.
const maxAncestors = 8

// OwnerOf returns the process for which a hook was started: the nearest ancestor that
// is not a shell, beginning with pid itself. It returns 0 if that cannot be found out.
func OwnerOf(pid int) int {
	for range maxAncestors {
		name, parent, ok := processOf(pid)
		if !ok || pid <= 1 {
			return 0
		}
		if !isShell(name) {
			return pid
		}
		pid = parent
	}
	return 0
}

func isShell(name string) bool {
	name = strings.ToLower(filepath.Base(strings.ReplaceAll(name, `\`, "/")))
	return slices.Contains(shells, strings.TrimPrefix(strings.TrimSuffix(name, ".exe"), "-"))
}
