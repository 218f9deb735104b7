package endpoint

// Default returns the pipe of the daemon. Pipes have one flat name space, and the client
// checks who owns the pipe, so the user's and the system's daemon have the same one.
func Default(system bool) string { return `\\.\pipe\ckptsidecar` }
