//go:build linux || darwin

package endpoint

import (
	"os"
	"path/filepath"
	"strconv"
	"syscall"
)

const socketName = "ckptsidecar.sock"

// strangerEnds is true: a stranger at the user's own endpoint means that the environment is not what its user thinks.
const strangerEnds = true

// Default returns the endpoint of the system's daemon, or of the user's own. The user's own is in
// XDG_RUNTIME_DIR. Where that is not set, as under cron, it is in the user's runtime folder, or, if
// there is none, beside the database. It is "" if no such folder is known.
func Default(system bool) string {
	if system {
		return filepath.Join(systemRun, "ckptsidecar", socketName)
	}
	if dir := absEnv("XDG_RUNTIME_DIR"); dir != "" {
		return filepath.Join(dir, socketName)
	}
	if dir := runtimeFolder(runtimeFolders, os.Getuid()); dir != "" {
		return filepath.Join(dir, socketName)
	}
	if dir := stateHome(); dir != "" {
		return filepath.Join(dir, "ckptsidecar", socketName)
	}
	return ""
}

// runtimeFolder returns the folder that systemd or another login manager made for a user, "" if there is none.
func runtimeFolder(above string, uid int) string {
	dir := filepath.Join(above, strconv.Itoa(uid))
	info, err := os.Stat(dir)
	if above == "" || err != nil || !info.IsDir() {
		return ""
	}
	if st, ok := info.Sys().(*syscall.Stat_t); !ok || int(st.Uid) != uid {
		return ""
	}
	return dir
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
