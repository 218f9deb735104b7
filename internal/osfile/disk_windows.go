package osfile

import "golang.org/x/sys/windows"

// DiskSpace returns how many bytes a user can still write to the disk of a folder, and the size of
// that disk in bytes.
func DiskSpace(dir string) (free, total int64, err error) {
	name, err := windows.UTF16PtrFromString(dir)
	if err != nil {
		return 0, 0, err
	}
	var mine, all uint64
	err = windows.GetDiskFreeSpaceEx(name, &mine, &all, nil)
	return int64(mine), int64(all), err
}
