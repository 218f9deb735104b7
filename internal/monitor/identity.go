package monitor

import (
	"math"

	"github.com/ckptsidecar/ckptsidecar/internal/liveness"
)

// standing is what the system says of a process number.
type standing int

const (
	hidden standing = iota // somebody has it, or that cannot be told; who it is cannot be seen
	gone                   // nobody has it, or one that has ended and was not waited for
	there                  // a process that has not ended has it
)

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
