package db

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	ckpt "github.com/ckptsidecar/ckptsidecar"
	"github.com/ckptsidecar/ckptsidecar/internal/db/ledger"
	"github.com/ckptsidecar/ckptsidecar/internal/drift/phrase"
	"github.com/jmoiron/sqlx"
)

// Status is the state of the store, with counts of the rows that the scope may see.
func (s *Store) Status(ctx context.Context, sc ckpt.Scope) (*ckpt.Status, error) {
	s.AuditRead(sc, "status", "", "")
	if sc.Admin && sc.Target == "" {
		sc.Target = ckpt.AllOwners
	}
	st := &ckpt.Status{Version: s.Opt.Version, Now: ckpt.At(s.Opt.Now()), State: "ready", Problems: []string{},
		Counts: map[ckpt.Kind]int64{}, Notify: ckpt.NotifyStatus{Hooks: []ckpt.HookStatus{}}}
	for _, kind := range ckpt.Kinds {
		st.Counts[kind] = 0
	}
	err := s.Reading(ctx, func(q *sqlx.Tx) error {
		if err := countOwned(ctx, q, sc.Whose(), st); err != nil {
			return err
		}
		if err := s.countWaiting(ctx, q, sc.Whose(), st); err != nil {
			return err
		}
		if err := s.DriftStatus(ctx, q, sc.Whose(), &st.Drift); err != nil {
			return err
		}
		return s.databaseStatus(ctx, q, &st.Database)
	})
	if err != nil {
		return nil, err
	}
	st.Writer = s.Engine.WriterStatus()
	s.quotas(sc.Whose(), st)
	s.problems(st)
	if !sc.Admin { // the sizes would show how much other users write
		st.Writer, st.Drift.Watched = ckpt.WriterStatus{}, 0
		d := &st.Database
		d.AuditRows, d.AuditHead, d.Damaged, d.Bytes, d.WALBytes, d.FreeBytes, d.WALPending = 0, "", 0, 0, 0, 0, 0
	}
	return st, nil
}

// Health is the state of the store and its problems, as in Status, without a query to the database.
func (s *Store) Health() (state string, problems []string) {
	st := &ckpt.Status{State: "ready"}
	s.problems(st)
	return st.State, st.Problems
}

// countOwned counts what an owner has, without reading every checkpoint: runs store how many
// checkpoints they have, and the rarer kinds have indexes of their own.
func countOwned(ctx context.Context, q *sqlx.Tx, owner string, st *ckpt.Status) error {
	var agents, checkpoints int64
	err := q.QueryRowContext(ctx, `SELECT count(*), count(*) FILTER (WHERE owner = ?1 OR ?1 = '*') FROM agents`, owner).Scan(&agents, &st.Agents)
	if err != nil {
		return err
	}
	owned := `r.agent_id IN (SELECT id FROM agents WHERE owner = ?1)`
	if st.Agents == agents { // then one scan of all runs is shorter than a lookup for each agent
		owned = `?1 <> ''`
	}
	st.Waiting.RunsByStatus = make(map[ckpt.RunStatus]int64, len(ckpt.RunStatuses))
	for _, status := range ckpt.RunStatuses {
		st.Waiting.RunsByStatus[status] = 0
	}
	var runs []struct {
		Status                    ckpt.RunStatus
		Runs, Stored, Checkpoints int64
	}
	err = q.SelectContext(ctx, &runs,
		`SELECT `+ledger.ShownStatus+` AS status, count(*) AS runs, sum(r.stored_bytes) AS stored, sum(r.last_seq - r.removed) AS checkpoints
		FROM runs r WHERE `+owned+` GROUP BY 1`, owner)
	if err != nil {
		return err
	}
	for _, r := range runs {
		st.Waiting.RunsByStatus[r.Status] = r.Runs
		st.Runs, st.Stored, checkpoints = st.Runs+r.Runs, st.Stored+r.Stored, checkpoints+r.Checkpoints
	}
	err = q.GetContext(ctx, &st.Files, `SELECT coalesce(sum(length(c.data)), 0) FROM agents a
		CROSS JOIN contents c ON c.agent_id = a.id WHERE a.owner = ?1 OR ?1 = '*'`, owner)
	if err != nil {
		return err
	}
	err = q.GetContext(ctx, &st.LeftOut, countLeftOut, owner)
	if err != nil {
		return err
	}
	for kind, index := range map[ckpt.Kind]string{ckpt.KindRecovery: "checkpoints_by_age", ckpt.KindPreOperation: "checkpoints_before"} {
		var count int64
		query := `SELECT count(*) FROM runs r CROSS JOIN checkpoints c INDEXED BY checkpoints_of_run ON c.run_id = r.id
			WHERE c.kind = '` + string(kind) + `' AND ` + owned
		if st.Agents == agents { // no row of a run or a checkpoint is read
			query = `SELECT count(*) FROM checkpoints INDEXED BY ` + index + ` WHERE kind = '` + string(kind) + `' AND ?1 <> ''`
		}
		err := q.GetContext(ctx, &count, query, owner)
		if err != nil {
			return err
		}
		st.Counts[kind] = count
		checkpoints -= count
	}
	st.Counts[ckpt.KindRoutine] = checkpoints
	return nil
}

// countWaiting counts what waits for a person on this host. It uses indexes that hold nothing else.
func (s *Store) countWaiting(ctx context.Context, q *sqlx.Tx, owner string, st *ckpt.Status) error {
	elsewhere := s.ElsewhereIDs()
	if err := q.GetContext(ctx, &st.Waiting.UncertainOperations, countUncertain, owner, elsewhere); err != nil {
		return err
	}
	return q.GetContext(ctx, &st.Waiting.OpenPrompts, countPrompts, owner, elsewhere, st.Now)
}

// countLeftOut counts the files that the newest tree of each folder of an agent leaves out.
const countLeftOut = `SELECT coalesce(sum(json_array_length(t.left_out)), 0) FROM trees t
	WHERE t.id IN (SELECT max(n.id) FROM trees n JOIN agents a ON a.id = n.agent_id
	WHERE n.sha256 IS NOT NULL AND (a.owner = ?1 OR ?1 = '*') GROUP BY n.agent_id, n.root)`

const (
	ofOwner = ` CROSS JOIN runs r ON r.id = x.run_id JOIN agents a ON a.id = r.agent_id WHERE (a.owner = ?1 OR ?1 = '*')
		AND x.run_id NOT IN (SELECT value FROM json_each(?2))`
	countUncertain = `SELECT count(*) FROM operations x INDEXED BY operations_uncertain` + ofOwner + ` AND x.status = 'uncertain'`
	countPrompts   = `SELECT count(*) FROM prompts x INDEXED BY prompts_waiting` + ofOwner +
		` AND x.answered_at IS NULL AND (x.expires_at IS NULL OR x.expires_at > ?3)`
)

func (s *Store) databaseStatus(ctx context.Context, q *sqlx.Tx, d *ckpt.DatabaseStatus) error {
	var free int64
	err := q.QueryRowContext(ctx, `SELECT (SELECT user_version FROM pragma_user_version()), sqlite_version(),
		(SELECT freelist_count FROM pragma_freelist_count()), n, hash FROM audit_head`).
		Scan(&d.SchemaVersion, &d.SQLite, &free, &d.AuditRows, &d.AuditHead)
	d.Path, d.ID, d.MaxBytes = s.Opt.Path, s.ID, s.Opt.MaxBytes
	d.Bytes, d.WALBytes = s.Engine.Sizes()
	log := s.Engine.LogStatus()
	d.FreeBytes, d.WALPending, d.WALFailures = free*s.Engine.PageSize(), log.Pending, log.Failures
	d.Damaged = int64(s.Damages.Count())
	if !log.Last.IsZero() {
		d.LastWALCheckpoint = ckpt.At(log.Last)
	}
	return err
}

// quotas adds what users store, as their quotas count it.
func (s *Store) quotas(owner string, st *ckpt.Status) {
	st.Quotas = []ckpt.QuotaStatus{}
	for who, bytes := range s.Usage.Each() {
		if who == owner || owner == ckpt.AllOwners {
			st.Quotas = append(st.Quotas, ckpt.QuotaStatus{Owner: who, Bytes: bytes, MaxBytes: s.Opt.MaxOwnerBytes})
		}
	}
	slices.SortFunc(st.Quotas, func(a, b ckpt.QuotaStatus) int {
		return cmp.Or(cmp.Compare(b.Bytes, a.Bytes), cmp.Compare(a.Owner, b.Owner))
	})
	st.Quotas = st.Quotas[:min(len(st.Quotas), ckpt.MaxQuotas)]
	room := s.Usage.Room()
	st.Disk.FreeBytes, st.Disk.FloorBytes = room.Left, room.Floor
}

// damagedProblem gives no number, because every user can read it.
const damagedProblem = "stored checkpoints are damaged and are never served: ckptsidecar verify names them; " +
	"new saves do not depend on damaged data; save again, check the disk, and delete the damaged checkpoints"

// owedProblem says that an erasure was interrupted or is under way. It names no agent either.
const owedProblem = "the erasure of an agent is not finished, so traces of the agent may be in the database file or in the " +
	"write-ahead log: the daemon tries again every minute; end programs that read the database for long, and free space on the disk"

// problems lists what is wrong, most important first; the first decides the state.
func (s *Store) problems(st *ckpt.Status) {
	add := func(state, text string) {
		st.Problems = append(st.Problems, text)
		if st.State == "ready" {
			st.State = state
		}
	}
	if err := s.Engine.Fault(); err != nil {
		add("failed", "saving stopped because of a fault; restart the daemon: "+err.Error())
	}
	if why := s.Engine.ReadOnly(); why != "" {
		add("read_only", "only reads are served: "+why)
	}
	if doubt := s.Trust.Problem(); doubt != "" {
		add("degraded", fmt.Sprintf(
			"the audit log was changed outside the daemon: %s; "+
				"run ckptsidecar verify --against-log with a head from the daemon's log; "+
				"if you put an older copy back yourself, remove %s and restart the daemon",
			doubt, s.Opt.Path+ledger.HeadSuffix))
	}
	if len(s.Trust.Guards) > 0 {
		add("degraded", "triggers that keep rows from being rewritten by hand were missing or changed at the start, "+
			"and are back: run ckptsidecar verify, which compares what is stored with the audit log")
	}
	if s.Damages.Count() > 0 {
		add("degraded", damagedProblem)
	}
	if s.owed.Load() && s.erasing.Load() == 0 {
		add("degraded", owedProblem)
	}
	if problem := s.Engine.LockedProblem(); problem != "" {
		add("degraded", problem)
	}
	for _, problem := range s.Engine.RoomProblems() {
		add("degraded", problem)
	}
	if room := s.Usage.Room(); room.Low() {
		add("degraded", fmt.Sprintf("%s are free for all users, and limits.free_floor keeps %s: users who store more than %s (limits.owner_minimum) "+
			"cannot save; free space on the disk, let the policies keep less, or raise limits.max_database",
			phrase.Bytes(room.Left), phrase.Bytes(room.Floor), phrase.Bytes(room.Minimum)))
	}
	if n := s.Watches.Panics.Load(); n > 0 {
		add("degraded", fmt.Sprintf(
			"drift detectors failed %d times since the start, so some runs are not watched; saves continue; read the daemon's log", n))
	}
	st.Problems = slices.Clip(st.Problems)
}
