package monitor

import (
	"errors"
	"strconv"
	"time"
	"unsafe"

	"golang.org/x/sys/windows"
)

// startNeedsBoot is false: Windows records the time of day at which a process began, to
// 100 ns.
const startNeedsBoot = false

// readBoot returns "". The boot times that Windows gives change when the clock is set,
// and the start of a process already distinguishes boots.
func readBoot() string { return "" }

// translate returns the number itself: this system has one space of process numbers.
func translate(_, pid int) int { return pid }

// here returns 0: no process has another number.
func here(int, int) int { return 0 }

// ownerOf returns the user of the process's token.
func ownerOf(pid int) string {
	process, err := windows.OpenProcess(windows.PROCESS_QUERY_LIMITED_INFORMATION, false, uint32(pid))
	if err != nil {
		return ""
	}
	defer windows.CloseHandle(process)
	var token windows.Token
	if windows.OpenProcessToken(process, windows.TOKEN_QUERY, &token) != nil {
		return ""
	}
	defer token.Close()
	user, err := token.GetTokenUser()
	if err != nil {
		return ""
	}
	return user.User.Sid.String()
}

// originOf returns the parent of a process, and when the process began. On Windows a
// process keeps the number of its parent after the parent has ended. In that case
// originOf returns parent 0.
func originOf(pid int) (parent int, began time.Time, known bool) {
	process, err := windows.OpenProcess(windows.PROCESS_QUERY_LIMITED_INFORMATION, false, uint32(pid))
	if err != nil {
		return 0, time.Time{}, false
	}
	defer windows.CloseHandle(process)
	var start, ended, kernel, user windows.Filetime
	var info windows.PROCESS_BASIC_INFORMATION
	if windows.GetProcessTimes(process, &start, &ended, &kernel, &user) != nil ||
		windows.NtQueryInformationProcess(process, windows.ProcessBasicInformation, unsafe.Pointer(&info), uint32(unsafe.Sizeof(info)), nil) != nil {
		return 0, time.Time{}, false
	}
	parent = int(info.InheritedFromUniqueProcessId)
	if _, standing := look(parent); standing == gone {
		parent = 0
	}
	return parent, time.Unix(0, start.Nanoseconds()), true
}

func look(pid int) (start string, s standing) {
	process, err := windows.OpenProcess(windows.PROCESS_QUERY_LIMITED_INFORMATION|windows.SYNCHRONIZE, false, uint32(pid))
	if errors.Is(err, windows.ERROR_INVALID_PARAMETER) {
		return "", gone
	}
	if err != nil {
		return "", hidden
	}
	defer windows.CloseHandle(process)
	var began, ended, kernel, user windows.Filetime
	if windows.GetProcessTimes(process, &began, &ended, &kernel, &user) == nil {
		start = strconv.FormatUint(uint64(began.HighDateTime)<<32|uint64(began.LowDateTime), 10)
	}
	// A process that has ended keeps its number while another process holds it open.
	switch event, err := windows.WaitForSingleObject(process, 0); {
	case err != nil:
		return start, hidden
	case event == windows.WAIT_OBJECT_0:
		return start, gone
	}
	return start, there
}
