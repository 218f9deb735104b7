package endpoint

// macOS has no /run, and its root folder is read-only.
const systemRun = "/var/run"
