package client

import "github.com/ckptsidecar/ckptsidecar/internal/ipc/endpoint"

// EnvSocket is the environment variable that names the endpoint.
const EnvSocket = endpoint.EnvSocket

// DialError means that no daemon could be reached. It says why, and what to do.
type DialError = endpoint.DialError

// Usual returns the user's own endpoint and the system's.
func Usual() []string { return endpoint.Usual() }
