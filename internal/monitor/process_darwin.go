package monitor

import (
	"fmt"
	"time"

	"golang.org/x/sys/unix"
)

// startNeedsBoot is false: macOS records the time of day at which a process began.
const startNeedsBoot = false

// zombie is SZOMB of sys/proc.h.
const zombie = 5

// readBoot does not read kern.boottime, because that changes whenever the clock is set.
func readBoot() string {
	id, err := unix.Sysctl("kern.bootsessionuuid")
	if err != nil {
		return ""
	}
	return id
}

// translate returns the number itself: this system has one space of process numbers.
func translate(_, pid int) int { return pid }

// here returns 0: no process has another number.
func here(int, int) int { return 0 }

// ownerOf returns the effective user of a process: the user that the kernel names when
// the process connects.
func ownerOf(pid int) string {
	info, err := unix.SysctlKinfoProc("kern.proc.pid", pid)
	if err != nil || int(info.Proc.P_pid) != pid {
		return ""
	}
	return fmt.Sprintf("uid:%d", info.Eproc.Ucred.Uid)
}

// originOf returns the parent of a process, and when the process began.
func originOf(pid int) (parent int, began time.Time, known bool) {
	info, err := unix.SysctlKinfoProc("kern.proc.pid", pid)
	if err != nil || int(info.Proc.P_pid) != pid {
		return 0, time.Time{}, false
	}
	at := info.Proc.P_starttime
	return int(info.Eproc.Ppid), time.Unix(int64(at.Sec), int64(at.Usec)*int64(time.Microsecond)), true
}

func look(pid int) (start string, s standing) {
	info, err := unix.SysctlKinfoProc("kern.proc.pid", pid)
	if err != nil || int(info.Proc.P_pid) != pid {
		if unix.Kill(pid, 0) == unix.ESRCH {
			return "", gone
		}
		return "", hidden
	}
	began := info.Proc.P_starttime
	start = fmt.Sprintf("%d.%06d", began.Sec, began.Usec)
	if info.Proc.P_stat == zombie {
		return start, gone
	}
	return start, there
}
