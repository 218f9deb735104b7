package client

import (
	"fmt"
	"testing"
)

// TestAckedStatesAreBounded: a client that saves large states of many runs keeps
// the last used ones, and no more bytes than it may.
func TestAckedStatesAreBounded(t *testing.T) {
	var a baseCache
	const size, runs = 8 << 20, 20
	state := make([]byte, size)
	for n := range runs {
		a.put(&base{key: baseKey{"a", fmt.Sprint(n)}, state: state})
		if a.held > baseCacheMost || len(a.keys) != a.order.Len() || a.order.Len() > baseCacheMost/size {
			t.Fatalf("after %d runs %d bytes of %d states are held", n+1, a.held, a.order.Len())
		}
	}
	if a.take(baseKey{"a", fmt.Sprint(runs - 1)}) == nil || a.take(baseKey{"a", "0"}) != nil {
		t.Error("not the last used are kept")
	}
	for len(a.keys) > 0 {
		for key := range a.keys {
			a.take(key)
		}
	}
	if a.held != 0 || a.order.Len() != 0 {
		t.Errorf("%d bytes are held of nothing", a.held)
	}
}
