package blob

import (
	"container/list"
	"sync"
	"time"

	ckpt "github.com/ckptsidecar/ckptsidecar"
	"github.com/ckptsidecar/ckptsidecar/internal/db/sqlite"
	"github.com/ckptsidecar/ckptsidecar/internal/delta"
)

// NewStates keeps at most this many bytes; if most is below 0, it keeps no states.
func NewStates(most int64) *States { return &States{most: most} }

// idleFor is how long a state stays in memory if no save follows it.
const idleFor = 10 * time.Minute

// States are the current states: the newest large state of each run that is being saved, up to a
// limit, and the saves on their way. It is a copy of what is on disk, so nothing depends on keeping
// it. Before a new state is based on one of them, the writer checks that the checkpoint still
// exists. The pieces themselves are not read again, unless something has cast doubt on them.
type States struct {
	Doubts Doubts

	mu    sync.Mutex
	most  int64 // bytes; below 0 for none
	held  int64
	order list.List // of *current, the most recently used first
	runs  map[RunKey]*list.Element
	ids   map[string]*list.Element
	saves map[RunKey]*saving // the saves on their way
	rooms rooms
}

// current is a run's newest state.
type current struct {
	key   RunKey
	state *Stored
	used  time.Time
}

// saving is the lock for the one save of a run that is on its way.
type saving struct {
	taken chan struct{} // holds one element while it is taken
	users int
}

// Enter waits until no other save of a large state of the run is on its way.
func (l *States) Enter(key RunKey, size int, most time.Duration) (leave func(), err error) {
	if size <= inlineMost || l.most < 0 {
		return func() {}, nil
	}
	l.mu.Lock()
	t := l.saves[key]
	if t == nil {
		t = &saving{taken: make(chan struct{}, 1)}
		if l.saves == nil {
			l.saves = map[RunKey]*saving{}
		}
		l.saves[key] = t
	}
	t.users++
	l.mu.Unlock()
	select {
	case t.taken <- struct{}{}:
		return func() { <-t.taken; l.leave(key, t) }, nil
	default:
	}
	timer := time.NewTimer(most)
	defer timer.Stop()
	select {
	case t.taken <- struct{}{}:
		return func() { <-t.taken; l.leave(key, t) }, nil
	case <-timer.C:
		l.leave(key, t)
		return nil, &ckpt.Error{
			Code: ckpt.CodeBusy, RetryAfter: time.Second,
			Message: "other saves of this run are waiting for the database: try again",
		}
	}
}

func (l *States) leave(key RunKey, t *saving) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if t.users--; t.users == 0 {
		delete(l.saves, key)
	}
}

// keeps says whether a state of this size may be kept.
func (l *States) keeps(size int) bool { return size > inlineMost && int64(size) <= l.most/2 }

// Get returns the newest state of a run, or nil if it is not in memory or its pieces are in doubt.
// The caller must release it.
func (l *States) Get(key RunKey) *Stored {
	l.mu.Lock()
	defer l.mu.Unlock()
	e := l.runs[key]
	if e != nil && e.Value.(*current).state.Doubted() {
		l.drop(e)
		return nil
	}
	return l.use(e).Hold()
}

// Find is Get by the id of the checkpoint, if the agent has it.
func (l *States) Find(owner, agent, id string) *Stored {
	l.mu.Lock()
	defer l.mu.Unlock()
	e := l.ids[id]
	if e == nil || e.Value.(*current).key.Owner != owner || e.Value.(*current).key.Agent != agent {
		return nil
	}
	return l.use(e).Hold()
}

func (l *States) use(e *list.Element) *Stored {
	if e == nil {
		return nil
	}
	l.order.MoveToFront(e)
	s := e.Value.(*current)
	s.used = time.Now()
	return s.state
}

// Put replaces the run's last state. It does not keep a state that would push all others out.
func (l *States) Put(key RunKey, state *Stored) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.drop(l.runs[key])
	if state.Bytes() > l.most/2 {
		state.dropped = true
		l.reuse(state)
		return
	}
	if l.runs == nil {
		l.runs, l.ids = map[RunKey]*list.Element{}, map[string]*list.Element{}
	}
	e := l.order.PushFront(&current{key, state, time.Now()})
	l.runs[key], l.ids[state.ID] = e, e
	l.held += state.Bytes()
	for l.held > l.most {
		l.drop(l.order.Back())
	}
}

func (l *States) drop(e *list.Element) {
	if e == nil {
		return
	}
	s := l.order.Remove(e).(*current)
	delete(l.runs, s.key)
	delete(l.ids, s.state.ID)
	l.held -= s.state.Bytes()
	s.state.dropped = true
	l.reuse(s.state)
}

// Forget drops a checkpoint that was removed.
func (l *States) Forget(id string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.drop(l.ids[id])
}

// ForgetAgent drops all states of an agent.
func (l *States) ForgetAgent(owner, agent string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for key, e := range l.runs {
		if key.Owner == owner && key.Agent == agent {
			l.drop(e)
		}
	}
}

// Expire drops states that no save has followed for a while.
func (l *States) Expire(now time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for e := l.order.Back(); e != nil && now.Sub(e.Value.(*current).used) > idleFor; e = l.order.Back() {
		l.drop(e)
	}
	l.rooms.expire(now)
}

// Memory returns a buffer of this many bytes for a state that is to be saved, as SaveRequest.State
// with Lent set. Its contents are undefined.
func (l *States) Memory(size int) []byte {
	if size < leastRoom || l.most < 0 {
		return make([]byte, size)
	}
	l.mu.Lock()
	room := l.rooms.take(size)
	l.mu.Unlock()
	if room == nil {
		room = make([]byte, roomFor(size))
	}
	return room[:size]
}

// Release releases a state that Hold has held.
func (l *States) Release(b *Stored) {
	if b == nil {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	b.users--
	l.reuse(b)
}

// reuse takes the memory of a state that was dropped and has no readers.
func (l *States) reuse(b *Stored) {
	if !b.dropped || !b.lent || b.users > 0 {
		return
	}
	room := b.State
	b.State, b.lent = nil, false // so that a later read fails
	l.rooms.leave(room, l.most/4)
}

// Keep keeps a state that is being inserted, for the next save of its run. It does so after the
// state is on disk.
func (l *States) Keep(tx *sqlite.Tx, key RunKey, at Place, e *Encoded, list []delta.Piece) {
	if list == nil || l.most < 0 {
		return
	}
	next := &Stored{Place: at, SHA256: e.Sha256, known: e.Known, lent: e.lent, doubts: &l.Doubts, since: l.Doubts.Load()}
	next.State, next.Pieces, next.Sizes = e.State, list, e.sizesOf(list)
	tx.OnCommit(func() { l.Put(key, next) })
}

// Held describes the states in memory, for tests.
type Held struct {
	Saves  int            // saves of large states on their way
	Users  map[string]int // how many readers each checkpoint's state has
	Excess int64          // bytes that are counted and not there
	ByRun  int            // states by run that are not in the order
	ByID   int            // states by id that are not in the order
}

// Held describes the states in memory.
func (l *States) Held() Held {
	l.mu.Lock()
	defer l.mu.Unlock()
	h := Held{Saves: len(l.saves), Users: map[string]int{}, Excess: l.held, ByRun: len(l.runs) - l.order.Len(), ByID: len(l.ids) - l.order.Len()}
	for e := l.order.Front(); e != nil; e = e.Next() {
		state := e.Value.(*current).state
		h.Excess -= state.Bytes()
		h.Users[state.ID] = state.users
	}
	return h
}
