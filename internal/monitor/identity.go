package monitor

import (
	"math"

	"github.com/ckptsidecar/ckptsidecar/internal/liveness"
)

// standing is what the system says about a process number.
type standing int

const (
	hidden standing = iota // a process may have the number, but it cannot be seen
	gone                   // no process has it, or a process that has ended but was not waited for
	there                  // a process that has not ended has it
)

// compare compares what is known of a process with the process that has its number now.
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

// possible reports whether a process can have the number. Systems truncate larger
// numbers, and would answer about another process.
func possible(pid int) bool { return pid > 0 && pid <= math.MaxInt32 }
