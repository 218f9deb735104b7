package client

import (
	"fmt"
	"sync"
	"testing"
)

// TestLocksOfRunsGoWithTheirUsers: a client that has written to many runs keeps no lock of them.
func TestLocksOfRunsGoWithTheirUsers(t *testing.T) {
	var s spool
	var inside [3]int
	var all sync.WaitGroup
	for n := range 300 {
		all.Go(func() {
			run := n % len(inside)
			defer s.lock("a", fmt.Sprint(run))()
			inside[run]++ // the race detector would report two at once
		})
	}
	all.Wait()
	if inside != [3]int{100, 100, 100} {
		t.Errorf("inside were %v", inside)
	}
	if len(s.runs) != 0 {
		t.Errorf("%d locks are left", len(s.runs))
	}
}
