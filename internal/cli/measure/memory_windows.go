package measure

import (
	"fmt"
	"unsafe"

	"golang.org/x/sys/windows"
)

var getProcessMemoryInfo = windows.NewLazySystemDLL("kernel32.dll").NewProc("K32GetProcessMemoryInfo")

// processMemoryCounters is PROCESS_MEMORY_COUNTERS.
type processMemoryCounters struct {
	size                       uint32
	pageFaultCount             uint32
	peakWorkingSetSize         uintptr
	workingSetSize             uintptr
	quotaPeakPagedPoolUsage    uintptr
	quotaPagedPoolUsage        uintptr
	quotaPeakNonPagedPoolUsage uintptr
	quotaNonPagedPoolUsage     uintptr
	pagefileUsage              uintptr
	peakPagefileUsage          uintptr
}

// processMemory returns how much memory of a process is in its working set now, and the
// most that ever was.
func processMemory(pid int) (now, highest int64, err error) {
	process, err := windows.OpenProcess(windows.PROCESS_QUERY_LIMITED_INFORMATION, false, uint32(pid))
	if err != nil {
		return 0, 0, fmt.Errorf("the memory of the daemon cannot be read: %w", err)
	}
	defer windows.CloseHandle(process)
	var c processMemoryCounters
	c.size = uint32(unsafe.Sizeof(c))
	ok, _, err := getProcessMemoryInfo.Call(uintptr(process), uintptr(unsafe.Pointer(&c)), uintptr(c.size))
	if ok == 0 {
		return 0, 0, fmt.Errorf("the memory of the daemon cannot be read: %w", err)
	}
	return int64(c.workingSetSize), int64(c.peakWorkingSetSize), nil
}
