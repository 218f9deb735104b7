package client

import (
	"bytes"
	"container/list"
	"net/http"
	"slices"
	"sync"

	ckpt "github.com/ckptsidecar/ckptsidecar"
	"github.com/ckptsidecar/ckptsidecar/internal/delta"
	"github.com/ckptsidecar/ckptsidecar/internal/ipc"
)

const (
	deltaLeast    = 8 << 10  // smaller states are sent whole: a change would save nothing
	baseCacheMost = 64 << 20 // bytes of states that a client keeps; one state may have at most half of it

	// A comparison that finds nothing is most of the client's work for a save. If the states of a run had
	// little in common with their predecessors for missesFew saves, only one in missesTry states is compared,
	// or a state that begins like the last one.
	missesFew  = 3
	missesTry  = 8
	sameAtHead = 1 << 10 // bytes
)

// base is a state that the daemon acknowledged byte for byte. The next save can be sent as a change to it. It
// is a copy, because the caller may change its own state.
type base struct {
	key        baseKey
	id, sha256 string
	state      []byte
	misses     int // the number of states in a row, up to this one, that were sent whole because they had little in common
}

type baseKey struct{ agent, run string }

// baseCache keeps the last acknowledged state of each run.
type baseCache struct {
	mu    sync.Mutex
	held  int
	order list.List // of *base, the most recently used first
	keys  map[baseKey]*list.Element
}

// take removes a run's last state and returns it, or nil if there is none. The caller owns it until the caller
// puts it back.
func (a *baseCache) take(key baseKey) *base {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.remove(a.keys[key])
}

func (a *baseCache) remove(e *list.Element) *base {
	if e == nil {
		return nil
	}
	s := a.order.Remove(e).(*base)
	delete(a.keys, s.key)
	a.held -= cap(s.state)
	return s
}

func (a *baseCache) put(s *base) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.keys == nil {
		a.keys = map[baseKey]*list.Element{}
	}
	a.remove(a.keys[s.key])
	a.keys[s.key] = a.order.PushFront(s)
	a.held += cap(s.state)
	for a.held > baseCacheMost {
		a.remove(a.order.Back())
	}
}

// saver is one save of a large state.
type saver struct {
	client *Client
	whole  *ask
	state  []byte
	key    baseKey
	last   *base      // nil for none
	ops    []delta.Op // they make the state from the last one; set once they are known
	misses int        // the misses of this state if it is sent whole
}

// newSaver prepares a save that sends only what changed. It returns nil if the whole state must be sent.
func (c *Client) newSaver(r *ckpt.SaveRequest, whole *ask) *saver {
	if c.Whole || len(r.State) < deltaLeast || len(r.State) > baseCacheMost/2 {
		return nil
	}
	key := baseKey{r.Agent, r.Run}
	if key.run == "" {
		key.run = ckpt.MainRun
	}
	return &saver{client: c, whole: whole, state: r.State, key: key, last: c.bases.take(key)}
}

// change returns the call that sends only what changed, or nil if that is not much smaller. Its checksum makes
// sure that the daemon gets exactly this state, because the client does not compute the hash.
func (s *saver) change() *ask {
	if s.last == nil {
		return nil
	}
	s.misses = s.last.misses + 1
	if !s.last.worthComparing(s.state) {
		s.ops = []delta.Op{{Offset: delta.Literal, Length: len(s.state)}}
		return nil
	}
	s.ops = delta.Compare(s.last.state, s.state, delta.MaxOnWire)
	wire := delta.Wire(s.state, s.ops)
	if len(wire) > len(s.state)/2 {
		return nil
	}
	s.misses = 0
	a := *s.whole
	contentType := a.contentType
	if contentType == "" {
		contentType = ipc.TypeBytes
	}
	a.query = slices.Clone(a.query)
	a.query.add("base", s.last.id)
	a.query.add("content_type", contentType)
	a.header = http.Header{ipc.HeaderBaseSHA256: {s.last.sha256}, ipc.HeaderCRC32C: {ipc.CRC32C(s.state)}}
	for name, values := range s.whole.header {
		a.header[name] = values
	}
	a.body, a.contentType = wire, ipc.TypeDelta
	return &a
}

// worthComparing reports whether a state probably has much in common with the last one.
func (b *base) worthComparing(state []byte) bool {
	return b.misses < missesFew || b.misses%missesTry == 0 ||
		len(b.state) > sameAtHead && bytes.HasPrefix(state, b.state[:sameAtHead])
}

// done keeps the state for the next save, if the daemon stored exactly these bytes. It stores other bytes if a
// policy redacts secrets.
func (s *saver) done(saved *ckpt.Saved) {
	switch {
	case saved == nil && s.last != nil: // not saved, or unknown: the last state is still the base, or the daemon refuses it
		s.client.bases.put(s.last)
		return
	case saved == nil || !saved.AsSent:
		return
	}
	s.client.bases.put(&base{s.key, saved.ID, saved.SHA256, s.kept(), s.misses})
}

// kept returns a copy of the state, because the caller may change its own. If there is a copy of the last
// state, kept copies only the bytes that moved or changed.
func (s *saver) kept() []byte {
	if s.last == nil || s.ops == nil {
		return slices.Clone(s.state)
	}
	memory := slices.Grow(s.last.state, max(len(s.state)-len(s.last.state), 0))[:len(s.state)]
	at := 0
	for _, op := range s.ops {
		if op.Offset != at {
			copy(memory[at:], s.state[at:at+op.Length])
		}
		at += op.Length
	}
	return memory
}
