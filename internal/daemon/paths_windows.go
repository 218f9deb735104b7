package daemon

import "path/filepath"

// serviceGroup is empty: the pipe's descriptor lets every user who has logged on to this
// machine connect to the service.
const serviceGroup = ""

const homeVariables = "ProgramData"

// defaultPaths returns one place for both kinds of daemon: the pipe's descriptor and the
// owners of agents keep users apart.
func defaultPaths(_ bool, env Environment) paths {
	p := paths{}
	if data := env("ProgramData"); data != "" {
		p.database = filepath.Join(data, "ckptsidecar", "ckpt.db")
		p.config = filepath.Join(data, "ckptsidecar", "config.toml")
	}
	return p
}

// servesAll reports whether a daemon that a person started by hand accepts calls of other
// users.
func servesAll() bool { return false }
