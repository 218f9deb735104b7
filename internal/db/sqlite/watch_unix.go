//go:build unix

package sqlite

import (
	"io/fs"
	"time"
)

// writtenAt is when a file was last written.
func writtenAt(info fs.FileInfo) time.Time { return info.ModTime() }
