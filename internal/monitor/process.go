package monitor

import (
	"sync"
	"time"

	"github.com/ckptsidecar/ckptsidecar/internal/liveness"
)

// Processes looks at the processes of this machine. The zero value is ready to use. It
// is safe for concurrent use.
type Processes struct {
	mu   sync.Mutex
	boot string
}

var _ liveness.Processes = (*Processes)(nil)

// Identify returns what distinguishes the process from every other one, and the zero
// Process for a number that no process can have. Start is "" if there is no such
// process or it cannot be seen: the number may belong to another process namespace, or
// its process has already ended.
func (p *Processes) Identify(pid int) liveness.Process {
	if !possible(pid) {
		return liveness.Process{}
	}
	start, _ := look(pid)
	return liveness.Process{PID: pid, Start: start, Boot: p.bootID()}
}

// Named returns the process that a caller means by a number. The kernel reports the number of the
// caller as this process sees it, 0 if it cannot see the caller. A caller in another process
// namespace, as of a container, counts its processes from 1, so the same number here is another
// process. Named finds the caller itself, its ancestors and its children there, and returns the zero Process for others.
func (p *Processes) Named(caller, pid int) liveness.Process {
	if !possible(caller) {
		return liveness.Process{}
	}
	return p.Identify(translate(caller, pid))
}

// Here returns the number that a caller in another process namespace sees of a process, 0 if the caller is in the namespace of this
// process or does not see the other one.
func (p *Processes) Here(caller, pid int) int {
	if !possible(caller) || !possible(pid) {
		return 0
	}
	return here(caller, pid)
}

// Owner returns the user whose process has a number now, "" if that is not known.
func (p *Processes) Owner(pid int) string {
	if !possible(pid) {
		return ""
	}
	return ownerOf(pid)
}

// Alive reports whether that same process still runs. A later process with the same
// number, a process of another boot, and a zombie count as dead; a stopped process
// counts as alive.
func (p *Processes) Alive(process liveness.Process) liveness.State {
	if !possible(process.PID) {
		return liveness.Unknown
	}
	boot := p.bootID()
	if otherBoot(process, boot) {
		return liveness.Dead
	}
	start, standing := look(process.PID)
	return compare(process, boot, start, standing, startNeedsBoot)
}

// Stranger reports whether the process with a number began before an instant and is
// unrelated to another process: neither is an ancestor of the other. It returns false
// if that is not known.
func (p *Processes) Stranger(pid int, of liveness.Process, before time.Time) bool {
	began, known := beginningOf(pid)
	if !known || !began.Before(before.Add(-clockGrain)) {
		return false
	}
	above, known := descends(pid, of.PID)
	if pid == of.PID || !known || above {
		return false
	}
	below, known := descends(of.PID, pid)
	return known && !below
}

// clockGrain is how far the start of a process and the clock can differ: Linux counts
// starts in hundredths of a second.
const clockGrain = 20 * time.Millisecond

// beginningOf returns when the process with a number began.
func beginningOf(pid int) (time.Time, bool) {
	if !possible(pid) {
		return time.Time{}, false
	}
	_, began, known := originOf(pid)
	return began, known
}

// manyGenerations is more generations than the processes of a machine have.
const manyGenerations = 1000

// descends reports whether a process is a descendant of another one. If a parent has
// ended, the system gives its children to the first process, or to one that collects
// them. Another process can have the number of a parent that ended. Such a process
// began later than its supposed child, so descends does not follow it.
func descends(pid, from int) (is, known bool) {
	parent, began, known := originOf(pid)
	for range manyGenerations {
		switch {
		case !known:
			return false, false
		case parent == from:
			return true, true
		case parent <= 1:
			return false, true
		}
		next, earlier, seen := originOf(parent)
		if seen && earlier.After(began.Add(clockGrain)) {
			return false, true
		}
		parent, began, known = next, earlier, seen
	}
	return false, false
}

// bootID returns the id of this boot, and remembers it once it could be read.
func (p *Processes) bootID() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.boot == "" {
		p.boot = readBoot()
	}
	return p.boot
}
