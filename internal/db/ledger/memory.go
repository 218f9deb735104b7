package ledger

import (
	"math/bits"
	"time"
)

// What large states leave is used again for the next ones: a save of half a
// megabyte would else clear as much memory and make the garbage collector run.
// The rules that keep a state from being overwritten while somebody reads it:
// only memory that Memory gave out comes back; it does so when its state is
// dropped from live, which has it only once it is on disk; and whoever reads a
// state of live holds it meanwhile.
const (
	leastRoom = 32 << 10 // smaller ones cost little to make
	MostRooms = 32       // that wait to be used again
	roomsIdle = time.Minute
)

// rooms is memory that waits to be used again, the last left last. The lock is
// that of live.
type rooms struct {
	List [][]byte
	Held int64
	used time.Time // when some was last used again
}

// Memory is room for a state of so many bytes that is to be saved, as
// SaveRequest.State with Lent set. What is in it means nothing.
func (s *Core) Memory(size int) []byte {
	if size < leastRoom || s.Live.Most < 0 {
		return make([]byte, size)
	}
	s.Live.Mu.Lock()
	room := s.Live.Rooms.take(size)
	s.Live.Mu.Unlock()
	if room == nil {
		room = make([]byte, RoomFor(size))
	}
	return room[:size]
}

// RoomFor is a little more than a size, so that the next states, which grow,
// have room as well.
func RoomFor(size int) int {
	step := 1 << max(bits.Len(uint(size))-4, 12)
	return (size + step/2 + step - 1) / step * step
}

// take finds room that is large enough, and not much larger.
func (r *rooms) take(size int) []byte {
	for i := len(r.List) - 1; i >= 0; i-- {
		if room := r.List[i]; cap(room) >= size && cap(room) <= 2*RoomFor(size) {
			r.List = append(r.List[:i], r.List[i+1:]...)
			r.Held -= int64(cap(room))
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
	r.List = append(r.List, room)
	for r.Held += int64(cap(room)); r.Held > most || len(r.List) > MostRooms; {
		r.Held -= int64(cap(r.List[0]))
		r.List[0] = nil
		r.List = r.List[1:]
	}
}

// expire gives the memory back where nobody has used any for a while.
func (r *rooms) expire(now time.Time) {
	if now.Sub(r.used) > roomsIdle {
		r.List, r.Held = nil, 0
	}
}

// Left, where a test sets it, is told of what is left.
var Left func([]byte)

// Hold keeps a state's memory from being used again. A nil state is nobody's.
// The caller has the lock, or has the state alone.
func (b *Stored) Hold() *Stored {
	if b != nil {
		b.Users++
	}
	return b
}

// Release lets go of a state that hold has kept.
func (l *Live) Release(b *Stored) {
	if b == nil {
		return
	}
	l.Mu.Lock()
	defer l.Mu.Unlock()
	b.Users--
	l.reuse(b)
}

// reuse takes the memory of a state that was dropped and that nobody reads.
func (l *Live) reuse(b *Stored) {
	if !b.Dropped || !b.Lent || b.Users > 0 {
		return
	}
	room := b.State
	b.State, b.Lent = nil, false // who read it now would be told so
	l.Rooms.leave(room, l.Most/4)
}
