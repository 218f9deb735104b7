package endpoint

const (
	systemRun      = "/run"
	runtimeFolders = "/run/user"
)
