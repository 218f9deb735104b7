package hook

import "golang.org/x/sys/unix"

// processOf returns the name of a process and its parent.
func processOf(pid int) (name string, parent int, ok bool) {
	info, err := unix.SysctlKinfoProc("kern.proc.pid", pid)
	if err != nil {
		return "", 0, false
	}
	return unix.ByteSliceToString(info.Proc.P_comm[:]), int(info.Eproc.Ppid), true
}
