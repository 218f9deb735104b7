//go:build unix

package term

import (
	"io"
	"os"

	"golang.org/x/sys/unix"
)

// prepareTerminal reports whether the terminal supports colors. Unix terminals do.
func prepareTerminal(io.Writer) bool { return true }

// terminalWidth returns the number of columns of a terminal, 0 if it does not report it.
func terminalWidth(w io.Writer) int {
	f, ok := w.(*os.File)
	if !ok {
		return 0
	}
	size, err := unix.IoctlGetWinsize(int(f.Fd()), unix.TIOCGWINSZ)
	if err != nil {
		return 0
	}
	return int(size.Col)
}
