package daemon

import "path/filepath"

// serviceGroup is empty: the pipe's descriptor lets every user who has logged on to this
// machine connect to the service.
const serviceGroup = ""

// homeVariables are the variables that decide where the files are, for messages.
const homeVariables = "LOCALAPPDATA, for the service ProgramData"

// defaultPaths returns files below the user's local data, or below the data of the machine.
func defaultPaths(system bool, env Environment) paths {
	variable := "LOCALAPPDATA"
	if system {
		variable = "ProgramData"
	}
	data := env(variable)
	if !filepath.IsAbs(data) {
		return paths{}
	}
	return paths{
		database: filepath.Join(data, "ckptsidecar", "ckpt.db"),
		config:   filepath.Join(data, "ckptsidecar", "config.toml"),
	}
}

// servesAll reports whether a daemon that a person started by hand accepts calls of other
// users.
func servesAll() bool { return false }
