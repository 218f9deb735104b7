package notify

import "os/exec"

// inGroup leaves what a command has started alone: only the command itself is ended.
func inGroup(*exec.Cmd) {}
