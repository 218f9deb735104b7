package endpoint

// servicePipe is the pipe of the service. Pipes have one flat name space for all users.
const servicePipe = pipePrefix + "ckptsidecar"

// strangerEnds is false: every user can create a pipe with the name of another user's pipe. A stranger there must not
// keep that user from the service.
const strangerEnds = false

// Default returns the pipe of the service, or of the user's own daemon. The name of the user's own ends with the SID
// of the user. It is "" if the SID cannot be read.
func Default(system bool) string {
	if system {
		return servicePipe
	}
	sid, err := selfSID()
	if err != nil {
		return ""
	}
	return servicePipe + "-" + sid
}

// stateHome returns the folder of the user's database.
func stateHome() string { return absEnv("LOCALAPPDATA") }
