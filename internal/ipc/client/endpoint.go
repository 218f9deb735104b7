package client

import (
	"os/user"
	"strings"

	"github.com/ckptsidecar/ckptsidecar/internal/ipc/endpoint"
)

// EnvSocket is the environment variable that names the endpoint.
const EnvSocket = endpoint.EnvSocket

// DialError means that no daemon could be reached. It says why, and what to do.
type DialError = endpoint.DialError

// Usual returns the user's own endpoint and the system's.
func Usual() []string { return endpoint.Usual() }

// Self returns the owner of this process's agents, as the daemon names the owner: uid:1000, or on Windows a SID.
func Self() string {
	u, err := user.Current()
	if err != nil {
		return "unknown"
	}
	if strings.HasPrefix(u.Uid, "S-") {
		return u.Uid
	}
	return "uid:" + u.Uid
}
