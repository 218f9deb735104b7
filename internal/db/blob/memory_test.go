package blob

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"math/rand/v2"
	"slices"
	"testing"
	"time"
)

// All tests of this package overwrite released memory at once, so that code
// that still reads it is noticed.
func init() {
	Left = func(room []byte) {
		for i := range room {
			room[i] = 0xDD
		}
	}
}

// TestSum: a hash that continues from a midstate is correct, and so are the
// midstates that it adds.
func TestSum(t *testing.T) {
	r := rand.New(rand.NewPCG(4, 4))
	state := make([]byte, 400_000)
	for i := range state {
		state[i] = byte(r.Uint32())
	}
	_, whole := sum(state, nil)
	if len(whole) != len(state)/midstateEvery*midstateSize {
		t.Fatalf("%d bytes of midstates", len(whole))
	}
	for range 300 {
		common := r.IntN(len(state) + 1)
		next := append(slices.Clone(state[:common]), make([]byte, r.IntN(200_000))...)
		got, mids := sum(next, whole.upTo(common))
		want := sha256.Sum256(next)
		if got != hex.EncodeToString(want[:]) {
			t.Fatalf("%d of %d bytes in common: another hash", common, len(next))
		}
		if _, all := sum(next, nil); !bytes.Equal(all, mids) {
			t.Fatalf("%d of %d bytes in common: other midstates", common, len(next))
		}
	}
	broken := slices.Clone(whole)
	clear(broken)
	if got, mids := sum(state, broken); mids != nil || got != hex.EncodeToString(func() []byte { s := sha256.Sum256(state); return s[:] }()) {
		t.Error("from a midstate that is none comes another hash")
	}
}

// TestRooms: memory is reused in the requested size, and no more unused memory
// is kept than allowed.
func TestRooms(t *testing.T) {
	l := NewStates(8 << 20)
	r := rand.New(rand.NewPCG(2, 2))
	again := 0
	var out []*Stored
	for range 2000 {
		size := 1 + r.IntN(600_000)
		room := l.Memory(size)
		if len(room) != size || cap(room) > 2*roomFor(size) {
			t.Fatalf("%d bytes of %d for %d", len(room), cap(room), size)
		}
		if room[0] == 0xDD {
			again++
		}
		b := &Stored{lent: true}
		b.State = room
		out = append(out, b.Hold())
		if len(out) > 6 {
			first := out[0]
			first.dropped, out = true, out[1:]
			l.Release(first)
		}
		if l.rooms.held > l.most/4 || len(l.rooms.list) > mostRooms {
			t.Fatalf("%d bytes wait", l.rooms.held)
		}
	}
	if again < 500 {
		t.Errorf("only %d of 2000 were used again", again)
	}
	l.Expire(time.Now().Add(time.Hour))
	if l.rooms.held != 0 || len(l.rooms.list) != 0 {
		t.Error("idle memory is not given back")
	}
}

// TestHeldStatesStay: memory that is being read is not reused before the reader
// releases it, and memory that the store does not own is never reused.
func TestHeldStatesStay(t *testing.T) {
	l := NewStates(8 << 20)
	key := RunKey{Owner: "o", Agent: "a", Run: "r"}
	put := func(id string, lent bool) *Stored {
		b := &Stored{Place: Place{ID: id}, lent: lent}
		b.State = make([]byte, 100_000)
		l.Put(key, b)
		return b
	}
	put("1", true)
	held := l.Get(key)
	again := l.Find("o", "a", "1")
	put("2", true)
	if held.State == nil || len(l.rooms.list) != 0 {
		t.Fatal("a state that is read was given away")
	}
	l.Release(held)
	if held.State == nil {
		t.Fatal("a state that another reads was given away")
	}
	l.Release(again)
	if held.State != nil || len(l.rooms.list) != 1 {
		t.Fatal("a state that nobody has was not given away")
	}
	second := l.Get(key)
	l.ForgetAgent("o", "a")
	if second.State == nil || second.State[0] != 0 {
		t.Fatal("an erased agent's state was given away while it was read")
	}
	l.Release(second)
	own := put("3", false)
	put("4", true)
	if own.State == nil || len(l.rooms.list) != 2 {
		t.Error("memory of somebody else was taken")
	}
}
