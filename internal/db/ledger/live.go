package ledger

import (
	"container/list"
	"context"
	"database/sql"
	"sync"
	"sync/atomic"
	"time"

	ckpt "github.com/ckptsidecar/ckptsidecar"
	"github.com/ckptsidecar/ckptsidecar/internal/delta"
	"github.com/jmoiron/sqlx"
)

// liveIdle is how long a state stays in memory that nobody saves after.
const liveIdle = 10 * time.Minute

type RunKey struct{ Owner, Agent, Run string }

// Stored is a state that is on disk, and how: what the next one of its run is
// compared with. It is never changed, until nobody has it any more.
type Stored struct {
	delta.Base
	known
	n, runID, seq int64
	ID, sha256    string

	Lent    bool // its memory is Memory's
	Users   int  // who read it now; under the lock of live
	Dropped bool // it is not in live any more

	in     *Live // whose doubts apply to it; nil for one that this transaction has read
	doubts int64 // of live, before it was read from disk or written there
}

// doubted says that the pieces on disk may have changed since the state was
// read or written. No new state may stand on them until they have been read.
func (b *Stored) doubted() bool { return b.in != nil && b.doubts != b.in.Doubts.Load() }

func (b *Stored) Bytes() int64 {
	return int64(cap(b.State)) + 128*int64(len(b.Pieces)) + b.known.bytes()
}

// Live is the newest large state of each run that is being saved, as far as
// there is room, and who saves. It is a copy of what is on disk: nothing is
// lost with it. The writer checks that the checkpoint is still there before a
// new state stands on it. The pieces themselves are not read again, unless
// something has cast doubt on them.
type Live struct {
	Doubts atomic.Int64 // how often something has cast doubt on what is on disk

	Mu    sync.Mutex
	Most  int64 // bytes; below 0 for none
	Held  int64
	Order list.List // of *liveState, the last used first
	Runs  map[RunKey]*list.Element
	Ids   map[string]*list.Element
	Turns map[RunKey]*turn
	Rooms rooms
}

type LiveState struct {
	key   RunKey
	State *Stored
	used  time.Time
}

// turn is whose save of a run is on its way.
type turn struct {
	taken chan struct{} // holds one while it is taken
	users int
}

// Enter waits until no other save of a large state of the run is on its way.
func (l *Live) Enter(key RunKey, size int, most time.Duration) (leave func(), err error) {
	if size <= inlineMost || l.Most < 0 {
		return func() {}, nil
	}
	l.Mu.Lock()
	t := l.Turns[key]
	if t == nil {
		t = &turn{taken: make(chan struct{}, 1)}
		if l.Turns == nil {
			l.Turns = map[RunKey]*turn{}
		}
		l.Turns[key] = t
	}
	t.users++
	l.Mu.Unlock()
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
		return nil, &ckpt.Error{Code: ckpt.CodeBusy, Message: "other saves of this run are waiting for the database: try again", RetryAfter: time.Second}
	}
}

func (l *Live) leave(key RunKey, t *turn) {
	l.Mu.Lock()
	defer l.Mu.Unlock()
	if t.users--; t.users == 0 {
		delete(l.Turns, key)
	}
}

// keeps says whether a state of a size may be kept.
func (l *Live) keeps(size int) bool { return size > inlineMost && int64(size) <= l.Most/2 }

// Get is the newest state of a run, nil where it is not here or its pieces are
// in doubt. Whoever has it must release it.
func (l *Live) Get(key RunKey) *Stored {
	l.Mu.Lock()
	defer l.Mu.Unlock()
	e := l.Runs[key]
	if e != nil && e.Value.(*LiveState).State.doubted() {
		l.drop(e)
		return nil
	}
	return l.use(e).Hold()
}

// Find is get by the id of the checkpoint, as far as the agent has it.
func (l *Live) Find(owner, agent, id string) *Stored {
	l.Mu.Lock()
	defer l.Mu.Unlock()
	e := l.Ids[id]
	if e == nil || e.Value.(*LiveState).key.Owner != owner || e.Value.(*LiveState).key.Agent != agent {
		return nil
	}
	return l.use(e).Hold()
}

func (l *Live) use(e *list.Element) *Stored {
	if e == nil {
		return nil
	}
	l.Order.MoveToFront(e)
	s := e.Value.(*LiveState)
	s.used = time.Now()
	return s.State
}

// Put takes a state in the place of the run's last. One that would push all
// others out is not kept.
func (l *Live) Put(key RunKey, state *Stored) {
	l.Mu.Lock()
	defer l.Mu.Unlock()
	l.drop(l.Runs[key])
	if state.Bytes() > l.Most/2 {
		state.Dropped = true
		l.reuse(state)
		return
	}
	if l.Runs == nil {
		l.Runs, l.Ids = map[RunKey]*list.Element{}, map[string]*list.Element{}
	}
	e := l.Order.PushFront(&LiveState{key, state, time.Now()})
	l.Runs[key], l.Ids[state.ID] = e, e
	l.Held += state.Bytes()
	for l.Held > l.Most {
		l.drop(l.Order.Back())
	}
}

func (l *Live) drop(e *list.Element) {
	if e == nil {
		return
	}
	s := l.Order.Remove(e).(*LiveState)
	delete(l.Runs, s.key)
	delete(l.Ids, s.State.ID)
	l.Held -= s.State.Bytes()
	s.State.Dropped = true
	l.reuse(s.State)
}

// forget lets go of a checkpoint that was removed.
func (l *Live) forget(id string) {
	l.Mu.Lock()
	defer l.Mu.Unlock()
	l.drop(l.Ids[id])
}

// ForgetAgent lets go of all of an agent.
func (l *Live) ForgetAgent(owner, agent string) {
	l.Mu.Lock()
	defer l.Mu.Unlock()
	for key, e := range l.Runs {
		if key.Owner == owner && key.Agent == agent {
			l.drop(e)
		}
	}
}

// Expire lets go of what nobody has saved after for a while.
func (l *Live) Expire(now time.Time) {
	l.Mu.Lock()
	defer l.Mu.Unlock()
	for e := l.Order.Back(); e != nil && now.Sub(e.Value.(*LiveState).used) > liveIdle; e = l.Order.Back() {
		l.drop(e)
	}
	l.Rooms.expire(now)
}

// Base is the state of a checkpoint of an agent and its hash, for a change to
// it. It may be the one in memory: nobody may write to it, nor read it once it
// was released.
func (s *Core) Base(ctx context.Context, sc ckpt.Scope, agent, id string) (state []byte, sha256 string, release func(), err error) {
	if b := s.Live.Find(sc.Whose(), agent, id); b != nil {
		return b.State, b.sha256, func() { s.Live.Release(b) }, nil
	}
	err = s.Reading(ctx, func(q *sqlx.Tx) error {
		row, err := readOne(ctx, q, id, true)
		if err != nil {
			return err
		}
		if row.Owner != sc.Whose() || row.Agent != agent {
			return NoCheckpoint(id)
		}
		sha256 = row.SHA256
		state, err = Decode(ctx, q, row.state())
		return err
	})
	return state, sha256, func() {}, err
}

// baseFor is what a new state of a run is compared with: the run's newest one,
// from memory or read once, nil where there is none or it cannot be read.
// Whoever has it must release it.
func (s *Core) baseFor(key RunKey, size int) *Stored {
	if !s.Live.keeps(size) {
		return nil
	}
	if base := s.Live.Get(key); base != nil {
		return base
	}
	base, err := s.readBase(key)
	if err != nil {
		s.Log.Warn("a state is stored whole: the one before cannot be read", "agent", key.Agent, "run", key.Run, "error", err)
	}
	return base.Hold()
}

const pieced = `SELECT n, id, seq, size, sha256, pieces FROM checkpoints WHERE n = (SELECT max(n) FROM (
	SELECT n FROM (SELECT n FROM checkpoints WHERE run_id = ?1 AND kind = 'routine' AND pieces IS NOT NULL ORDER BY seq DESC LIMIT 1)
	UNION ALL SELECT n FROM (SELECT n FROM checkpoints WHERE run_id = ?1 AND kind = 'pre_operation' AND pieces IS NOT NULL ORDER BY seq DESC LIMIT 1)
	UNION ALL SELECT n FROM (SELECT n FROM checkpoints WHERE run_id = ?1 AND kind = 'recovery' AND pieces IS NOT NULL ORDER BY seq DESC LIMIT 1)))`

// readBase reads the newest state of a run that is made of pieces.
func (s *Core) readBase(key RunKey) (base *Stored, err error) {
	ctx, cancel := context.WithTimeout(context.Background(), s.Opt.WriteTimeout)
	defer cancel()
	doubts := s.Live.Doubts.Load() // before the snapshot is taken: what comes later casts doubt on it
	err = s.Reading(ctx, func(q *sqlx.Tx) error {
		var runID int64
		err := q.GetContext(ctx, &runID, `SELECT r.id FROM runs r JOIN agents a ON a.id = r.agent_id WHERE a.owner = ? AND a.name = ? AND r.name = ?`, key.Owner, key.Agent, key.Run)
		if IsNoRows(err) {
			return nil
		}
		if err != nil {
			return err
		}
		var row struct {
			StateRow
			Seq int64 `db:"seq"`
		}
		err = q.GetContext(ctx, &row, pieced, runID)
		if IsNoRows(err) || err == nil && row.Size > s.Live.Most/2 {
			return nil
		}
		if err != nil {
			return err
		}
		base = &Stored{n: row.N, runID: runID, seq: row.Seq, ID: row.ID, sha256: row.SHA256, in: &s.Live, doubts: doubts}
		if base.State, err = Decode(ctx, q, &row.StateRow); err != nil {
			return err
		}
		return base.standOn(ctx, q, *row.Pieces)
	})
	if err != nil {
		return nil, err
	}
	return base, nil
}

// standOn reads a list of pieces, and how large the segments are that it names.
func (b *Stored) standOn(ctx context.Context, q sqlx.QueryerContext, pieces string) (err error) {
	if b.Pieces, err = ReadPieces(pieces); err != nil {
		return err
	}
	b.Sizes = make(map[int64]int64, len(b.Pieces))
	var sizes []segmentRow
	err = sqlx.SelectContext(ctx, q, &sizes, `SELECT id, size FROM segments WHERE id IN (SELECT json_extract(value, '$[0]') FROM json_each(?))`, pieces)
	for _, segment := range sizes {
		b.Sizes[segment.ID] = segment.Size
	}
	return err
}

// KeepLive keeps what is being inserted for the next save of its run, once it
// is on disk.
func (s *Core) KeepLive(tx *Tx, key RunKey, runID int64, row *CheckpointRow, e *Encoded, list []delta.Piece) {
	if list == nil || s.Live.Most < 0 {
		return
	}
	next := &Stored{n: row.N, runID: runID, seq: row.Seq, ID: row.ID, sha256: e.Sha256, known: e.Known, in: &s.Live, doubts: s.Live.Doubts.Load()}
	next.Lent = e.lent
	next.State, next.Pieces, next.Sizes = e.State, list, make(map[int64]int64, len(list))
	for i, p := range list {
		if e.pieces[i].Segment == delta.New {
			next.Sizes[p.Segment] = e.fresh
		} else {
			next.Sizes[p.Segment] = e.Base.Sizes[p.Segment]
		}
	}
	tx.OnCommit(func() { s.Live.Put(key, next) })
}

// Settle makes sure that what a state stands on is still there, is still the
// newest of its run (only from that may segments be taken, see sweep), and is
// not in doubt. Otherwise the state is stored whole.
func (tx *Tx) Settle(e *Encoded) error {
	if e.Base == nil {
		return nil
	}
	newest, err := tx.isNewest(e.Base)
	if err != nil || newest {
		return err
	}
	e.describe(nil, nil)
	return nil
}

// NewestIs says that a state is the newest of the run, where that is known.
func (h *HotRun) NewestIs(b *Stored) bool {
	if len(h.Rows) == 0 || h.Run.ID != b.runID || b.doubted() {
		return false
	}
	row := &h.Rows[0]
	return row.N == b.n && row.ID == b.ID && row.Seq == b.seq && row.Seq == h.Run.LastSeq && !row.Inline
}

func (tx *Tx) isNewest(b *Stored) (newest bool, err error) {
	if b.doubted() {
		return false, nil
	}
	_, err = tx.Get(&newest, `SELECT EXISTS (SELECT 1 FROM checkpoints WHERE n = ?1 AND id = ?2 AND run_id = ?3 AND pieces IS NOT NULL)
		AND NOT EXISTS (SELECT 1 FROM checkpoints WHERE run_id = ?3 AND kind IN ('routine', 'pre_operation', 'recovery') AND seq > ?4 AND pieces IS NOT NULL)`,
		b.n, b.ID, b.runID, b.seq)
	return newest, err
}

// EncodeAgain encodes a checkpoint's state for another one of a run, by the same
// pieces where it is the newest. What has happened since the first one is no
// part of the copy either, so it notes which that was.
func (tx *Tx) EncodeAgain(run *RunRow, c *ckpt.Checkpoint) (e Encoded, err error) {
	var row struct {
		N       int64         `db:"n"`
		RunID   int64         `db:"run_id"`
		Pieces  *string       `db:"pieces"`
		StateOf sql.NullInt64 `db:"state_of"`
	}
	found, err := tx.Get(&row, `SELECT n, run_id, pieces, state_of FROM checkpoints WHERE id = ?`, c.ID)
	if err != nil {
		return Encoded{}, err
	}
	of := sql.NullInt64{Valid: true} // another run's, with which a fork began
	switch {
	case found && row.RunID == run.ID && row.StateOf.Valid:
		of = row.StateOf
	case found && row.RunID == run.ID:
		of.Int64 = c.Seq
	}
	defer func() { e.of = of }()
	if !found || row.Pieces == nil {
		return Encode(c.State), nil
	}
	base := &Stored{n: row.N, runID: row.RunID, seq: c.Seq, ID: c.ID, sha256: c.SHA256}
	newest, err := tx.isNewest(base)
	if err != nil || !newest {
		return Encode(c.State), err
	}
	if err := base.standOn(tx.Ctx, tx.Conn, *row.Pieces); err != nil {
		return Encoded{}, err
	}
	return Encoded{Size: c.Size, Sha256: c.SHA256, State: c.State, pieces: base.Pieces, Base: base}, nil
}
