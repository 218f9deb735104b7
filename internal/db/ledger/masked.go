package ledger

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/binary"

	ckpt "github.com/ckptsidecar/ckptsidecar"
)

// RowNumbers converts the numbers of rows to the numbers that a caller of the API gets, and back: cursors and the
// numbers of the audit log.
type RowNumbers struct{ of, row func(int64) int64 }

// Numbers is the conversion for a caller: an administrator gets the plain numbers.
func (s *Core) Numbers(sc ckpt.Scope) RowNumbers {
	if sc.Admin {
		return plainCursor
	}
	return maskedCursor(s.chainKey, sc.Whose())
}

var plainCursor = RowNumbers{func(n int64) int64 { return n }, func(n int64) int64 { return n }}

// The width of a masked number: half of the bits of an integer that programs in all languages
// represent exactly.
const (
	maskHalf   = 26
	maskRounds = 4
)

// maskedCursor gives each owner different numbers, because the plain ones count what all owners do.
// A number is encrypted with a Feistel network, so no two numbers collide and each can be
// decrypted. 0 stays 0: the beginning.
func maskedCursor(key, owner string) RowNumbers {
	round := func(i int, half uint64) uint64 {
		mac := hmac.New(sha256.New, []byte(key))
		mac.Write([]byte{byte(i)})
		mac.Write(binary.BigEndian.AppendUint64(nil, half))
		mac.Write([]byte(owner))
		return binary.BigEndian.Uint64(mac.Sum(nil)) & (1<<maskHalf - 1)
	}
	walk := func(v int64, first, step int) int64 {
		if v <= 0 || v >= 1<<(2*maskHalf) {
			return v
		}
		left, right := uint64(v)>>maskHalf, uint64(v)&(1<<maskHalf-1)
		for i := range maskRounds {
			left, right = right, left^round(first+step*i, right)
		}
		return int64(right<<maskHalf | left)
	}
	return RowNumbers{
		of:  func(n int64) int64 { return walk(n, 0, 1) },
		row: func(n int64) int64 { return walk(n, maskRounds-1, -1) },
	}
}

// EventPlace is the place of an event in the order of all events of its owner: a batch of at most
// ckpt.MaxEvents events, and the index in it.
type EventPlace struct{ Batch, Index int64 }

// eventBits is how many bits of a number hold the index.
const eventBits = 10

// EventNumber is the number that a caller of the API gets for a place.
func (s *Core) EventNumber(owner string, at EventPlace) int64 {
	return maskedCursor(s.chainKey+"events", owner).of(at.Batch<<eventBits | at.Index + 1)
}

// EventPlace is the place of a number, the beginning for 0. It returns false for a number that no
// event has.
func (s *Core) EventPlace(owner string, number int64) (EventPlace, bool) {
	if number == 0 {
		return EventPlace{Index: -1}, true
	}
	row := maskedCursor(s.chainKey+"events", owner).row(number)
	at := EventPlace{row >> eventBits, row&(1<<eventBits-1) - 1}
	return at, number > 0 && number < 1<<(2*maskHalf) && at.Index >= 0 && at.Batch > 0 && at.Batch <= s.showHead().N
}
