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
	n, err := NamesAt(path)
	if err != nil {
		return 1
	}
	return n
}

// NamesAt counts the names of the file that has a path. It follows no link.
func NamesAt(path string) (uint64, error) {
	name, err := windows.UTF16PtrFromString(path)
	if err != nil {
		return 0, err
	}
	const share = windows.FILE_SHARE_READ | windows.FILE_SHARE_WRITE | windows.FILE_SHARE_DELETE
	file, err := windows.CreateFile(name, windows.FILE_READ_ATTRIBUTES, share, nil, windows.OPEN_EXISTING, windows.FILE_FLAG_OPEN_REPARSE_POINT, 0)
	if err != nil {
		return 0, err
	}
	defer windows.CloseHandle(file)
	var info windows.ByHandleFileInformation
	if err := windows.GetFileInformationByHandle(file, &info); err != nil {
		return 0, err
	}
	return uint64(info.NumberOfLinks), nil
}

// ProcessIsGone reports whether no process on this machine runs with this id. A process that may not be opened runs.
func ProcessIsGone(pid int) bool {
	process, err := windows.OpenProcess(windows.SYNCHRONIZE, false, uint32(pid))
	if err != nil {
		return err == windows.ERROR_INVALID_PARAMETER
	}
	defer windows.CloseHandle(process)
	// A process that has ended keeps its id while another process holds it open.
	event, err := windows.WaitForSingleObject(process, 0)
	return err == nil && event == windows.WAIT_OBJECT_0
}

// giveLike does nothing: files inherit their rights from the folder in which they are made.
func giveLike(*os.File, fs.FileInfo) error { return nil }
