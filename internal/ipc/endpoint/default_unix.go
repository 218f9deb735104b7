//go:build linux || darwin

package endpoint

import (
	"os"
	"path/filepath"
)

const socketName = "ckptsidecar.sock"

// Default returns the endpoint of the system's daemon, or of the user's own. The user's
// is "" if XDG_RUNTIME_DIR, XDG_STATE_HOME and the home folder are all unknown.
func Default(system bool) string {
	if system {
		return filepath.Join(systemRun, "ckptsidecar", socketName)
	}
	if dir := absEnv("XDG_RUNTIME_DIR"); dir != "" {
		return filepath.Join(dir, socketName)
	}
	if dir := stateHome(); dir != "" {
		return filepath.Join(dir, "ckptsidecar", socketName)
	}
	return ""
}

// stateHome returns the folder of the user's database.
func stateHome() string {
	if dir := absEnv("XDG_STATE_HOME"); dir != "" {
		return dir
	}
	home, err := os.UserHomeDir()
	if err != nil || !filepath.IsAbs(home) {
		return ""
	}
	return filepath.Join(home, ".local", "state")
}

// absEnv ignores relative values, as the XDG specification requires.
func absEnv(name string) string {
	if v := os.Getenv(name); filepath.IsAbs(v) {
		return v
	}
	return ""
}
