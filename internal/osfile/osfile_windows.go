package osfile

import (
	"io/fs"
	"os"

	"golang.org/x/sys/windows"
)

// noFollow has no flags here: OpenPlain compares the opened file with the file that has the name.
const noFollow = 0

// SyncFolder does nothing: NTFS journals names by itself, and Windows cannot flush a folder.
func SyncFolder(string) error { return nil }

// Names counts the names of the file that has a path. It is 1 if Windows does not tell.
func Names(path string, _ fs.FileInfo) uint64 {
	name, err := windows.UTF16PtrFromString(path)
	if err != nil {
		return 1
	}
	const share = windows.FILE_SHARE_READ | windows.FILE_SHARE_WRITE | windows.FILE_SHARE_DELETE
	file, err := windows.CreateFile(name, windows.FILE_READ_ATTRIBUTES, share, nil, windows.OPEN_EXISTING, windows.FILE_FLAG_OPEN_REPARSE_POINT, 0)
	if err != nil {
		return 1
	}
	defer windows.CloseHandle(file)
	var info windows.ByHandleFileInformation
	if windows.GetFileInformationByHandle(file, &info) != nil {
		return 1
	}
	return uint64(info.NumberOfLinks)
}

// giveLike does nothing: files inherit their rights from the folder in which they are made.
func giveLike(*os.File, fs.FileInfo) error { return nil }
