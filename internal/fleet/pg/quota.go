package pg

import (
	"context"

	"github.com/jackc/pgx/v5"

	"github.com/ckptsidecar/ckptsidecar/internal/fleet"
)

// The statements that count bytes for quotas. PostgreSQL knows the length of a value that is
// stored out of line without reading it. Each row also counts a fixed cost beside its
// contents.
const (
	runVersions = `SELECT r.uid, r.principal, r.host, r.term, r.as_of_n FROM fleet_runs r
		WHERE r.principal = ANY($1::text[])`
	bytesOfRuns = `SELECT r.uid, (octet_length(r.doc) + 256
		+ coalesce((SELECT sum(coalesce(octet_length(c.body), 0) + coalesce(octet_length(c.pieces), 0)
			+ octet_length(c.doc) + 256)
			FROM fleet_checkpoints c WHERE c.run_uid = r.uid), 0)
		+ coalesce((SELECT sum(octet_length(s.data) + 128) FROM fleet_segments s WHERE s.run_uid = r.uid), 0)
		+ coalesce((SELECT sum(octet_length(w.doc) + 128) FROM fleet_rows w WHERE w.run_uid = r.uid), 0))::bigint
		FROM fleet_runs r WHERE r.uid = ANY($1::text[])`
)

// RunVersions lists the runs of some principals.
func (e *Engine) RunVersions(ctx context.Context, principals []string) ([]fleet.RunVersion, error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	rows, err := e.conn.Query(ctx, runVersions, principals)
	if err != nil {
		return nil, told(err)
	}
	all, err := pgx.CollectRows(rows, pgx.RowToStructByPos[fleet.RunVersion])
	return all, told(err)
}

// BytesOf counts the bytes that the engine has of some runs: checkpoints, segments, steps,
// operations, events and all other rows of a run. It does not count audit logs. It leaves
// out runs that no longer exist.
func (e *Engine) BytesOf(ctx context.Context, uids []string) (map[string]int64, error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	rows, err := e.conn.Query(ctx, bytesOfRuns, uids)
	if err != nil {
		return nil, told(err)
	}
	bytes := make(map[string]int64, len(uids))
	var uid string
	var n int64
	_, err = pgx.ForEachRow(rows, []any{&uid, &n}, func() error { bytes[uid] = n; return nil })
	return bytes, told(err)
}
