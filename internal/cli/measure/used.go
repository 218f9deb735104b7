package measure

import (
	"fmt"
	"time"
)

// used is what a process has used since its start.
type used struct {
	known   bool
	cpu     time.Duration // of all its threads, in user and kernel mode
	written int64         // bytes that it has caused to be written to the disk
}

// Cost is what one save costs the daemon. It is nil if the system does not report it.
type Cost struct {
	CPU     float64 `json:"cpu_us"`
	Written float64 `json:"written_kib"`
}

// middleOf returns the median of costs. Either all of them are known, or none.
func middleOf(list []*Cost) *Cost {
	if len(list) == 0 || list[0] == nil {
		return nil
	}
	return &Cost{CPU: medianOf(list, func(c *Cost) float64 { return c.CPU }), Written: medianOf(list, func(c *Cost) float64 { return c.Written })}
}

// costOf returns the cost of each of some things between two measurements.
func costOf(before, after used, things int64) *Cost {
	if !before.known || !after.known || things == 0 {
		return nil
	}
	return &Cost{
		CPU:     Rounded(float64((after.cpu - before.cpu).Microseconds()) / float64(things)),
		Written: Rounded(float64(after.written-before.written) / float64(things) / 1024),
	}
}

// cpu and written return texts for people.
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
