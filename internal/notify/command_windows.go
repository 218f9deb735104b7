package notify

import "os/exec"

// inGroup does nothing: on Windows only the command itself is killed, not the processes
// that it has started.
func inGroup(*exec.Cmd) {}
