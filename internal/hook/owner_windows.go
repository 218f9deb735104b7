package hook

import (
	"unsafe"

	"golang.org/x/sys/windows"
)

// processOf returns the name of a process and its parent.
func processOf(pid int) (name string, parent int, ok bool) {
	all, err := windows.CreateToolhelp32Snapshot(windows.TH32CS_SNAPPROCESS, 0)
	if err != nil {
		return "", 0, false
	}
	defer func() { _ = windows.CloseHandle(all) }()
	var p windows.ProcessEntry32
	p.Size = uint32(unsafe.Sizeof(p))
	for err = windows.Process32First(all, &p); err == nil; err = windows.Process32Next(all, &p) {
		if int(p.ProcessID) == pid {
			return windows.UTF16ToString(p.ExeFile[:]), int(p.ParentProcessID), true
		}
	}
	return "", 0, false
}
