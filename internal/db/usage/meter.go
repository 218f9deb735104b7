package usage

import (
	"context"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	ckpt "github.com/ckptsidecar/ckptsidecar"
	"github.com/ckptsidecar/ckptsidecar/internal/db/sqlite"
	"github.com/ckptsidecar/ckptsidecar/internal/drift/phrase"
	"github.com/jmoiron/sqlx"
)

// Limits are what owners may store.
type Limits struct {
	MaxOwnerBytes int64 // bytes of everything that one owner has stored; 0 for no limit
	FreeFloor     int64 // free bytes for all owners below which only owners with little may store more; 0 for none
	OwnerMinimum  int64 // bytes that an owner may have even below the floor
}

// On says whether anything is limited.
func (l Limits) On() bool { return l.MaxOwnerBytes > 0 || l.FreeFloor > 0 }

// inForce returns the floor and the minimum on a volume with so many bytes in all. On a small volume
// both are smaller: the floor is at most a tenth of the volume, so that four owners can have the
// minimum below it.
func (l Limits) inForce(total int64) (floor, minimum int64) {
	floor = l.FreeFloor
	if total > 0 {
		floor = min(floor, total/10)
	}
	return floor, min(l.OwnerMinimum, floor/4)
}

// Meter counts how many bytes each owner has stored, for the quota: everything that the owner
// causes, not only states. The writer counts what its statements store. Removed bytes are
// subtracted if they are cheap to know. For the rest, an owner's bytes are counted again (see
// Recount) before an operation of the owner is refused.
//
// Without a quota or a share, nothing is counted, and a start reads nothing.
type Meter struct {
	Limits
	Daemon  string                                            // the name of the daemon as an actor
	Reading func(context.Context, func(*sqlx.Tx) error) error // runs a function in a transaction that reads
	Disk    func() (free int64, err error)                    // asks how much is free on the disk
	Log     *slog.Logger

	room  atomic.Int64 // the space left for all owners at the last look; below 0 if unknown
	since atomic.Int64 // the bytes stored since that look
	short atomic.Pointer[short]
	total atomic.Int64 // the size of the volume, or of the largest database file that is allowed; 0 if unknown

	mu     sync.Mutex
	owners map[string]*owned
}

// short is the newest refusal for the sake of the floor.
type short struct {
	bytes int64 // so many were refused
	at    time.Time
}

// shortFor is for how long a refusal shows that little is left, even if the floor itself is free.
const shortFor = time.Minute

// owned is what one owner has stored.
type owned struct {
	rows    int64         // of all tables except the audit log
	log     int64         // of the audit log, which only grows
	added   int64         // everything that was ever added to rows since the start
	counted time.Time     // when rows was last counted from the tables
	took    time.Duration // how long that count took
	stale   bool          // rows is from before a fault and must be counted again
	refused time.Time     // when a refusal was last recorded while the owner had no space
	silent  int64         // refusals since then that were not recorded
}

func (o *owned) bytes() int64 { return max(0, o.rows) + o.log }

// quotaMargin is by how many bytes an owner may exceed the quota with operations that end or
// continue something: a run must be able to end, and a policy that keeps less must be possible to
// set.
func quotaMargin(most int64) int64 { return max(64<<10, most/16) }

// of is what is known of an owner. The caller holds the lock.
func (m *Meter) of(owner string) *owned {
	o := m.owners[owner]
	if o == nil {
		o = &owned{}
		m.owners[owner] = o
	}
	return o
}

// Tally begins to count for a transaction.
func (m *Meter) Tally() (t Tally) {
	if m.On() {
		t.uses = map[string]*Use{}
	}
	return t
}

// SetRoom notes the space that is left for all owners, below 0 if it is unknown, and how much there is in all.
func (m *Meter) SetRoom(left, total int64) {
	m.since.Store(0)
	m.room.Store(left)
	m.total.Store(total)
}

// growing is how many times more than the stored bytes the disk may lose before the next look: the
// write-ahead log and the reserve grow with them, until the log is copied.
const growing = 4

// left is the space that is left for all owners now. One owner can fill a small disk between two
// looks, so the disk is asked again if so much was stored since that the floor may be reached.
func (m *Meter) left(floor int64) int64 {
	room, since := m.room.Load(), m.since.Load()
	if room < 0 {
		return room
	}
	left := max(0, room-since)
	if since > 0 && room-growing*since < floor {
		if free, err := m.Disk(); err == nil {
			left = min(left, free)
		}
	}
	return left
}

// Room is the space that is left for all owners, and what is kept of it.
type Room struct {
	Left    int64 // below 0 if it is unknown
	Floor   int64 // below it, only owners with less than the minimum may store more
	Minimum int64
	Refused int64 // bytes for which an owner was refused just now
}

// Low says whether owners with more than the minimum are refused.
func (r Room) Low() bool { return r.Left >= 0 && r.Left-r.Refused < r.Floor }

// Room is the space now.
func (m *Meter) Room() Room {
	if m.FreeFloor == 0 {
		return Room{Left: -1}
	}
	floor, minimum := m.inForce(m.total.Load())
	r := Room{Left: m.left(floor), Floor: floor, Minimum: minimum}
	if s := m.short.Load(); s != nil && time.Since(s.at) < shortFor {
		r.Refused = s.bytes
	}
	return r
}

// Each returns how many bytes each owner has stored.
func (m *Meter) Each() map[string]int64 {
	m.mu.Lock()
	defer m.mu.Unlock()
	all := make(map[string]int64, len(m.owners))
	for owner, o := range m.owners {
		all[owner] = o.bytes()
	}
	return all
}

// Used is the counted bytes of an owner: of all tables except the audit log, and of the audit log.
func (m *Meter) Used(owner string) (rows, log int64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if o := m.owners[owner]; o != nil {
		return o.rows, o.log
	}
	return 0, 0
}

// Commit adds what a transaction has added, after it is on disk.
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
		m.since.Add(max(0, u.bytes()))
		if o.rows < 0 { // more was subtracted than was added: the tables know
			o.stale = true
		}
	}
}

// MayStore refuses bytes for which an owner has no space, besides what the transaction has already
// added. beyond is by how many bytes the owner may exceed the quota.
func (m *Meter) MayStore(t *Tally, owner string, bytes, beyond int64) error {
	if t.uses == nil || owner == "" {
		return nil
	}
	used := m.used(owner)
	if u := t.uses[owner]; u != nil {
		used += u.bytes()
	}
	if err := m.overQuota(owner, used, bytes, beyond); err != nil {
		return err
	}
	err := m.belowFloor(owner, used, bytes, beyond)
	if err != nil {
		m.short.Store(&short{bytes, time.Now()})
	}
	return err
}

func (m *Meter) used(owner string) int64 {
	m.mu.Lock()
	defer m.mu.Unlock()
	if o := m.owners[owner]; o != nil {
		return o.bytes()
	}
	return 0
}

// refuse refuses bytes that would exceed an owner's quota, or the owner's share of the space.
func (m *Meter) refuse(owner string, used, bytes, beyond int64) error {
	if err := m.overQuota(owner, used, bytes, beyond); err != nil {
		return err
	}
	return m.belowFloor(owner, used, bytes, beyond)
}

const advice = "delete checkpoints, erase agents, "

// overQuota refuses bytes that would exceed an owner's quota.
func (m *Meter) overQuota(owner string, used, bytes, beyond int64) error {
	if most := m.MaxOwnerBytes; most > 0 && used+bytes > most+beyond {
		return ckpt.Errorf(ckpt.CodeQuota, "%s may store %d bytes, and would store %d: %sor let the policies keep less", owner, most, used+bytes, advice)
	}
	return nil
}

// belowFloor refuses bytes that would take the space that is kept for owners with little.
func (m *Meter) belowFloor(owner string, used, bytes, beyond int64) error {
	if m.FreeFloor == 0 {
		return nil
	}
	floor, minimum := m.inForce(m.total.Load())
	if left := m.left(floor); left >= 0 && left-bytes < floor && used+bytes > minimum+beyond {
		return ckpt.Errorf(ckpt.CodeQuota,
			"the last %s of free space are kept for users who store less than %s, and %s stores %s: %slet the policies keep less, or free space on the disk",
			phrase.Bytes(floor), phrase.Bytes(minimum), owner, phrase.Bytes(used), advice)
	}
	return nil
}

// tightBelow is the remaining space from which an exact count is worthwhile.
const tightBelow = 1 << 20

// Tight says whether an owner may have no space for an operation. Such an operation gets a
// transaction of its own, so that its refusal does not undo another owner's operation.
func (m *Meter) Tight(owner string, size int64) bool {
	if !m.On() || owner == "" {
		return false
	}
	return m.refuse(owner, m.used(owner), 2*size+tightBelow, 0) != nil
}

// Check counts the bytes that an operation has stored, and refuses the operation if that is more than its owner has space for. An
// operation that only removes, and shows that by carrying nothing, is never refused.
func (m *Meter) Check(t *Tally, before Use, owner string, stored, size int64, claim sqlite.Claim) error {
	if t.uses == nil || owner == "" {
		return nil
	}
	t.of(owner).rows += stored
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

// smallEnd is the most bytes with which an operation that ends something may exceed the quota.
const smallEnd = 8 << 10

// silentFor is for how long further refusals of an owner without space are not recorded: they would
// fill the log, for which the owner has no space either.
const silentFor = 10 * time.Second

// MayRecord says whether to record a refusal in the log, and how many refusals before it were not
// recorded.
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
