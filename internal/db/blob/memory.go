package blob

import (
	"math/bits"
	"time"
)

// What large states leave is used again for the next ones: a save of half a
// megabyte would else clear as much memory and make the garbage collector run.
// The rules that keep a state from being overwritten while somebody reads it:
// only memory that States.Memory gave out comes back; it does so when its state is
// dropped from States, which has it only once it is on disk; and whoever reads a
// state of live holds it meanwhile.
const (
	leastRoom = 32 << 10 // smaller ones cost little to make
	mostRooms = 32       // that wait to be used again
	roomsIdle = time.Minute
)

// rooms is memory that waits to be used again, the last left last. The lock is
// that of States.
type rooms struct {
	list [][]byte
	held int64
	used time.Time // when some was last used again
}

// roomFor is a little more than a size, so that the next states, which grow,
// have room as well.
func roomFor(size int) int {
	step := 1 << max(bits.Len(uint(size))-4, 12)
	return (size + step/2 + step - 1) / step * step
}

// take finds room that is large enough, and not much larger.
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

// leave takes room that nobody uses any more, at most so many bytes in all.
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

// expire gives the memory back where nobody has used any for a while.
func (r *rooms) expire(now time.Time) {
	if now.Sub(r.used) > roomsIdle {
		r.list, r.held = nil, 0
	}
}

// Left, where a test sets it, is told of what is left.
var Left func([]byte)
