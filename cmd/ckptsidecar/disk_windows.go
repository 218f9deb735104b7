package main

import "golang.org/x/sys/windows"

// diskSpace is what a user may still fill, and all there is.
func diskSpace(dir string) (free, total int64, err error) {
	name, err := windows.UTF16PtrFromString(dir)
	if err != nil {
		return 0, 0, err
	}
	var mine, all uint64
	err = windows.GetDiskFreeSpaceEx(name, &mine, &all, nil)
	return int64(mine), int64(all), err
}

// lookModes finds nothing: Windows keeps its permissions elsewhere, and those
// of the folder are inherited.
func lookModes(...private) []finding { return nil }
