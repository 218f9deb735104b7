package client

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"testing"

	ckpt "github.com/ckptsidecar/ckptsidecar"
)

// TestAckedStatesAreBounded: a client that saves large states of many runs keeps the most recently used states,
// within its limit of bytes.
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

// TestStatesThatAreAllNewAreComparedSeldom: if the states of a run have nothing in common, they are compared only
// occasionally, or if a state begins like the previous one.
func TestStatesThatAreAllNewAreComparedSeldom(t *testing.T) {
	t.Parallel()
	random := rand.NewChaCha8([32]byte{})
	c := &Client{}
	save := func(state []byte) (sent bool) {
		s := c.newSaver(&ckpt.SaveRequest{Agent: "a", State: state}, &ask{})
		sent = s.change() != nil
		s.done(&ckpt.Saved{AsSent: true})
		kept := c.bases.take(s.key)
		if kept == nil || !bytes.Equal(kept.state, state) {
			t.Fatal("another state was kept")
		}
		c.bases.put(kept)
		return sent
	}
	state := make([]byte, 64<<10)
	fresh := func(n int) { _, _ = random.Read(state[:n]) }
	allNew := func(saves int) {
		for range saves {
			if fresh(len(state)); save(bytes.Clone(state)) {
				t.Fatal("a state that is all new was sent as a change")
			}
		}
	}
	save(bytes.Clone(state))
	allNew(missesFew - 1)
	if fresh(100); !save(bytes.Clone(state)) {
		t.Error("a change was not found, although few states were all new")
	}
	allNew(missesFew)
	state[len(state)-1]++
	if !save(bytes.Clone(state)) {
		t.Error("a change at the end was not found")
	}
	allNew(missesFew)
	for n := missesFew; ; n++ {
		fresh(100) // a different beginning, and the rest is the same
		if sent := save(bytes.Clone(state)); sent != (n == missesTry) {
			t.Fatalf("after %d states that were all new: sent as a change: %v", n, sent)
		} else if sent {
			return
		}
	}
}
