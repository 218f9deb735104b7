//go:build unix

package daemon

import (
	"os"
	"path/filepath"

	"github.com/ckptsidecar/ckptsidecar/internal/ipc/endpoint"
)

// servesAll reports whether a daemon that a person started by hand accepts calls of other
// users. The daemon of root does, if the kernel can tell users apart. The mode and the
// folder of its socket still decide who can reach the socket.
func servesAll() bool { return os.Geteuid() == 0 && endpoint.CheckIdentityMap() == nil }

// serviceGroup is the group whose members may connect to the system service.
const serviceGroup = "ckptsidecar"

// homeVariables are the variables that decide where a user's own files are, for messages.
const homeVariables = "XDG_STATE_HOME, HOME"

func defaultPaths(system bool, env Environment) paths {
	if system {
		return paths{
			database: "/var/lib/ckptsidecar/ckpt.db",
			config:   "/etc/ckptsidecar/config.toml",
		}
	}
	return paths{
		database: userFile(env, "XDG_STATE_HOME", ".local/state", "ckptsidecar/ckpt.db"),
		config:   userFile(env, "XDG_CONFIG_HOME", ".config", "ckptsidecar/config.toml"),
	}
}

// userFile returns the path of a file below a folder of the XDG standard. The standard
// says to ignore a folder that is not absolute. The path is "" if the environment names
// no folder.
func userFile(env Environment, variable, belowHome, name string) string {
	if dir := env(variable); filepath.IsAbs(dir) {
		return filepath.Join(dir, name)
	}
	if home := env("HOME"); filepath.IsAbs(home) {
		return filepath.Join(home, belowHome, name)
	}
	return ""
}
