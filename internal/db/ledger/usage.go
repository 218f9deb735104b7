package ledger

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	ckpt "github.com/ckptsidecar/ckptsidecar"
	"github.com/ckptsidecar/ckptsidecar/internal/db/sqlite"
	"github.com/ckptsidecar/ckptsidecar/internal/osfile"
	"github.com/jmoiron/sqlx"
)

// usage is how many bytes each owner has stored, for the quota: of all that he
// causes, not of states alone. The writer counts what its statements store.
// What is removed is taken off where that is cheap to know; for the rest, what
// an owner has is counted anew (see recount) before he is refused anything.
//
// Without a quota nobody asks: nothing is counted, and a start looks at nothing.
type usage struct {
	on    bool
	share int64        // percent of his own bytes and the room that is left
	Room  atomic.Int64 // what is left for all, as last looked at; below 0 while that is not known

	Mu     sync.Mutex
	Owners map[string]*owned
}

// owned is what one owner has stored.
type owned struct {
	Rows    int64         // of all tables but the audit log
	Log     int64         // of the audit log: it is only added to
	added   int64         // all that was ever added to rows since the start
	counted time.Time     // when rows was last counted by looking
	took    time.Duration // for how long it was looked
	stale   bool          // rows is from before a fault: look again
	refused time.Time     // when a refusal was last recorded while he had no room
	silent  int64         // refusals since then that were not
}

func (o *owned) bytes() int64 { return max(0, o.Rows) + o.Log }

// rowCost is what a row takes beside its texts: its numbers, and its places in
// the indexes.
const rowCost = 100

// looseChange is how long a text of an UPDATE may be without being counted: an
// id, a time or a hash takes the place of another.
const looseChange = 64

// quotaMargin is how far beyond the quota an owner may go with what ends things
// or goes on: a run must come to its end, and a policy that keeps less be set.
func quotaMargin(most int64) int64 { return max(64<<10, most/16) }

// of is what is known of an owner. The lock is held.
func (u *usage) of(owner string) *owned {
	o := u.Owners[owner]
	if o == nil {
		o = &owned{}
		u.Owners[owner] = o
	}
	return o
}

// use is what a transaction adds to an owner's bytes.
type use struct{ rows, log int64 }

// stores says whether a statement puts something into a table.
func stores(query string) bool {
	verb, _, _ := strings.Cut(strings.TrimSpace(query), " ")
	return verb == "INSERT" || verb == "UPDATE" || verb == "REPLACE"
}

// count adds what a statement stores to what its operation has stored.
func (tx *Tx) count(s *statement, args []any) {
	if tx.uses == nil || !s.stores {
		return
	}
	if s.replaces {
		for _, arg := range args {
			tx.stored += max(0, LengthOf(arg)-looseChange)
		}
		return
	}
	tx.stored += rowCost
	for _, arg := range args {
		tx.stored += LengthOf(arg)
	}
}

// LengthOf is the length of an argument that is text or bytes, 0 of another.
func LengthOf(arg any) int64 {
	switch v := arg.(type) {
	case nil, int64, int, bool:
		return 0
	case string:
		return int64(len(v))
	case []byte:
		return int64(len(v))
	case ckpt.Ref:
		return int64(len(v))
	case ckpt.JSON:
		return int64(len(v))
	case ckpt.Time:
		return timeLength
	case ckpt.Labels:
		n := int64(2)
		for key, value := range v {
			n += int64(len(key)+len(value)) + 6
		}
		return n
	}
	if v := reflect.ValueOf(arg); v.Kind() == reflect.String || v.Kind() == reflect.Slice {
		return int64(v.Len())
	}
	return 0
}

const timeLength = 24 // of a time as it is stored

// logLength is what a row of the audit log takes.
func logLength(r *ckpt.AuditRow) int64 {
	return rowCost + timeLength + int64(len(r.Who)+len(r.Action)+len(r.Owner)+len(r.Agent)+len(r.Run)+len(r.Subject)+len(r.Outcome)+
		len(r.Reason)+len(r.Detail)+len(r.Prev)+len(r.Hash))
}

// logLengths is logLength in SQL.
var logLengths = lengths("at", "who", "action", "owner", "agent", "run", "subject", "outcome", "reason", "detail", "prev", "hash")

// lengths is what a row with these columns takes, in SQL. octet_length does not
// read what it measures.
func lengths(columns ...string) string {
	var b strings.Builder
	fmt.Fprint(&b, rowCost)
	for _, column := range columns {
		fmt.Fprintf(&b, " + coalesce(octet_length(%s), 0)", column)
	}
	return b.String()
}

// causedBy says whether an owner has caused a row of the audit log that is about
// him: not what an administrator does.
func causedBy(r *ckpt.AuditRow) bool {
	return r.Owner != "" && (r.Who == string(r.Owner) || r.Who == Daemon)
}

// useOf is what the transaction has added to an owner's bytes so far.
func (tx *Tx) useOf(owner string) *use {
	u := tx.uses[owner]
	if u == nil {
		u = &use{}
		tx.uses[owner] = u
	}
	return u
}

// usesOf is what the transaction has added to the bytes of an operation's owner
// so far.
func (tx *Tx) usesOf(o *Op) use {
	if tx.uses == nil || o.Entry.Owner == "" {
		return use{}
	}
	return *tx.useOf(o.Entry.Owner)
}

// CountOwner adds to an owner's bytes, once the transaction is on disk, what no
// statement shows: what was removed, and what was copied inside the database.
func (s *Core) CountOwner(tx *Tx, owner string, bytes int64) {
	if tx.uses != nil && bytes != 0 {
		tx.useOf(owner).rows += bytes
	}
}

// countUses takes in what a transaction has added, once it is on disk.
func (s *Core) countUses(uses map[string]*use) {
	if len(uses) == 0 {
		return
	}
	s.Usage.Mu.Lock()
	defer s.Usage.Mu.Unlock()
	for owner, u := range uses {
		o := s.Usage.of(owner)
		o.Rows += u.rows
		o.Log += u.log
		o.added += max(0, u.rows)
	}
}

// MayStore refuses what an owner has no room for, beside what the transaction
// has added already. beyond is how far he may go beyond his quota.
func (s *Core) MayStore(tx *Tx, owner string, bytes, beyond int64) error {
	if tx.uses == nil || owner == "" {
		return nil
	}
	used := s.used(owner)
	if u := tx.uses[owner]; u != nil {
		used += u.rows + u.log
	}
	return s.room(owner, used, bytes, beyond)
}

func (s *Core) used(owner string) int64 {
	s.Usage.Mu.Lock()
	defer s.Usage.Mu.Unlock()
	if o := s.Usage.Owners[owner]; o != nil {
		return o.bytes()
	}
	return 0
}

// room refuses bytes that would bring an owner beyond his quota, or beyond his
// share of what all have together.
func (s *Core) room(owner string, used, bytes, beyond int64) error {
	const advice = "delete checkpoints, erase agents, or shorten what the policies keep"
	if most := s.Opt.MaxOwnerBytes; most > 0 && used+bytes > most+beyond {
		return ckpt.Errorf(ckpt.CodeQuota, "%s has %d of %d bytes stored, and this needs %d: %s", owner, used, most, bytes, advice)
	}
	left, share := s.Usage.Room.Load(), s.Usage.share
	if share == 0 || left < 0 {
		return nil
	}
	left = max(0, left-bytes)
	if most := (used + bytes + left) / 100 * share; used+bytes > most+beyond {
		return ckpt.Errorf(ckpt.CodeQuota, "%s has %d bytes stored, and %d are left for all: this needs %d, and one owner may have %d%% of both together; %s",
			owner, used, left, bytes, share, advice)
	}
	return nil
}

// tightBelow is how much room makes it worth to look closely.
const tightBelow = 1 << 20

// isTight says whether an owner may have no room for an operation. Such a one has
// a transaction of its own, so that nobody else's is undone with it.
func (s *Core) isTight(o *Op) bool {
	owner := o.Entry.Owner
	if !s.Usage.on || owner == "" {
		return false
	}
	return s.room(owner, s.used(owner), 2*o.Size+tightBelow, 0) != nil
}

// checkUse refuses an operation that has stored more than its owner has room
// for. What only removes, and says so by carrying nothing, always may.
func (s *Core) checkUse(tx *Tx, o *Op, before use) error {
	owner := o.Entry.Owner
	if tx.uses == nil || owner == "" {
		return nil
	}
	tx.useOf(owner).rows += tx.stored
	now := tx.usesOf(o)
	if o.Claim == sqlite.Frees && o.Size == 0 {
		return nil
	}
	if grown := now.rows + now.log - before.rows - before.log; grown <= 0 {
		return nil
	}
	beyond := int64(0)
	if o.Claim != sqlite.Adds && o.Size <= smallEnd {
		beyond = quotaMargin(s.Opt.MaxOwnerBytes)
	}
	return s.MayStore(tx, owner, 0, beyond)
}

// smallEnd is how much the end of something may carry to be let beyond the quota.
const smallEnd = 8 << 10

// silentFor is how long refusals of an owner without room are not recorded after
// one that was: they would fill the log for which he has no room either.
const silentFor = 10 * time.Second

// mayRecord says whether a refusal goes into the log, and how many before it
// did not.
func (s *Core) mayRecord(owner string) (may bool, silent int64) {
	if !s.Usage.on || s.room(owner, s.used(owner), tightBelow, 0) == nil {
		return true, 0
	}
	now := time.Now()
	s.Usage.Mu.Lock()
	defer s.Usage.Mu.Unlock()
	o := s.Usage.of(owner)
	if !o.refused.IsZero() && now.Sub(o.refused) < silentFor {
		o.silent++
		return false, 0
	}
	silent, o.refused, o.silent = o.silent, now, 0
	return true, silent
}

// recordable is mayRecord for an entry of a refusal, which then says how many
// were not recorded.
func (s *Core) recordable(e *AuditEntry) bool {
	may, silent := s.mayRecord(e.Owner)
	if silent > 0 {
		e.Detail = map[string]any{"not_recorded_before": silent}
	}
	return may
}

// usageKey is where what was counted is kept between two daemons.
const usageKey = "usage"

// keptUsage is what was counted up to a row of the audit log.
type keptUsage struct {
	N      int64               `json:"n"`
	Owners map[string][2]int64 `json:"owners"` // rows and log
}

// loadUsage takes up what the last daemon has counted. Where there is nothing of
// it, all is counted. The rows of the audit log that came after it are counted in
// any case; where there are some, what owners have beside is looked at anew soon.
func (s *Core) loadUsage(ctx context.Context) error {
	u := &s.Usage
	u.share = int64(s.Opt.OwnerShare)
	u.Room.Store(-1)
	if u.on = s.Opt.MaxOwnerBytes > 0 || u.share > 0; !u.on {
		return nil
	}
	u.Owners = map[string]*owned{}
	var text string
	var kept keptUsage
	err := s.Engine.Writing().GetContext(ctx, &text, `SELECT value FROM meta WHERE key = ?`, usageKey)
	if err != nil && !IsNoRows(err) {
		return err
	}
	known := err == nil && json.Unmarshal([]byte(text), &kept) == nil && kept.Owners != nil
	if !known {
		kept = keptUsage{}
	}
	for owner, of := range kept.Owners {
		*u.of(owner) = owned{Rows: of[0], Log: of[1]}
	}
	return s.loadRest(ctx, kept.N, known)
}

// loadRest counts what loadUsage did not find counted.
func (s *Core) loadRest(ctx context.Context, after int64, known bool) error {
	var rows []struct {
		Owner string `db:"owner"`
		Bytes int64  `db:"bytes"`
	}
	err := s.Engine.Writing().SelectContext(ctx, &rows, `SELECT owner, sum(`+logLengths+`) AS bytes FROM audit_log
		WHERE n > ? AND (who = owner OR who = '`+Daemon+`') AND owner IS NOT NULL GROUP BY owner`, after)
	if err != nil {
		return err
	}
	for _, row := range rows {
		o := s.Usage.of(row.Owner)
		o.Log += row.Bytes
		o.stale = true
	}
	if known {
		return nil
	}
	var owners []string
	if err := s.Engine.Writing().SelectContext(ctx, &owners, `SELECT DISTINCT owner FROM agents`); err != nil {
		return err
	}
	for _, owner := range owners {
		begin := time.Now()
		bytes, err := StoredBy(ctx, s.Engine.Writing(), owner)
		if err != nil {
			return err
		}
		o := s.Usage.of(owner)
		o.Rows, o.counted, o.took, o.stale = bytes, time.Now(), time.Since(begin), false
	}
	return nil
}

// keepUsage writes down what was counted.
func (s *Core) keepUsage() error {
	if !s.Usage.on || s.Engine.ReadOnly() != "" {
		return nil
	}
	return s.Submit(&Op{Owner: Daemon, Claim: sqlite.GoesOn, Do: func(tx *Tx) error {
		kept := keptUsage{N: tx.Head.N, Owners: map[string][2]int64{}}
		s.Usage.Mu.Lock()
		for owner, o := range s.Usage.Owners {
			if !o.stale {
				kept.Owners[owner] = [2]int64{o.Rows, o.Log}
			} else {
				kept.N = 0 // it is counted anew
			}
		}
		s.Usage.Mu.Unlock()
		for owner, u := range tx.uses { // of others in the same transaction
			of := kept.Owners[owner]
			kept.Owners[owner] = [2]int64{of[0] + u.rows, of[1] + u.log}
		}
		if kept.N == 0 {
			return tx.Exec(`DELETE FROM meta WHERE key = ?`, usageKey)
		}
		text, err := json.Marshal(kept)
		if err != nil {
			return err
		}
		return tx.Exec(`INSERT INTO meta (key, value) VALUES (?, ?) ON CONFLICT (key) DO UPDATE SET value = excluded.value`, usageKey, string(text))
	}})
}

// recountEvery bounds how often what an owner has is counted by looking: after so
// many times what it took, and not within a second.
const recountEvery = 50

// recountIfTight counts what an owner has before he may be refused something.
func (s *Core) recountIfTight(o *Op) {
	if o.Claim == sqlite.Frees || !s.isTight(o) || !s.recountDue(o.Entry.Owner) {
		return
	}
	s.RecountAfter(context.Background(), o.Entry.Owner)
}

// recountDue says whether to look at what an owner has. Nobody else does for now.
func (s *Core) recountDue(owner string) bool {
	s.Usage.Mu.Lock()
	defer s.Usage.Mu.Unlock()
	o, now := s.Usage.of(owner), time.Now()
	if now.Sub(o.counted) < max(time.Second, recountEvery*o.took) {
		return false
	}
	o.counted = now
	return true
}

// Recount counts by looking. What is added meanwhile may count twice until the
// next time.
func (s *Core) Recount(ctx context.Context, owner string) error {
	begin := time.Now()
	s.Usage.Mu.Lock()
	before := s.Usage.of(owner).added
	s.Usage.Mu.Unlock()
	var bytes int64
	err := s.Reading(ctx, func(q *sqlx.Tx) (err error) {
		bytes, err = StoredBy(ctx, q, owner)
		return err
	})
	if err != nil {
		return err
	}
	s.Usage.Mu.Lock()
	defer s.Usage.Mu.Unlock()
	o := s.Usage.of(owner)
	o.Rows, o.stale = bytes+o.added-before, false
	o.counted, o.took = time.Now(), time.Since(begin)
	return nil
}

// RecountAfter counts anew after so much has gone that it is worth to look.
func (s *Core) RecountAfter(ctx context.Context, owner string) {
	if !s.Usage.on {
		return
	}
	if err := s.Recount(ctx, owner); err != nil {
		s.Log.Warn("what an owner has stored could not be counted", "owner", owner, "error", err)
	}
}

// recountStale counts one of those whose count is from before a fault.
func (s *Core) recountStale(ctx context.Context) {
	if !s.Usage.on {
		return
	}
	stale := ""
	s.Usage.Mu.Lock()
	for owner, o := range s.Usage.Owners {
		if o.stale {
			stale = owner
			break
		}
	}
	s.Usage.Mu.Unlock()
	if stale != "" {
		s.RecountAfter(ctx, stale)
	}
}

// OfRuns is what belongs to runs, by table: the columns that have a length of
// their own. What a run's states take is in its own row.
var OfRuns = map[string]string{
	"checkpoints":       lengths("id", "kind", "parent", "created_at", "sha256", "content_type", "labels", "metadata", "step", "operation", "program", "pieces"),
	"steps":             lengths("key", "name", "status", "args", "result", "error", "started_at", "ended_at", "sig", "res", "cause"),
	"operations":        lengths("key", "name", "status", "checkpoint", "started_at", "ended_at", "result", "error"),
	"events":            lengths("at", "type", "payload"),
	"findings":          lengths("id", "at", "rule", "severity", "message", "advice", "evidence", "checkpoint", "closed", "closed_at", "dismissed_at", "dismissed_by"),
	"prompts":           lengths("id", "at", "question", "reason", "checkpoint", "memory_diff", "choice", "answered_at", "answered_by"),
	"graph_writes":      lengths("checkpoint", "task", "path", "channel", "type", "data"),
	"graph_checkpoints": lengths("id", "parent", "channels"),
	"graph_threads":     lengths("thread", "ns"),
}

var (
	ofRun = lengths("name", "status", "started_at", "updated_at", "ended_at", "head", "workflow", "parent_run", "forked_from", "goal", "first_goal",
		"continuation_prompt", "external_session", "labels", "result", "error") + " + stored_bytes"
	ofAgent = lengths("owner", "name", "created_at", "policy", "policy_at")
	OfKey   = lengths("key", "fingerprint", "reply", "created_at")
)

// sumOf is a query for what the runs that a condition names take, with all that
// belongs to them.
func sumOf(runs string) string {
	parts := []string{`SELECT sum(` + ofRun + `) AS bytes FROM runs WHERE id IN (` + runs + `)`}
	for _, table := range sortedTables {
		parts = append(parts, `SELECT sum(`+OfRuns[table]+`) FROM `+table+` WHERE run_id IN (`+runs+`)`)
	}
	return `SELECT coalesce(sum(bytes), 0) FROM (` + strings.Join(parts, " UNION ALL ") + `)`
}

var (
	sortedTables = slices.Sorted(maps.Keys(OfRuns))
	sumOfOwner   = sumOf(`SELECT r.id FROM runs r JOIN agents a ON a.id = r.agent_id WHERE a.owner = ?1`)
	sumOfAgent   = sumOf(`SELECT id FROM runs WHERE agent_id = ?1`)
	sumOfRun     = sumOf(`?1`)
)

// StoredBy is what an owner has stored, by looking at all of it but the audit
// log.
func StoredBy(ctx context.Context, q sqlx.QueryerContext, owner string) (bytes int64, err error) {
	if err := sqlx.GetContext(ctx, q, &bytes, sumOfOwner, owner); err != nil {
		return 0, err
	}
	var rest int64
	err = sqlx.GetContext(ctx, q, &rest, `SELECT coalesce((SELECT sum(`+ofAgent+`) FROM agents WHERE owner = ?1), 0)
		+ coalesce((SELECT sum(`+OfKey+`) FROM idempotency WHERE agent_id IN (SELECT id FROM agents WHERE owner = ?1)), 0)`, owner)
	return bytes + rest, err
}

// freeRun takes what a run has off its owner's bytes, before all of it goes.
func (s *Core) freeRun(tx *Tx, owner string, id int64) error {
	return s.free(tx, owner, sumOfRun, id)
}

// FreeAgent is freeRun for all of an agent.
func (s *Core) FreeAgent(tx *Tx, agent *AgentRow) error {
	if err := s.free(tx, agent.Owner, sumOfAgent, agent.ID); err != nil {
		return err
	}
	return s.free(tx, agent.Owner, `SELECT coalesce((SELECT sum(`+ofAgent+`) FROM agents WHERE id = ?1), 0)
		+ coalesce((SELECT sum(`+OfKey+`) FROM idempotency WHERE agent_id = ?1), 0)`, agent.ID)
}

func (s *Core) free(tx *Tx, owner, query string, id int64) error {
	if tx.uses == nil {
		return nil
	}
	var bytes int64
	if _, err := tx.Get(&bytes, query, id); err != nil {
		return err
	}
	s.CountOwner(tx, owner, -bytes)
	return nil
}

// lookAtRoom looks how much room is left for all: on the disk, and in the
// database where it has a limit.
func (s *Core) lookAtRoom() {
	if s.Usage.share == 0 {
		return
	}
	left := int64(-1)
	if free, _, err := osfile.DiskSpace(filepath.Dir(s.Opt.Path)); err == nil {
		left = free
	}
	var unused int64
	if s.Opt.MaxBytes > 0 && s.RO.Get(&unused, `PRAGMA freelist_count`) == nil {
		size, _ := s.Engine.Sizes()
		in := max(0, s.Opt.MaxBytes-size+unused*sqlite.PageSize)
		if left < 0 || in < left {
			left = in
		}
	}
	s.Usage.Room.Store(left)
}
