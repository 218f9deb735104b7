package db

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
	room  atomic.Int64 // what is left for all, as last looked at; below 0 while that is not known

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
	o := u.owners[owner]
	if o == nil {
		o = &owned{}
		u.owners[owner] = o
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
func (tx *tx) count(s statement, args []any) {
	if tx.uses == nil || !s.stores {
		return
	}
	if s.replaces {
		for _, arg := range args {
			tx.stored += max(0, lengthOf(arg)-looseChange)
		}
		return
	}
	tx.stored += rowCost
	for _, arg := range args {
		tx.stored += lengthOf(arg)
	}
}

// lengthOf is the length of an argument that is text or bytes, 0 of another.
func lengthOf(arg any) int64 {
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
	return r.Owner != "" && (r.Who == string(r.Owner) || r.Who == daemon)
}

// useOf is what the transaction has added to an owner's bytes so far.
func (tx *tx) useOf(owner string) *use {
	u := tx.uses[owner]
	if u == nil {
		u = &use{}
		tx.uses[owner] = u
	}
	return u
}

// usesOf is what the transaction has added to the bytes of an operation's owner
// so far.
func (tx *tx) usesOf(o *op) use {
	if tx.uses == nil || o.entry.Owner == "" {
		return use{}
	}
	return *tx.useOf(o.entry.Owner)
}

// countOwner adds to an owner's bytes, once the transaction is on disk, what no
// statement shows: what was removed, and what was copied inside the database.
func (s *core) countOwner(tx *tx, owner string, bytes int64) {
	if tx.uses != nil && bytes != 0 {
		tx.useOf(owner).rows += bytes
	}
}

// countUses takes in what a transaction has added, once it is on disk.
func (s *core) countUses(uses map[string]*use) {
	if len(uses) == 0 {
		return
	}
	s.usage.mu.Lock()
	defer s.usage.mu.Unlock()
	for owner, u := range uses {
		o := s.usage.of(owner)
		o.rows += u.rows
		o.log += u.log
		o.added += max(0, u.rows)
	}
}

// mayStore refuses what an owner has no room for, beside what the transaction
// has added already. beyond is how far he may go beyond his quota.
func (s *core) mayStore(tx *tx, owner string, bytes, beyond int64) error {
	if tx.uses == nil || owner == "" {
		return nil
	}
	used := s.used(owner)
	if u := tx.uses[owner]; u != nil {
		used += u.rows + u.log
	}
	return s.room(owner, used, bytes, beyond)
}

func (s *core) used(owner string) int64 {
	s.usage.mu.Lock()
	defer s.usage.mu.Unlock()
	if o := s.usage.owners[owner]; o != nil {
		return o.bytes()
	}
	return 0
}

// room refuses bytes that would bring an owner beyond his quota, or beyond his
// share of what all have together.
func (s *core) room(owner string, used, bytes, beyond int64) error {
	const advice = "delete checkpoints, erase agents, or shorten what the policies keep"
	if most := s.opt.MaxOwnerBytes; most > 0 && used+bytes > most+beyond {
		return ckpt.Errorf(ckpt.CodeQuota, "%s has %d of %d bytes stored, and this needs %d: %s", owner, used, most, bytes, advice)
	}
	left, share := s.usage.room.Load(), s.usage.share
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
func (s *core) isTight(o *op) bool {
	owner := o.entry.Owner
	if !s.usage.on || owner == "" {
		return false
	}
	return s.room(owner, s.used(owner), 2*o.size+tightBelow, 0) != nil
}

// checkUse refuses an operation that has stored more than its owner has room
// for. What only removes, and says so by carrying nothing, always may.
func (s *core) checkUse(tx *tx, o *op, before use) error {
	owner := o.entry.Owner
	if tx.uses == nil || owner == "" {
		return nil
	}
	tx.useOf(owner).rows += tx.stored
	now := tx.usesOf(o)
	if o.claim == sqlite.Frees && o.size == 0 {
		return nil
	}
	if grown := now.rows + now.log - before.rows - before.log; grown <= 0 {
		return nil
	}
	beyond := int64(0)
	if o.claim != sqlite.Adds && o.size <= smallEnd {
		beyond = quotaMargin(s.opt.MaxOwnerBytes)
	}
	return s.mayStore(tx, owner, 0, beyond)
}

// smallEnd is how much the end of something may carry to be let beyond the quota.
const smallEnd = 8 << 10

// silentFor is how long refusals of an owner without room are not recorded after
// one that was: they would fill the log for which he has no room either.
const silentFor = 10 * time.Second

// mayRecord says whether a refusal goes into the log, and how many before it
// did not.
func (s *core) mayRecord(owner string) (may bool, silent int64) {
	if !s.usage.on || s.room(owner, s.used(owner), tightBelow, 0) == nil {
		return true, 0
	}
	now := time.Now()
	s.usage.mu.Lock()
	defer s.usage.mu.Unlock()
	o := s.usage.of(owner)
	if !o.refused.IsZero() && now.Sub(o.refused) < silentFor {
		o.silent++
		return false, 0
	}
	silent, o.refused, o.silent = o.silent, now, 0
	return true, silent
}

// recordable is mayRecord for an entry of a refusal, which then says how many
// were not recorded.
func (s *core) recordable(e *auditEntry) bool {
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
func (s *core) loadUsage(ctx context.Context) error {
	u := &s.usage
	u.share = int64(s.opt.OwnerShare)
	u.room.Store(-1)
	if u.on = s.opt.MaxOwnerBytes > 0 || u.share > 0; !u.on {
		return nil
	}
	u.owners = map[string]*owned{}
	var text string
	var kept keptUsage
	err := s.engine.Writing().GetContext(ctx, &text, `SELECT value FROM meta WHERE key = ?`, usageKey)
	if err != nil && !isNoRows(err) {
		return err
	}
	known := err == nil && json.Unmarshal([]byte(text), &kept) == nil && kept.Owners != nil
	if !known {
		kept = keptUsage{}
	}
	for owner, of := range kept.Owners {
		*u.of(owner) = owned{rows: of[0], log: of[1]}
	}
	return s.loadRest(ctx, kept.N, known)
}

// loadRest counts what loadUsage did not find counted.
func (s *core) loadRest(ctx context.Context, after int64, known bool) error {
	var rows []struct {
		Owner string `db:"owner"`
		Bytes int64  `db:"bytes"`
	}
	err := s.engine.Writing().SelectContext(ctx, &rows, `SELECT owner, sum(`+logLengths+`) AS bytes FROM audit_log
		WHERE n > ? AND (who = owner OR who = '`+daemon+`') AND owner IS NOT NULL GROUP BY owner`, after)
	if err != nil {
		return err
	}
	for _, row := range rows {
		o := s.usage.of(row.Owner)
		o.log += row.Bytes
		o.stale = true
	}
	if known {
		return nil
	}
	var owners []string
	if err := s.engine.Writing().SelectContext(ctx, &owners, `SELECT DISTINCT owner FROM agents`); err != nil {
		return err
	}
	for _, owner := range owners {
		begin := time.Now()
		bytes, err := storedBy(ctx, s.engine.Writing(), owner)
		if err != nil {
			return err
		}
		o := s.usage.of(owner)
		o.rows, o.counted, o.took, o.stale = bytes, time.Now(), time.Since(begin), false
	}
	return nil
}

// keepUsage writes down what was counted.
func (s *core) keepUsage() error {
	if !s.usage.on || s.engine.ReadOnly() != "" {
		return nil
	}
	return s.write(&op{owner: daemon, claim: sqlite.GoesOn, apply: func(tx *tx) error {
		kept := keptUsage{N: tx.head.n, Owners: map[string][2]int64{}}
		s.usage.mu.Lock()
		for owner, o := range s.usage.owners {
			if !o.stale {
				kept.Owners[owner] = [2]int64{o.rows, o.log}
			} else {
				kept.N = 0 // it is counted anew
			}
		}
		s.usage.mu.Unlock()
		for owner, u := range tx.uses { // of others in the same transaction
			of := kept.Owners[owner]
			kept.Owners[owner] = [2]int64{of[0] + u.rows, of[1] + u.log}
		}
		if kept.N == 0 {
			return tx.exec(`DELETE FROM meta WHERE key = ?`, usageKey)
		}
		text, err := json.Marshal(kept)
		if err != nil {
			return err
		}
		return tx.exec(`INSERT INTO meta (key, value) VALUES (?, ?) ON CONFLICT (key) DO UPDATE SET value = excluded.value`, usageKey, string(text))
	}})
}

// recountEvery bounds how often what an owner has is counted by looking: after so
// many times what it took, and not within a second.
const recountEvery = 50

// recountIfTight counts what an owner has before he may be refused something.
func (s *core) recountIfTight(o *op) {
	if o.claim == sqlite.Frees || !s.isTight(o) || !s.recountDue(o.entry.Owner) {
		return
	}
	s.recountAfter(context.Background(), o.entry.Owner)
}

// recountDue says whether to look at what an owner has. Nobody else does for now.
func (s *core) recountDue(owner string) bool {
	s.usage.mu.Lock()
	defer s.usage.mu.Unlock()
	o, now := s.usage.of(owner), time.Now()
	if now.Sub(o.counted) < max(time.Second, recountEvery*o.took) {
		return false
	}
	o.counted = now
	return true
}

// recount counts by looking. What is added meanwhile may count twice until the
// next time.
func (s *core) recount(ctx context.Context, owner string) error {
	begin := time.Now()
	s.usage.mu.Lock()
	before := s.usage.of(owner).added
	s.usage.mu.Unlock()
	var bytes int64
	err := s.reading(ctx, func(q *sqlx.Tx) (err error) {
		bytes, err = storedBy(ctx, q, owner)
		return err
	})
	if err != nil {
		return err
	}
	s.usage.mu.Lock()
	defer s.usage.mu.Unlock()
	o := s.usage.of(owner)
	o.rows, o.stale = bytes+o.added-before, false
	o.counted, o.took = time.Now(), time.Since(begin)
	return nil
}

// recountAfter counts anew after so much has gone that it is worth to look.
func (s *core) recountAfter(ctx context.Context, owner string) {
	if !s.usage.on {
		return
	}
	if err := s.recount(ctx, owner); err != nil {
		s.log.Warn("what an owner has stored could not be counted", "owner", owner, "error", err)
	}
}

// recountStale counts one of those whose count is from before a fault.
func (s *core) recountStale(ctx context.Context) {
	if !s.usage.on {
		return
	}
	stale := ""
	s.usage.mu.Lock()
	for owner, o := range s.usage.owners {
		if o.stale {
			stale = owner
			break
		}
	}
	s.usage.mu.Unlock()
	if stale != "" {
		s.recountAfter(ctx, stale)
	}
}

// ofRuns is what belongs to runs, by table: the columns that have a length of
// their own. What a run's states take is in its own row.
var ofRuns = map[string]string{
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
	ofKey   = lengths("key", "fingerprint", "reply", "created_at")
)

// sumOf is a query for what the runs that a condition names take, with all that
// belongs to them.
func sumOf(runs string) string {
	parts := []string{`SELECT sum(` + ofRun + `) AS bytes FROM runs WHERE id IN (` + runs + `)`}
	for _, table := range sortedTables {
		parts = append(parts, `SELECT sum(`+ofRuns[table]+`) FROM `+table+` WHERE run_id IN (`+runs+`)`)
	}
	return `SELECT coalesce(sum(bytes), 0) FROM (` + strings.Join(parts, " UNION ALL ") + `)`
}

var (
	sortedTables = slices.Sorted(maps.Keys(ofRuns))
	sumOfOwner   = sumOf(`SELECT r.id FROM runs r JOIN agents a ON a.id = r.agent_id WHERE a.owner = ?1`)
	sumOfAgent   = sumOf(`SELECT id FROM runs WHERE agent_id = ?1`)
	sumOfRun     = sumOf(`?1`)
)

// storedBy is what an owner has stored, by looking at all of it but the audit
// log.
func storedBy(ctx context.Context, q sqlx.QueryerContext, owner string) (bytes int64, err error) {
	if err := sqlx.GetContext(ctx, q, &bytes, sumOfOwner, owner); err != nil {
		return 0, err
	}
	var rest int64
	err = sqlx.GetContext(ctx, q, &rest, `SELECT coalesce((SELECT sum(`+ofAgent+`) FROM agents WHERE owner = ?1), 0)
		+ coalesce((SELECT sum(`+ofKey+`) FROM idempotency WHERE agent_id IN (SELECT id FROM agents WHERE owner = ?1)), 0)`, owner)
	return bytes + rest, err
}

// freeRun takes what a run has off its owner's bytes, before all of it goes.
func (s *core) freeRun(tx *tx, owner string, id int64) error {
	return s.free(tx, owner, sumOfRun, id)
}

// freeAgent is freeRun for all of an agent.
func (s *core) freeAgent(tx *tx, agent *agentRow) error {
	if err := s.free(tx, agent.Owner, sumOfAgent, agent.ID); err != nil {
		return err
	}
	return s.free(tx, agent.Owner, `SELECT coalesce((SELECT sum(`+ofAgent+`) FROM agents WHERE id = ?1), 0)
		+ coalesce((SELECT sum(`+ofKey+`) FROM idempotency WHERE agent_id = ?1), 0)`, agent.ID)
}

func (s *core) free(tx *tx, owner, query string, id int64) error {
	if tx.uses == nil {
		return nil
	}
	var bytes int64
	if _, err := tx.get(&bytes, query, id); err != nil {
		return err
	}
	s.countOwner(tx, owner, -bytes)
	return nil
}

// lookAtRoom looks how much room is left for all: on the disk, and in the
// database where it has a limit.
func (s *core) lookAtRoom() {
	if s.usage.share == 0 {
		return
	}
	left := int64(-1)
	if free, _, err := osfile.DiskSpace(filepath.Dir(s.opt.Path)); err == nil {
		left = free
	}
	var unused int64
	if s.opt.MaxBytes > 0 && s.ro.Get(&unused, `PRAGMA freelist_count`) == nil {
		size, _ := s.engine.Sizes()
		in := max(0, s.opt.MaxBytes-size+unused*sqlite.PageSize)
		if left < 0 || in < left {
			left = in
		}
	}
	s.usage.room.Store(left)
}
