//go:build unix

package daemon

import (
	"os"
	"path/filepath"

	"github.com/ckptsidecar/ckptsidecar/internal/ipc/endpoint"
)

// servesAll says whether a daemon that was started by hand takes more than its
// own user's calls: root's does, where the kernel can tell users apart. Who
// reaches its socket is still for the socket's mode and folder to say.
func servesAll() bool { return os.Geteuid() == 0 && endpoint.CheckIdentityMap() == nil }

// serviceGroup is the group whose members may speak to the system service.
const serviceGroup = "ckptsidecar"

// homeVariables are what decides where a user's own files lie, for messages.
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

// userFile is a file below a folder of the XDG standard, which says to ignore a
// folder that is not absolute; "" where the environment names none at all.
func userFile(env Environment, variable, belowHome, name string) string {
	if dir := env(variable); filepath.IsAbs(dir) {
		return filepath.Join(dir, name)
	}
	if home := env("HOME"); filepath.IsAbs(home) {
		return filepath.Join(home, belowHome, name)
	}
	return ""
}
