package monitor

import (
	"bytes"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"golang.org/x/sys/unix"
)

// startNeedsBoot is true: Linux counts the start of a process in ticks since the boot.
const startNeedsBoot = true

const procfs = "/proc"

func readBoot() string { return readBootOf(procfs) }

func readBootOf(proc string) string {
	b, err := os.ReadFile(filepath.Join(proc, "sys/kernel/random/boot_id"))
	if err != nil {
		return ""
	}
	return string(bytes.TrimSpace(b))
}

func look(pid int) (start string, s standing) { return lookIn(procfs, pid) }

// lookIn reads /proc/PID/stat. If the file is missing, that proves nothing, because
// hidepid (systemd's ProtectProc=) hides other users' processes. Only kill says that no
// process has the number.
func lookIn(proc string, pid int) (start string, s standing) {
	if line, err := readStat(proc, pid); err == nil {
		start, ended, ok := parseStat(line)
		switch {
		case ended:
			return start, gone
		case ok:
			return start, there
		}
	}
	if unix.Kill(pid, 0) == unix.ESRCH {
		return "", gone
	}
	return "", hidden
}

// ownerOf returns the effective user of a process: the user that the kernel names when
// the process connects.
func ownerOf(pid int) string { return ownerIn(procfs, pid) }

func ownerIn(proc string, pid int) string {
	status, err := os.ReadFile(filepath.Join(proc, strconv.Itoa(pid), "status"))
	if err != nil {
		return ""
	}
	for line := range bytes.Lines(status) {
		if users, ok := bytes.CutPrefix(line, []byte("Uid:")); ok {
			if ids := bytes.Fields(users); len(ids) > 1 { // real, effective, saved, of files
				return "uid:" + string(ids[1])
			}
		}
	}
	return ""
}

// translate returns the number that this process sees of a process that a caller names, 0 if it is
// not known.
func translate(caller, pid int) int {
	levels, parent, known := namespacesOf(caller)
	if !known || len(levels) < 2 {
		return pid // of the namespace of this process, or the caller cannot be seen
	}
	// A process is in the namespace of its parent or in one below. So an ancestor that is as deep is in the same one.
	deep := len(levels)
	for at := caller; known && len(levels) == deep; {
		if levels[deep-1] == pid {
			return at
		}
		at = parent
		levels, parent, known = namespacesOf(at)
	}
	for _, child := range childrenOf(caller) {
		if levels, _, known := namespacesOf(child); known && len(levels) == deep && levels[deep-1] == pid {
			return child
		}
	}
	return 0
}

// childrenOf returns the children of a process, none if this kernel does not list them.
func childrenOf(pid int) (children []int) {
	lists, _ := filepath.Glob(filepath.Join(procfs, strconv.Itoa(pid), "task", "*", "children")) // the pattern is right
	for _, list := range lists {
		text, _ := os.ReadFile(list)
		for n := range bytes.FieldsSeq(text) {
			if child, err := strconv.Atoi(string(n)); err == nil {
				children = append(children, child)
			}
		}
	}
	return children
}

// here returns the number of a process in the namespace of a caller, 0 if that is the namespace of this process, or if the other
// process is not in it. Both are in it if one ancestor of both is as deep as the caller.
func here(caller, pid int) int {
	levels, parent, known := namespacesOf(caller)
	deep := len(levels)
	if !known || deep < 2 {
		return 0
	}
	same := map[int]bool{caller: true}
	for at := parent; ; at = parent {
		if levels, parent, known = namespacesOf(at); !known || len(levels) != deep {
			break
		}
		same[at] = true
	}
	number := 0
	for at := pid; ; at = parent {
		if levels, parent, known = namespacesOf(at); !known || len(levels) < deep {
			return 0
		}
		if at == pid {
			number = levels[deep-1]
		}
		if same[at] {
			return number
		}
	}
}

// namespacesOf returns the numbers that a process has in the namespaces from this one to its own, and
// its parent.
func namespacesOf(pid int) (levels []int, parent int, known bool) {
	if pid <= 0 {
		return nil, 0, false
	}
	status, err := os.ReadFile(filepath.Join(procfs, strconv.Itoa(pid), "status"))
	if err != nil {
		return nil, 0, false
	}
	for line := range bytes.Lines(status) {
		name, value, _ := bytes.Cut(line, []byte(":"))
		switch string(name) {
		case "PPid":
			parent, _ = strconv.Atoi(string(bytes.TrimSpace(value)))
		case "NSpid":
			for n := range bytes.FieldsSeq(value) {
				level, err := strconv.Atoi(string(n))
				if err != nil {
					return nil, 0, false
				}
				levels = append(levels, level)
			}
		}
	}
	return levels, parent, true
}

// readStat reads the file with system calls only, because os.ReadFile costs more.
func readStat(proc string, pid int) ([]byte, error) {
	fd, err := unix.Open(proc+"/"+strconv.Itoa(pid)+"/stat", unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	defer unix.Close(fd)
	line := make([]byte, 1024) // the file has at most 52 numbers and a short name
	n, err := unix.Read(fd, line)
	return line[:max(n, 0)], err
}

// originOf returns the parent of a process, and when the process began.
func originOf(pid int) (parent int, began time.Time, known bool) {
	line, err := readStat(procfs, pid)
	if err != nil {
		return 0, time.Time{}, false
	}
	var up unix.Timespec
	if unix.ClockGettime(unix.CLOCK_BOOTTIME, &up) != nil {
		return 0, time.Time{}, false
	}
	parent, ticks, known := parseOrigin(line)
	age := time.Duration(up.Nano()) - time.Duration(ticks)*tick
	return parent, time.Now().Add(-age), known
}

// tick is the unit in which /proc gives the start of a process. It is the same on every
// machine that Go runs on.
const tick = 10 * time.Millisecond

func parseOrigin(line []byte) (parent int, ticks uint64, known bool) {
	fields := bytes.Fields(line[bytes.LastIndexByte(line, ')')+1:])
	if len(fields) <= statStart {
		return 0, 0, false
	}
	parent, err := strconv.Atoi(string(fields[statParent]))
	if err != nil {
		return 0, 0, false
	}
	ticks, err = strconv.ParseUint(string(fields[statStart]), 10, 64)
	return parent, ticks, err == nil
}

// The indexes of the fields of stat after the name. The name is in parentheses, and can
// itself contain parentheses and spaces.
const (
	statState   = 0
	statParent  = 1
	statThreads = 17
	statStart   = 19
)

// parseStat returns the start of a process, and whether it has ended. A process whose
// first thread has ended while others go on looks like a zombie, but is not.
func parseStat(line []byte) (start string, ended, ok bool) {
	var state, threads string
	rest := line[bytes.LastIndexByte(line, ')')+1:]
	i := 0
	for field := range bytes.FieldsSeq(rest) {
		switch i {
		case statState:
			state = string(field)
		case statThreads:
			threads = string(field)
		case statStart:
			if _, err := strconv.ParseUint(string(field), 10, 64); err != nil {
				return "", false, false
			}
			return string(field), state == "X" || state == "Z" && (threads == "1" || threads == "0"), true
		}
		i++
	}
	return "", false, false
}
