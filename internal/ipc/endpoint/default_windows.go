package endpoint

// OwnDatabase returns "": the user's own and the system's daemon have one place for the database.
func OwnDatabase() string { return "" }

// Default returns the pipe of the daemon. Pipes have one flat name space, and the client
// checks who owns the pipe, so the user's and the system's daemon have the same one.
func Default(system bool) string { return `\\.\pipe\ckptsidecar` }
