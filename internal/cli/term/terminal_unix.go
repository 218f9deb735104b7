//go:build unix

package term

import "io"

// prepareTerminal says whether the terminal understands colours. Those of Unix do.
func prepareTerminal(io.Writer) bool { return true }
