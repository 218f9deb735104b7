package daemon

// Environment looks up an environment variable. The command passes the real one. This
// package itself does not read the environment of the process.
type Environment func(name string) string

// paths are the default paths.
type paths struct{ database, config string }
