package monitor

import (
	"sync"
	"time"

	"github.com/ckptsidecar/ckptsidecar/internal/liveness"
)

// Processes looks at the processes of this machine. The zero value is ready,
// and several goroutines may use it at once.
type Processes struct {
	mu   sync.Mutex
	boot string
}

var _ liveness.Processes = (*Processes)(nil)

// Identify answers what tells the process from every other one, the zero
// Process for a number that none can have. Start is "" where there is no such
// process or it cannot be seen: the number may then be of another process
// namespace, or its process has ended already.
func (p *Processes) Identify(pid int) liveness.Process {
	if !possible(pid) {
		return liveness.Process{}
	}
	start, _ := look(pid)
	return liveness.Process{PID: pid, Start: start, Boot: p.bootID()}
}

// Owner is whose process has a number now, "" where that cannot be told.
func (p *Processes) Owner(pid int) string {
	if !possible(pid) {
		return ""
	}
	return ownerOf(pid)
}

// Alive says whether that very process still runs. A later process of the same
// number, another boot and a zombie are all dead; a stopped process lives.
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

// Stranger says whether the process with a number began before an instant and has
// nothing to do with another one: neither began the other, at any remove. It is
// false where that cannot be told.
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

// clockGrain is how far the start of a process and the clock may be apart: Linux
// counts starts in hundredths of a second.
const clockGrain = 20 * time.Millisecond

// beginningOf is when the process with a number began.
func beginningOf(pid int) (time.Time, bool) {
	if !possible(pid) {
		return time.Time{}, false
	}
	_, began, known := originOf(pid)
	return began, known
}

// manyGenerations is more than the processes of a machine have.
const manyGenerations = 1000

// descends says whether a process was begun by another one, at any remove. A parent
// that ended leaves its children to the first process, or to one that collects them.
// The number of a parent that ended can be another's by now: that one began later
// than its supposed child, and is not followed.
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

// bootID remembers the id of this boot once it could be read.
func (p *Processes) bootID() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.boot == "" {
		p.boot = readBoot()
	}
	return p.boot
}
