package sqlite

import (
	"bufio"
	"fmt"
	"os"
	"strconv"
	"strings"
	"syscall"

	"modernc.org/sqlite"
)

// The bytes that SQLite locks. In the index of the write-ahead log, these are the lock of the one writer and the locks
// of readers. In the database, these are the pending, reserved and shared bytes: a program that wants the file for
// itself locks them to write.
const (
	walWriteByte     = 120
	walFirstReadByte = 123
	walLastReadByte  = 127
	pendingByte      = 0x40000000
	lastByte         = pendingByte + 511
)

// lockHolder names the process that holds the lock that the writer needs, as the kernel reports it. The pid is 0 if the
// kernel does not say.
func (e *Engine) lockHolder() holder {
	index, database := inodeOf(e.opt.Path+"-shm"), inodeOf(e.opt.Path)
	return holderOf(func(l heldLock) bool {
		return l.inode == index && l.covers(walWriteByte, walWriteByte) || l.inode == database && l.covers(pendingByte, lastByte)
	})
}

// lockedBy names the process that has locked a whole file.
func lockedBy(path string) holder {
	file := inodeOf(path)
	return holderOf(func(l heldLock) bool { return l.inode == file })
}

// holderOf names the first process with a lock for writing that is in the way.
func holderOf(inWay func(heldLock) bool) (h holder) {
	heldLocks(func(l heldLock) {
		if l.write && l.pid > 0 && h.pid == 0 && inWay(l) {
			name, _ := os.ReadFile(fmt.Sprintf("/proc/%d/comm", l.pid))
			h = holder{l.pid, strings.TrimSpace(string(name))}
		}
	})
	return h
}

// holdsReadLock says whether this process holds one of the locks that keep the log from starting over.
func (e *Engine) holdsReadLock() (held bool) {
	index := inodeOf(e.opt.Path + "-shm")
	heldLocks(func(l heldLock) {
		held = held || l.inode == index && l.pid == os.Getpid() && l.covers(walFirstReadByte, walLastReadByte)
	})
	return held
}

// heldLocks calls f with each lock that is held.
func heldLocks(f func(heldLock)) {
	file, err := os.Open("/proc/locks")
	if err != nil {
		return
	}
	defer file.Close()
	for lines := bufio.NewScanner(file); lines.Scan(); {
		if l, ok := parseLock(lines.Text()); ok {
			f(l)
		}
	}
}

// lookAtLocks logs a warning if SQLite has fallen back to locks by process, which its first lock shows.
func (e *Engine) lookAtLocks() {
	if !sqlite.OFDLockingEnabled() {
		e.log.Warn("this system or file system has no locks by open file: any other code in this process that opens and "+
			"closes the database file drops its locks", "path", e.opt.Path)
	}
}

// heldLock is a line of /proc/locks.
type heldLock struct {
	write    bool
	pid      int
	inode    uint64
	from, to int64
}

func (l heldLock) covers(from, to int64) bool { return l.from <= to && from <= l.to }

// parseLock reads a line such as "1: POSIX  ADVISORY  WRITE 1234 fd:01:131073 120 120". A line with an arrow is about a
// process that waits.
func parseLock(line string) (l heldLock, ok bool) {
	fields := strings.Fields(line)
	if len(fields) != 8 || fields[1] == "->" {
		return l, false
	}
	file := strings.Split(fields[5], ":")
	var errs [4]error
	l.write = fields[3] == "WRITE"
	l.pid, errs[0] = strconv.Atoi(fields[4])
	l.inode, errs[1] = strconv.ParseUint(file[len(file)-1], 10, 64)
	l.from, errs[2] = strconv.ParseInt(fields[6], 10, 64)
	if l.to = 1<<63 - 1; fields[7] != "EOF" {
		l.to, errs[3] = strconv.ParseInt(fields[7], 10, 64)
	}
	for _, err := range errs {
		if err != nil {
			return l, false
		}
	}
	return l, true
}

// inodeOf is a file's number in its file system, 0 if there is no file. The device is not compared, because a stacked
// file system shows a different device than the kernel's list.
func inodeOf(path string) uint64 {
	info, err := os.Stat(path)
	if err != nil {
		return 0
	}
	return info.Sys().(*syscall.Stat_t).Ino
}
