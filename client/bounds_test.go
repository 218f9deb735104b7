package client

import (
	"bufio"
	"fmt"
	"io"
	"io/fs"
	"strings"
	"sync"
	"testing"
	"testing/iotest"
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

// TestAFileThatCannotBeReadNowIsNotDamaged: only what was read can be damaged.
func TestAFileThatCannotBeReadNowIsNotDamaged(t *testing.T) {
	for end, want := range map[error]bool{
		&fs.PathError{Op: "read", Path: "f", Err: io.ErrNoProgress}: true,
		&fs.PathError{Op: "read", Path: "f", Err: fs.ErrPermission}: false, // that does not pass
		io.EOF: false,
	} {
		_, err := readHead(bufio.NewReader(io.MultiReader(strings.NewReader(`{"version":1`), iotest.ErrReader(end))))
		if err == nil || unreadable(err) != want {
			t.Errorf("after %v: %v", end, err)
		}
	}
}
