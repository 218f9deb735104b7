package metertest

import (
	"context"
	"runtime"
	"strings"
	"testing"
	"time"
)

// Many returns a JSON array or object with n parts from the function part.
func Many(open string, n int, part func(i int) string, end string) string {
	parts := make([]string, n)
	for i := range parts {
		parts[i] = part(i)
	}
	return open + strings.Join(parts, ",") + end
}

// Always returns a function that returns the same part each time.
func Always(s string) func(int) string { return func(int) string { return s } }

// UnitCost is the cost of a unit of work in a case: the fastest of some attempts, in
// processor time if the system reports it, because other programs use time too.
type UnitCost struct {
	name string
	ns   float64
}

// UnitOf measures a function that pays. try returns what it paid.
func UnitOf(name string, try func() int) UnitCost {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	least, paid := time.Duration(0), 0
	for range 5 {
		began := threadTime()
		paid = try()
		if took := threadTime() - began; least == 0 || took < least {
			least = took
		}
	}
	return UnitCost{name, float64(least.Nanoseconds()) / float64(max(1, paid))}
}

// JudgeUnits compares the time of a unit of work in each case with that in the first
// case, which is known to pay. All run in one process, so the speed of the machine does
// not matter. In a loop that does not pay, a unit takes hundreds of times as long.
func JudgeUnits(t *testing.T, costs []UnitCost) {
	t.Helper()
	const bound = 60
	first := costs[0]
	for _, c := range costs {
		t.Logf("%7.1f ns a unit: %s", c.ns, c.name)
		if c.ns > bound*first.ns {
			t.Errorf("%s: a unit of work takes %.0f ns, and %.0f ns in %s", c.name, c.ns, first.ns, first.name)
		}
	}
}

// endsAfter is a context that ends after it was asked most times.
type endsAfter struct {
	context.Context
	asked, most int
}

// EndAfter returns a context that ends after it was asked this many times.
func EndAfter(asked int) context.Context { return &endsAfter{context.Background(), 0, asked} }

func (c *endsAfter) Err() error {
	if c.asked++; c.asked > c.most { // it stays ended
		return context.Canceled
	}
	return nil
}
