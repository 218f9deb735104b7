package osfile

import (
	"io/fs"
	"os"
)

// noFollow is nothing here: OpenPlain compares what it has opened with what has the name.
const noFollow = 0

// SyncFolder has nothing to do: NTFS journals names by itself, and Windows cannot flush a folder.
func SyncFolder(string) error { return nil }

// Names is 1: Windows does not let an open file have another name.
func Names(fs.FileInfo) uint64 { return 1 }

// giveLike has nothing to do: files inherit their rights from the folder in which they are made.
func giveLike(*os.File, fs.FileInfo) error { return nil }
