package daemon

import "path/filepath"

// serviceGroup is none: every user who has logged on to this machine may speak
// to the service, as the pipe's descriptor says.
const serviceGroup = ""

const homeVariables = "ProgramData"

// Windows has one place for both: the pipe's descriptor and the agents' owners
// tell users apart.
func defaultPaths(_ bool, env Environment) paths {
	p := paths{}
	if data := env("ProgramData"); data != "" {
		p.database = filepath.Join(data, "ckptsidecar", "ckpt.db")
		p.config = filepath.Join(data, "ckptsidecar", "config.toml")
	}
	return p
}

// servesAll says whether a daemon that was started by hand takes more than its
// own user's calls.
func servesAll() bool { return false }
