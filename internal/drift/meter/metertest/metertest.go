package metertest

import (
	"context"
	"runtime"
	"strings"
	"testing"
	"time"
)

// Many is a JSON array or object of n parts, which part makes.
func Many(open string, n int, part func(i int) string, end string) string {
	parts := make([]string, n)
	for i := range parts {
		parts[i] = part(i)
	}
	return open + strings.Join(parts, ",") + end
}

// Always makes the same part each time.
func Always(s string) func(int) string { return func(int) string { return s } }

// UnitCost is what a unit of work costs in a case: the quickest of some tries,
// in processor time where the system tells it, since other programs take their time too.
type UnitCost struct {
	name string
	ns   float64
}

// UnitOf tries something that pays. try answers what it paid.
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

// JudgeUnits compares the time that a unit of work takes in each case with that
// of the first, which is known to pay. All are of one process, so that the speed of a
// machine does not matter. A loop that does not pay takes hundreds of times as
// long for a unit.
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

// endsAfter is a context that has ended once it was asked so often.
type endsAfter struct {
	context.Context
	asked, most int
}

// EndAfter is a context that ends once it was asked so often.
func EndAfter(asked int) context.Context { return &endsAfter{context.Background(), 0, asked} }

func (c *endsAfter) Err() error {
	if c.asked++; c.asked > c.most { // it stays so
		return context.Canceled
	}
	return nil
}
