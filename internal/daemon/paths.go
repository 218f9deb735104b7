package daemon

// Environment looks up an environment variable. The command hands in the real
// one; nothing in this package reads the process's environment by itself.
type Environment func(name string) string

// paths are where things lie when nobody says otherwise.
type paths struct{ database, config string }
