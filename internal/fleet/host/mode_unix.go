//go:build !windows

package host

import "io/fs"

// openToOthers says who else may read a file, "" for nobody else.
func openToOthers(mode fs.FileMode) string {
	if mode.Perm()&0o007 != 0 {
		return "everybody on this machine may read or write it"
	}
	return ""
}
