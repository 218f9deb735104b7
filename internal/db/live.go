package db

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

type runKey struct{ owner, agent, run string }

// stored is a state that is on disk, and how: what the next one of its run is
// compared with. It is never changed, until nobody has it any more.
type stored struct {
	delta.Base
	known
	n, runID, seq int64
	id, sha256    string

	lent    bool // its memory is Memory's
	users   int  // who read it now; under the lock of live
	dropped bool // it is not in live any more

	in     *live // whose doubts apply to it; nil for one that this transaction has read
	doubts int64 // of live, before it was read from disk or written there
}

// doubted says that the pieces on disk may have changed since the state was
// read or written. No new state may stand on them until they have been read.
func (b *stored) doubted() bool { return b.in != nil && b.doubts != b.in.doubts.Load() }

func (b *stored) bytes() int64 {
	return int64(cap(b.State)) + 128*int64(len(b.Pieces)) + b.known.bytes()
}

// live is the newest large state of each run that is being saved, as far as
// there is room, and who saves. It is a copy of what is on disk: nothing is
// lost with it. The writer checks that the checkpoint is still there before a
// new state stands on it. The pieces themselves are not read again, unless
// something has cast doubt on them.
type live struct {
	doubts atomic.Int64 // how often something has cast doubt on what is on disk

	mu    sync.Mutex
	most  int64 // bytes; below 0 for none
	held  int64
	order list.List // of *liveState, the last used first
	runs  map[runKey]*list.Element
	ids   map[string]*list.Element
	turns map[runKey]*turn
	rooms rooms
}

type liveState struct {
	key   runKey
	state *stored
	used  time.Time
}

// turn is whose save of a run is on its way.
type turn struct {
	taken chan struct{} // holds one while it is taken
	users int
}

// enter waits until no other save of a large state of the run is on its way.
func (l *live) enter(key runKey, size int, most time.Duration) (leave func(), err error) {
	if size <= inlineMost || l.most < 0 {
		return func() {}, nil
	}
	l.mu.Lock()
	t := l.turns[key]
	if t == nil {
		t = &turn{taken: make(chan struct{}, 1)}
		if l.turns == nil {
			l.turns = map[runKey]*turn{}
		}
		l.turns[key] = t
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
		return nil, &ckpt.Error{Code: ckpt.CodeBusy, Message: "other saves of this run are waiting for the database: try again", RetryAfter: time.Second}
	}
}

func (l *live) leave(key runKey, t *turn) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if t.users--; t.users == 0 {
		delete(l.turns, key)
	}
}

// keeps says whether a state of a size may be kept.
func (l *live) keeps(size int) bool { return size > inlineMost && int64(size) <= l.most/2 }

// get is the newest state of a run, nil where it is not here or its pieces are
// in doubt. Whoever has it must release it.
func (l *live) get(key runKey) *stored {
	l.mu.Lock()
	defer l.mu.Unlock()
	e := l.runs[key]
	if e != nil && e.Value.(*liveState).state.doubted() {
		l.drop(e)
		return nil
	}
	return l.use(e).hold()
}

// find is get by the id of the checkpoint, as far as the agent has it.
func (l *live) find(owner, agent, id string) *stored {
	l.mu.Lock()
	defer l.mu.Unlock()
	e := l.ids[id]
	if e == nil || e.Value.(*liveState).key.owner != owner || e.Value.(*liveState).key.agent != agent {
		return nil
	}
	return l.use(e).hold()
}

func (l *live) use(e *list.Element) *stored {
	if e == nil {
		return nil
	}
	l.order.MoveToFront(e)
	s := e.Value.(*liveState)
	s.used = time.Now()
	return s.state
}

// put takes a state in the place of the run's last. One that would push all
// others out is not kept.
func (l *live) put(key runKey, state *stored) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.drop(l.runs[key])
	if state.bytes() > l.most/2 {
		state.dropped = true
		l.reuse(state)
		return
	}
	if l.runs == nil {
		l.runs, l.ids = map[runKey]*list.Element{}, map[string]*list.Element{}
	}
	e := l.order.PushFront(&liveState{key, state, time.Now()})
	l.runs[key], l.ids[state.id] = e, e
	l.held += state.bytes()
	for l.held > l.most {
		l.drop(l.order.Back())
	}
}

func (l *live) drop(e *list.Element) {
	if e == nil {
		return
	}
	s := l.order.Remove(e).(*liveState)
	delete(l.runs, s.key)
	delete(l.ids, s.state.id)
	l.held -= s.state.bytes()
	s.state.dropped = true
	l.reuse(s.state)
}

// forget lets go of a checkpoint that was removed.
func (l *live) forget(id string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.drop(l.ids[id])
}

// forgetAgent lets go of all of an agent.
func (l *live) forgetAgent(owner, agent string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for key, e := range l.runs {
		if key.owner == owner && key.agent == agent {
			l.drop(e)
		}
	}
}

// expire lets go of what nobody has saved after for a while.
func (l *live) expire(now time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for e := l.order.Back(); e != nil && now.Sub(e.Value.(*liveState).used) > liveIdle; e = l.order.Back() {
		l.drop(e)
	}
	l.rooms.expire(now)
}

// Base is the state of a checkpoint of an agent and its hash, for a change to
// it. It may be the one in memory: nobody may write to it, nor read it once it
// was released.
func (s *core) Base(ctx context.Context, sc ckpt.Scope, agent, id string) (state []byte, sha256 string, release func(), err error) {
	if b := s.live.find(sc.Whose(), agent, id); b != nil {
		return b.State, b.sha256, func() { s.live.release(b) }, nil
	}
	err = s.reading(ctx, func(q *sqlx.Tx) error {
		row, err := readOne(ctx, q, id, true)
		if err != nil {
			return err
		}
		if row.Owner != sc.Whose() || row.Agent != agent {
			return noCheckpoint(id)
		}
		sha256 = row.SHA256
		state, err = decode(ctx, q, row.state())
		return err
	})
	return state, sha256, func() {}, err
}

// baseFor is what a new state of a run is compared with: the run's newest one,
// from memory or read once, nil where there is none or it cannot be read.
// Whoever has it must release it.
func (s *core) baseFor(key runKey, size int) *stored {
	if !s.live.keeps(size) {
		return nil
	}
	if base := s.live.get(key); base != nil {
		return base
	}
	base, err := s.readBase(key)
	if err != nil {
		s.log.Warn("a state is stored whole: the one before cannot be read", "agent", key.agent, "run", key.run, "error", err)
	}
	return base.hold()
}

const pieced = `SELECT n, id, seq, size, sha256, pieces FROM checkpoints WHERE n = (SELECT max(n) FROM (
	SELECT n FROM (SELECT n FROM checkpoints WHERE run_id = ?1 AND kind = 'routine' AND pieces IS NOT NULL ORDER BY seq DESC LIMIT 1)
	UNION ALL SELECT n FROM (SELECT n FROM checkpoints WHERE run_id = ?1 AND kind = 'pre_operation' AND pieces IS NOT NULL ORDER BY seq DESC LIMIT 1)
	UNION ALL SELECT n FROM (SELECT n FROM checkpoints WHERE run_id = ?1 AND kind = 'recovery' AND pieces IS NOT NULL ORDER BY seq DESC LIMIT 1)))`

// readBase reads the newest state of a run that is made of pieces.
func (s *core) readBase(key runKey) (base *stored, err error) {
	ctx, cancel := context.WithTimeout(context.Background(), s.opt.WriteTimeout)
	defer cancel()
	doubts := s.live.doubts.Load() // before the snapshot is taken: what comes later casts doubt on it
	err = s.reading(ctx, func(q *sqlx.Tx) error {
		var runID int64
		err := q.GetContext(ctx, &runID, `SELECT r.id FROM runs r JOIN agents a ON a.id = r.agent_id WHERE a.owner = ? AND a.name = ? AND r.name = ?`, key.owner, key.agent, key.run)
		if isNoRows(err) {
			return nil
		}
		if err != nil {
			return err
		}
		var row struct {
			stateRow
			Seq int64 `db:"seq"`
		}
		err = q.GetContext(ctx, &row, pieced, runID)
		if isNoRows(err) || err == nil && row.Size > s.live.most/2 {
			return nil
		}
		if err != nil {
			return err
		}
		base = &stored{n: row.N, runID: runID, seq: row.Seq, id: row.ID, sha256: row.SHA256, in: &s.live, doubts: doubts}
		if base.State, err = decode(ctx, q, &row.stateRow); err != nil {
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
func (b *stored) standOn(ctx context.Context, q sqlx.QueryerContext, pieces string) (err error) {
	if b.Pieces, err = readPieces(pieces); err != nil {
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

// keepLive keeps what is being inserted for the next save of its run, once it
// is on disk.
func (s *core) keepLive(tx *tx, key runKey, runID int64, row *checkpointRow, e *encoded, list []delta.Piece) {
	if list == nil || s.live.most < 0 {
		return
	}
	next := &stored{n: row.N, runID: runID, seq: row.Seq, id: row.ID, sha256: e.sha256, known: e.known, in: &s.live, doubts: s.live.doubts.Load()}
	next.lent = e.lent
	next.State, next.Pieces, next.Sizes = e.state, list, make(map[int64]int64, len(list))
	for i, p := range list {
		if e.pieces[i].Segment == delta.New {
			next.Sizes[p.Segment] = e.fresh
		} else {
			next.Sizes[p.Segment] = e.base.Sizes[p.Segment]
		}
	}
	tx.OnCommit(func() { s.live.put(key, next) })
}

// settle makes sure that what a state stands on is still there, is still the
// newest of its run (only from that may segments be taken, see sweep), and is
// not in doubt. Otherwise the state is stored whole.
func (tx *tx) settle(e *encoded) error {
	if e.base == nil {
		return nil
	}
	newest, err := tx.isNewest(e.base)
	if err != nil || newest {
		return err
	}
	e.describe(nil, nil)
	return nil
}

// newestIs says that a state is the newest of the run, where that is known.
func (h *hotRun) newestIs(b *stored) bool {
	if len(h.rows) == 0 || h.run.ID != b.runID || b.doubted() {
		return false
	}
	row := &h.rows[0]
	return row.N == b.n && row.ID == b.id && row.Seq == b.seq && row.Seq == h.run.LastSeq && !row.Inline
}

func (tx *tx) isNewest(b *stored) (newest bool, err error) {
	if b.doubted() {
		return false, nil
	}
	_, err = tx.get(&newest, `SELECT EXISTS (SELECT 1 FROM checkpoints WHERE n = ?1 AND id = ?2 AND run_id = ?3 AND pieces IS NOT NULL)
		AND NOT EXISTS (SELECT 1 FROM checkpoints WHERE run_id = ?3 AND kind IN ('routine', 'pre_operation', 'recovery') AND seq > ?4 AND pieces IS NOT NULL)`,
		b.n, b.id, b.runID, b.seq)
	return newest, err
}

// encodeAgain encodes a checkpoint's state for another one of a run, by the same
// pieces where it is the newest. What has happened since the first one is no
// part of the copy either, so it notes which that was.
func (tx *tx) encodeAgain(run *runRow, c *ckpt.Checkpoint) (e encoded, err error) {
	var row struct {
		N       int64         `db:"n"`
		RunID   int64         `db:"run_id"`
		Pieces  *string       `db:"pieces"`
		StateOf sql.NullInt64 `db:"state_of"`
	}
	found, err := tx.get(&row, `SELECT n, run_id, pieces, state_of FROM checkpoints WHERE id = ?`, c.ID)
	if err != nil {
		return encoded{}, err
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
		return encode(c.State), nil
	}
	base := &stored{n: row.N, runID: row.RunID, seq: c.Seq, id: c.ID, sha256: c.SHA256}
	newest, err := tx.isNewest(base)
	if err != nil || !newest {
		return encode(c.State), err
	}
	if err := base.standOn(tx.Ctx, tx.Conn, *row.Pieces); err != nil {
		return encoded{}, err
	}
	return encoded{size: c.Size, sha256: c.SHA256, state: c.State, pieces: base.Pieces, base: base}, nil
}
