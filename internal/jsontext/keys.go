package jsontext

import (
	"bytes"
	"hash/maphash"
)

// maxLinearKeys is the number of keys up to which comparing with each key is cheaper than hashing.
const maxLinearKeys = 16

// addKey notes the key data[start:end] of the innermost object and reports
// whether it is new there.
func (s *scanner) addKey(data []byte, start, end int) bool {
	top := &s.stack[len(s.stack)-1]
	if top.table != nil {
		return top.table.add(data, start, end)
	}
	known := s.keys[top.from:]
	// Escaped keys go to a table, which unescapes each key only once or twice.
	if len(known) == maxLinearKeys || bytes.IndexByte(data[start:end], '\\') >= 0 {
		top.table = s.newTable()
		for _, k := range known {
			top.table.add(data, int(k.start), int(k.end))
		}
		s.keys = s.keys[:top.from]
		return top.table.add(data, start, end)
	}
	key := data[start:end]
	for _, k := range known {
		if int(k.end-k.start) == len(key) && string(data[k.start:k.end]) == string(key) {
			return false
		}
	}
	s.keys = append(s.keys, keySpan{uint32(start), uint32(end)})
	return true
}

// minTableSlots is a power of two that holds more than maxLinearKeys keys.
const minTableSlots = 64

// keySeed is random for each process, so that an attacker cannot prepare keys that collide.
var keySeed = maphash.MakeSeed()

// keyTable is the set of an object's keys: an open-addressing hash table whose
// entries point into the text, eight bytes each.
type keyTable struct {
	slots   []keySlot // length is a power of two
	used    int
	scratch []byte // for unescaping
}

// keySlot is free if start is 0, because no text begins with a key.
type keySlot struct{ hash, start uint32 }

func (s *scanner) newTable() *keyTable {
	if n := len(s.free); n > 0 {
		t := s.free[n-1]
		s.free = s.free[:n-1]
		return t
	}
	return &keyTable{slots: make([]keySlot, minTableSlots)}
}

// release keeps only tables that never grew: clearing a large table for each later small object
// could take quadratic time.
func (s *scanner) release(t *keyTable) {
	if len(t.slots) > minTableSlots || cap(t.scratch) > 1024 {
		return
	}
	clear(t.slots)
	t.used = 0
	s.free = append(s.free, t)
}

// add inserts the key data[start:end] and reports whether it was new.
func (t *keyTable) add(data []byte, start, end int) bool {
	key := data[start:end]
	escaped := bytes.IndexByte(key, '\\') >= 0
	if escaped {
		t.scratch = appendUnescaped(t.scratch[:0], key, false)
		key = t.scratch
	}
	hash := uint32(maphash.Bytes(keySeed, key))
	mask := uint32(len(t.slots) - 1)
	i := hash & mask
	for t.slots[i].start != 0 {
		if t.slots[i].hash == hash && sameKey(data, int(t.slots[i].start), key) {
			return false
		}
		i = (i + 1) & mask
	}
	t.slots[i] = keySlot{hash, uint32(start)}
	if t.used++; t.used > len(t.slots)/4*3 {
		t.grow()
	}
	return true
}

// sameKey compares the key that begins at start with an unescaped one. Keys with equal hashes are
// nearly always equal, so this is called rarely.
func sameKey(data []byte, start int, unescaped []byte) bool {
	end, _ := scanString(data, start-1)
	key := data[start : end-1]
	if bytes.IndexByte(key, '\\') >= 0 {
		key = appendUnescaped(nil, key, false)
	}
	return bytes.Equal(key, unescaped)
}

func (t *keyTable) grow() {
	old := t.slots
	t.slots = make([]keySlot, 2*len(old))
	mask := uint32(len(t.slots) - 1)
	for _, slot := range old {
		if slot.start == 0 {
			continue
		}
		i := slot.hash & mask
		for t.slots[i].start != 0 {
			i = (i + 1) & mask
		}
		t.slots[i] = slot
	}
}
