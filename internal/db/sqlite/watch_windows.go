package sqlite

import (
	"io/fs"
	"time"
)

// links is 1: Windows does not let an open file get another name.
func links(fs.FileInfo) uint64 { return 1 }

// writtenAt is the zero time: Windows updates the time late while the file is open, and there other
// programs cannot overwrite an open file.
func writtenAt(fs.FileInfo) time.Time { return time.Time{} }
