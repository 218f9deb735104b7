package endpoint

import (
	"fmt"
	"strings"
)

const (
	pipePrefix = `\\.\pipe\`
	maxPath    = 256
)

func checkName(path string) error {
	if len(path) > maxPath {
		return fmt.Errorf("pipe name %s is %w: it has %d characters and the system takes %d; choose a shorter "+
			"one with --socket", path, errTooLong, len(path), maxPath)
	}
	if len(path) <= len(pipePrefix) || !strings.EqualFold(path[:len(pipePrefix)], pipePrefix) {
		return fmt.Errorf("%q is not the name of a local pipe: give one such as %sckptsidecar with --socket or %s", path, pipePrefix, EnvSocket)
	}
	return nil
}
