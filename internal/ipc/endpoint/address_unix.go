//go:build linux || darwin

package endpoint

import (
	"fmt"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// maxPath is the maximum length of a socket path: sun_path without its closing NUL, which
// is 107 bytes on Linux and 103 on macOS.
const maxPath = len(unix.RawSockaddrUnix{}.Path) - 1

// absolute returns an absolute path. This also prevents a leading "@" from meaning
// Linux's abstract name space, which has no permissions at all.
func absolute(path string) (string, error) {
	if path == "" {
		return "", fmt.Errorf("no socket path given: name one with --socket or %s", EnvSocket)
	}
	abs, err := filepath.Abs(path)
	if err != nil {
		return "", err
	}
	return abs, checkLength(abs, len(abs))
}

func checkLength(path string, n int) error {
	if n <= maxPath {
		return nil
	}
	return fmt.Errorf("socket path %s is %w: it needs %d bytes and the system takes %d; choose a shorter one with --socket", path, errTooLong, n, maxPath)
}
