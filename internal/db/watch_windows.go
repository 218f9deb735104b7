package db

import "io/fs"

// links is always one: Windows does not let an open database be replaced.
func links(fs.FileInfo) uint64 { return 1 }
