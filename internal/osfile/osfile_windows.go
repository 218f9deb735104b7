package osfile

import (
	"io/fs"
	"os"
)

// noFollow has no flags here: OpenPlain compares the opened file with the file that has the name.
const noFollow = 0

// SyncFolder does nothing: NTFS journals names by itself, and Windows cannot flush a folder.
func SyncFolder(string) error { return nil }

// Names is 1: Windows does not let an open file get another name.
func Names(fs.FileInfo) uint64 { return 1 }

// giveLike does nothing: files inherit their rights from the folder in which they are made.
func giveLike(*os.File, fs.FileInfo) error { return nil }
