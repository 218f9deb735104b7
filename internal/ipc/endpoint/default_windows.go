package endpoint

// Default is the pipe of the daemon. Pipes have one flat name space, and the
// client checks who owns the pipe, so the user's and the system's are the same.
func Default(system bool) string { return `\\.\pipe\ckptsidecar` }
