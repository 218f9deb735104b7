package program

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
)

// Program is the program ckptsidecar, to be started as a child.
type Program struct {
	path    string
	environ []string
}

// Self returns the program of this process. Children get the environment without the
// settings of ckptsidecar.
func Self(environ []string) (Program, error) {
	path, err := os.Executable()
	if err != nil {
		return Program{}, fmt.Errorf("the path of this program is unknown, so it cannot start a child: %w", err)
	}
	return At(path, environ), nil
}

// At returns the program at a path. Children get the environment without the settings of
// ckptsidecar.
func At(path string, environ []string) Program {
	settings := func(v string) bool { return strings.HasPrefix(v, "CKPTSIDECAR_") }
	return Program{path, slices.DeleteFunc(slices.Clone(environ), settings)}
}

// Command prepares one call of the program.
func (p Program) Command(ctx context.Context, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, p.path, args...)
	cmd.Env = p.environ
	return cmd
}
