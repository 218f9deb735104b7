package monitor

import (
	"math"
	"sync"

	"github.com/ckptsidecar/ckptsidecar/internal/liveness"
)

// Processes looks at the processes of this machine. The zero value is ready,
// and several goroutines may use it at once.
type Processes struct {
	mu   sync.Mutex
	boot string
}

var _ liveness.Processes = (*Processes)(nil)

// standing is what the system says of a process number.
type standing int

const (
	hidden standing = iota // somebody has it, or that cannot be told; who it is cannot be seen
	gone                   // nobody has it, or one that has ended and was not waited for
	there                  // a process that has not ended has it
)

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

// compare holds what is known of a process against what has its number now.
func compare(process liveness.Process, boot, start string, standing standing, needsBoot bool) liveness.State {
	switch {
	case otherBoot(process, boot), standing == gone:
		return liveness.Dead
	case standing == hidden, process.Start == "", start == "":
		return liveness.Unknown
	case process.Start != start:
		return liveness.Dead
	case needsBoot && (process.Boot == "" || boot == ""):
		return liveness.Unknown
	}
	return liveness.Alive
}

func otherBoot(process liveness.Process, boot string) bool {
	return process.Boot != "" && boot != "" && process.Boot != boot
}

// possible says whether a process can have the number. Systems cut larger ones
// and would answer for another process.
func possible(pid int) bool { return pid > 0 && pid <= math.MaxInt32 }

// bootID remembers the id of this boot once it could be read.
func (p *Processes) bootID() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.boot == "" {
		p.boot = readBoot()
	}
	return p.boot
}
