package measure

import (
	"fmt"
	"time"
)

// used is what a process has used since it began.
type used struct {
	known   bool
	cpu     time.Duration // of all its threads, in the program and in the kernel
	written int64         // bytes that it has caused to be sent to the disk
}

// Cost is what one save costs the daemon. It is nil where the system does not tell.
type Cost struct {
	CPU     float64 `json:"cpu_us"`
	Written float64 `json:"written_kib"`
}

// middleOf is the median of costs, which are all known or none.
func middleOf(list []*Cost) *Cost {
	if len(list) == 0 || list[0] == nil {
		return nil
	}
	return &Cost{CPU: medianOf(list, func(c *Cost) float64 { return c.CPU }), Written: medianOf(list, func(c *Cost) float64 { return c.Written })}
}

// costOf is what each of some things has cost between two looks.
func costOf(before, after used, things int64) *Cost {
	if !before.known || !after.known || things == 0 {
		return nil
	}
	return &Cost{
		CPU:     Rounded(float64((after.cpu - before.cpu).Microseconds()) / float64(things)),
		Written: Rounded(float64(after.written-before.written) / float64(things) / 1024),
	}
}

// cpu and written are for people.
func (c *Cost) cpu() string {
	if c == nil {
		return "-"
	}
	return fmt.Sprintf("%.0f us", c.CPU)
}

func (c *Cost) written() string {
	if c == nil {
		return "-"
	}
	return fmt.Sprintf("%.1f KiB", c.Written)
}
