package usage

import (
	"context"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	ckpt "github.com/ckptsidecar/ckptsidecar"
	"github.com/ckptsidecar/ckptsidecar/internal/db/sqlite"
	"github.com/jmoiron/sqlx"
)

// Limits are what owners may store.
type Limits struct {
	MaxOwnerBytes int64 // of all that one owner has stored; 0 for no limit
	OwnerShare    int   // percent that one owner may have of his bytes and the room that is left; 0 for no limit
}

// On says whether anything is limited.
func (l Limits) On() bool { return l.MaxOwnerBytes > 0 || l.OwnerShare > 0 }

// Meter is how many bytes each owner has stored, for the quota: of all that he
// causes, not of states alone. The writer counts what its statements store.
// What is removed is taken off where that is cheap to know; for the rest, what
// an owner has is counted anew (see Recount) before he is refused anything.
//
// Without a quota nobody asks: nothing is counted, and a start looks at nothing.
type Meter struct {
	Limits
	Daemon  string                                            // who does what nobody asked for
	Reading func(context.Context, func(*sqlx.Tx) error) error // runs a function in a transaction that reads
	Log     *slog.Logger

	room atomic.Int64 // what is left for all, as last looked at; below 0 while that is not known

	mu     sync.Mutex
	owners map[string]*owned
}

// owned is what one owner has stored.
type owned struct {
	rows    int64         // of all tables but the audit log
	log     int64         // of the audit log: it is only added to
	added   int64         // all that was ever added to rows since the start
	counted time.Time     // when rows was last counted by looking
	took    time.Duration // for how long it was looked
	stale   bool          // rows is from before a fault: look again
	refused time.Time     // when a refusal was last recorded while he had no room
	silent  int64         // refusals since then that were not
}

func (o *owned) bytes() int64 { return max(0, o.rows) + o.log }

// quotaMargin is how far beyond the quota an owner may go with what ends things
// or goes on: a run must come to its end, and a policy that keeps less be set.
func quotaMargin(most int64) int64 { return max(64<<10, most/16) }

// of is what is known of an owner. The lock is held.
func (m *Meter) of(owner string) *owned {
	o := m.owners[owner]
	if o == nil {
		o = &owned{}
		m.owners[owner] = o
	}
	return o
}

// Tally begins to count in a transaction.
func (m *Meter) Tally() (t Tally) {
	if m.On() {
		t.uses = map[string]*Use{}
	}
	return t
}

// SetRoom notes how much room is left for all, below 0 while that is not known.
func (m *Meter) SetRoom(bytes int64) { m.room.Store(bytes) }

// Used is what is counted of an owner: of all tables but the audit log, and of that.
func (m *Meter) Used(owner string) (rows, log int64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if o := m.owners[owner]; o != nil {
		return o.rows, o.log
	}
	return 0, 0
}

// Commit takes in what a transaction has added, once it is on disk.
func (m *Meter) Commit(t *Tally) {
	if len(t.uses) == 0 {
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	for owner, u := range t.uses {
		o := m.of(owner)
		o.rows += u.rows
		o.log += u.log
		o.added += max(0, u.rows)
	}
}

// MayStore refuses what an owner has no room for, beside what the transaction
// has added already. beyond is how far he may go beyond his quota.
func (m *Meter) MayStore(t *Tally, owner string, bytes, beyond int64) error {
	if t.uses == nil || owner == "" {
		return nil
	}
	used := m.used(owner)
	if u := t.uses[owner]; u != nil {
		used += u.bytes()
	}
	return m.refuse(owner, used, bytes, beyond)
}

func (m *Meter) used(owner string) int64 {
	m.mu.Lock()
	defer m.mu.Unlock()
	if o := m.owners[owner]; o != nil {
		return o.bytes()
	}
	return 0
}

// refuse refuses bytes that would bring an owner beyond his quota, or beyond his
// share of what all have together.
func (m *Meter) refuse(owner string, used, bytes, beyond int64) error {
	const advice = "delete checkpoints, erase agents, or let the policies keep less"
	if most := m.MaxOwnerBytes; most > 0 && used+bytes > most+beyond {
		return ckpt.Errorf(ckpt.CodeQuota, "%s has %d of %d bytes stored, and this needs %d: %s", owner, used, most, bytes, advice)
	}
	left, share := m.room.Load(), int64(m.OwnerShare)
	if share == 0 || left < 0 {
		return nil
	}
	left = max(0, left-bytes)
	if most := (used + bytes + left) / 100 * share; used+bytes > most+beyond {
		return ckpt.Errorf(ckpt.CodeQuota,
			"%s has %d bytes stored, and %d are left for all: this needs %d, and one owner may have %d%% of both together; %s",
			owner, used, left, bytes, share, advice)
	}
	return nil
}

// tightBelow is how much room makes it worth to look closely.
const tightBelow = 1 << 20

// Tight says whether an owner may have no room for an operation. Such a one has
// a transaction of its own, so that nobody else's is undone with it.
func (m *Meter) Tight(owner string, size int64) bool {
	if !m.On() || owner == "" {
		return false
	}
	return m.refuse(owner, m.used(owner), 2*size+tightBelow, 0) != nil
}

// Check refuses an operation that has stored more than its owner has room
// for. What only removes, and says so by carrying nothing, always may.
func (m *Meter) Check(t *Tally, before Use, owner string, size int64, claim sqlite.Claim) error {
	if t.uses == nil || owner == "" {
		return nil
	}
	t.of(owner).rows += t.stored
	now := t.Of(owner)
	if claim == sqlite.Frees && size == 0 {
		return nil
	}
	if grown := now.bytes() - before.bytes(); grown <= 0 {
		return nil
	}
	beyond := int64(0)
	if claim != sqlite.Adds && size <= smallEnd {
		beyond = quotaMargin(m.MaxOwnerBytes)
	}
	return m.MayStore(t, owner, 0, beyond)
}

// smallEnd is how much the end of something may carry to be let beyond the quota.
const smallEnd = 8 << 10

// silentFor is how long refusals of an owner without room are not recorded after
// one that was: they would fill the log for which he has no room either.
const silentFor = 10 * time.Second

// MayRecord says whether a refusal goes into the log, and how many before it
// did not.
func (m *Meter) MayRecord(owner string) (may bool, silent int64) {
	if !m.On() || m.refuse(owner, m.used(owner), tightBelow, 0) == nil {
		return true, 0
	}
	now := time.Now()
	m.mu.Lock()
	defer m.mu.Unlock()
	o := m.of(owner)
	if !o.refused.IsZero() && now.Sub(o.refused) < silentFor {
		o.silent++
		return false, 0
	}
	silent, o.refused, o.silent = o.silent, now, 0
	return true, silent
}
