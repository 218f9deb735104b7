package host

import "io/fs"

// openToOthers asks nothing here: access lists say it on Windows, and its folder has one.
func openToOthers(fs.FileMode) string { return "" }
