package endpoint

const (
	systemRun      = "/var/run" // macOS has no /run, and its root folder is read-only
	runtimeFolders = ""         // nor folders like /run/user
)
