package blob

import (
	"crypto/sha256"
	"encoding"
	"encoding/hex"
	"hash"
)

const (
	midstateEvery = 64 << 10 // bytes of a state between two midstates
	midstateSize  = 108      // bytes of one midstate in the form of crypto/sha256
)

// midstates are the internal states of SHA-256 after each 64 KiB of a state, one after the other.
// The hash of another state with the same beginning continues from them.
type midstates []byte

// upTo returns the midstates of the first size bytes.
func (m midstates) upTo(size int) midstates {
	n := min(size/midstateEvery*midstateSize, len(m))
	return m[:n:n]
}

// sum hashes a state, starting from midstates that match its beginning. It returns the hash and the
// midstates of the whole state.
func sum(state []byte, from midstates) (string, midstates) {
	h := sha256.New()
	done, all, more := from.resume(h)
	for ; len(state)-done >= midstateEvery; done += midstateEvery {
		h.Write(state[done : done+midstateEvery])
		if more {
			all, more = all.add(h)
		}
	}
	h.Write(state[done:])
	return hex.EncodeToString(h.Sum(nil)), all
}

// resume sets h to the last midstate, and returns how many bytes that covers. more says whether
// more midstates can be added.
func (m midstates) resume(h hash.Hash) (done int, all midstates, more bool) {
	n := len(m) / midstateSize
	if n == 0 {
		return 0, nil, true
	}
	if err := h.(encoding.BinaryUnmarshaler).UnmarshalBinary(m[(n-1)*midstateSize:]); err != nil {
		h.Reset()
		return 0, nil, false
	}
	return n * midstateEvery, m, true
}

// add appends the current state of h.
func (m midstates) add(h hash.Hash) (midstates, bool) {
	next, err := h.(encoding.BinaryAppender).AppendBinary(m)
	if err != nil || len(next) != len(m)+midstateSize {
		return m, false
	}
	return next, true
}

// HashOf is the SHA-256 of a state, in hexadecimal.
func HashOf(state []byte) string {
	sum := sha256.Sum256(state)
	return hex.EncodeToString(sum[:])
}
