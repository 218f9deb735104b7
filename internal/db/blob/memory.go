package blob

import (
	"math/bits"
	"time"
)

// The memory of dropped large states is used again for the next ones: otherwise a save of half a
// megabyte would clear as much memory and trigger the garbage collector. Three rules keep a state
// from being overwritten while it is read: only memory from States.Memory is used again; it is used
// again only when its state is dropped from States, which has a state only after it is on disk; and
// a reader of a state in States holds it meanwhile.
const (
	leastRoom = 32 << 10 // smaller buffers are cheap to make
	mostRooms = 32       // the most buffers that wait to be used again
	roomsIdle = time.Minute
)

// rooms are buffers that wait to be used again, the one that was left last at the end. The lock of
// States guards it.
type rooms struct {
	list [][]byte
	held int64
	used time.Time // when a buffer was last used again
}

// roomFor is a little more than a size, so that the next states, which grow, fit as well.
func roomFor(size int) int {
	step := 1 << max(bits.Len(uint(size))-4, 12)
	return (size + step/2 + step - 1) / step * step
}

// take finds a buffer that is large enough, and not much larger.
func (r *rooms) take(size int) []byte {
	for i := len(r.list) - 1; i >= 0; i-- {
		if room := r.list[i]; cap(room) >= size && cap(room) <= 2*roomFor(size) {
			r.list = append(r.list[:i], r.list[i+1:]...)
			r.held -= int64(cap(room))
			r.used = time.Now()
			return room
		}
	}
	return nil
}

// leave takes a buffer that is no longer used. It keeps at most this many bytes in all.
func (r *rooms) leave(room []byte, most int64) {
	if cap(room) < leastRoom || int64(cap(room)) > most {
		return
	}
	room = room[:cap(room)]
	if Left != nil {
		Left(room)
	}
	r.list = append(r.list, room)
	for r.held += int64(cap(room)); r.held > most || len(r.list) > mostRooms; {
		r.held -= int64(cap(r.list[0]))
		r.list[0] = nil
		r.list = r.list[1:]
	}
}

// expire frees the memory if no buffer was used for a while.
func (r *rooms) expire(now time.Time) {
	if now.Sub(r.used) > roomsIdle {
		r.list, r.held = nil, 0
	}
}

// Left, if a test sets it, is called with each buffer that is left.
var Left func([]byte)
