package usage

import (
	"context"
	"maps"
	"slices"
	"strings"

	"github.com/ckptsidecar/ckptsidecar/internal/db/sqlite"
	"github.com/jmoiron/sqlx"
)

// OfRuns gives, for each table whose rows belong to runs, the bytes of a row by the columns that
// vary in length. The bytes of a run's states are in the run's own row.
var OfRuns = map[string]string{
	"checkpoints": lengths("id", "kind", "parent", "created_at", "sha256", "content_type", "labels", "metadata",
		"step", "operation", "program", "pieces"),
	"steps": lengths("key", "name", "status", "args", "result", "error", "started_at", "ended_at", "sig", "res", "cause"),
	"operations": lengths("key", "name", "status", "checkpoint", "started_at", "ended_at", "result", "error",
		"args", "result_schema", "resolution", "resolved_at", "resolved_by"),
	"events": lengths("at", "type", "payload"),
	"findings": lengths("id", "at", "rule", "severity", "message", "advice", "evidence", "checkpoint",
		"closed", "closed_at", "dismissed_at", "dismissed_by"),
	"prompts": lengths("id", "at", "question", "reason", "checkpoint", "memory_diff", "choice", "answered_at", "answered_by",
		"key", "choices", "schema", "expires_at", "answer", "data", "operation"),
	"graph_writes":      lengths("checkpoint", "task", "path", "channel", "type", "data"),
	"graph_checkpoints": lengths("id", "parent", "channels"),
	"graph_threads":     lengths("thread", "ns"),
	"spans":             ofSpan,
	"observed":          lengths("ends_at", "last_at"),
	"checkpoint_trees":  lengths("gone"),
}

// How many bytes rows of files use, in SQL.
var (
	OfContent  = lengths("sha256", "pieces", "data")
	OfTree     = lengths("sha256", "root", "git_head", "captured_at", "left_out", "until")
	OfTreeFile = lengths("path", "mode", "target")
)

// ofFiles is how many bytes the files of the agents that a condition names use.
func ofFiles(agents string) string {
	return ` + coalesce((SELECT sum(` + OfContent + `) FROM contents WHERE agent_id IN (` + agents + `)), 0)
		+ coalesce((SELECT sum(` + lengths("l.until") +
		`) FROM content_leases l JOIN contents c ON c.id = l.content_id WHERE c.agent_id IN (` + agents + `)), 0)
		+ coalesce((SELECT sum(` + lengths() + `) FROM content_uses u JOIN contents c ON c.id = u.used WHERE c.agent_id IN (` + agents + `)), 0)
		+ coalesce((SELECT sum(` + OfTree + `) FROM trees WHERE agent_id IN (` + agents + `)), 0)
		+ coalesce((SELECT sum(` + lengths("f.path", "f.mode",
		"f.target") + `) FROM trees t JOIN tree_files f ON f.tree_id = t.id WHERE t.agent_id IN (` + agents + `)), 0)`
}

var (
	ofSpan = lengths("owner", "trace", "span", "call", "step", "said")
	ofRun  = lengths("name", "status", "started_at", "updated_at", "ended_at", "head", "workflow", "parent_run", "forked_from", "goal", "first_goal",
		"continuation_prompt", "external_session", "labels", "result", "error") + " + stored_bytes"
	ofAgent = lengths("owner", "name", "created_at", "policy", "policy_own", "policy_at")
	// ofOwner is how many bytes a row of policies uses: an owner's policy for all agents.
	ofOwner = lengths("owner", "policy", "set_at")
	ofToken = lengths("id", "owner", "note", "hash", "created_at", "revoked_at")
	// OfKey is how many bytes a row of idempotency uses, in SQL.
	OfKey = lengths("key", "fingerprint", "reply")
	// OfID is how many bytes a row of ids uses, in SQL.
	OfID = lengths("id", "print")
)

// sumOf is a query for the bytes of the runs that a condition names, with all rows that belong to
// them.
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

// StoredBy counts from the tables what an owner has stored, except the audit log.
func StoredBy(ctx context.Context, q sqlx.QueryerContext, owner string) (bytes int64, err error) {
	if err := sqlx.GetContext(ctx, q, &bytes, sumOfOwner, owner); err != nil {
		return 0, err
	}
	var rest int64
	err = sqlx.GetContext(ctx, q, &rest, `SELECT coalesce((SELECT sum(`+ofAgent+`) FROM agents WHERE owner = ?1), 0)
		+ coalesce((SELECT sum(`+ofOwner+`) FROM policies WHERE owner = ?1), 0)
		+ coalesce((SELECT sum(`+OfKey+`) FROM idempotency WHERE agent_id IN (SELECT id FROM agents WHERE owner = ?1)), 0)
		+ coalesce((SELECT sum(`+OfID+`) FROM ids WHERE agent_id IN (SELECT id FROM agents WHERE owner = ?1)), 0)
		+ coalesce((SELECT sum(`+ofSpan+`) FROM spans WHERE run_id IS NULL AND owner = ?1), 0)
		+ coalesce((SELECT sum(`+ofToken+`) FROM tokens WHERE owner = ?1), 0)`+ofFiles(`SELECT id FROM agents WHERE owner = ?1`), owner)
	return bytes + rest, err
}

// OfRun is how many bytes a run has stored, with all rows that belong to it.
func OfRun(tx *sqlite.Tx, id int64) (bytes int64, err error) {
	_, err = tx.Get(&bytes, sumOfRun, id)
	return bytes, err
}

// OfAgent is how many bytes an agent has stored, with all rows that belong to it.
func OfAgent(tx *sqlite.Tx, id int64) (bytes int64, err error) {
	if _, err := tx.Get(&bytes, sumOfAgent, id); err != nil {
		return 0, err
	}
	var rest int64
	_, err = tx.Get(&rest, `SELECT coalesce((SELECT sum(`+ofAgent+`) FROM agents WHERE id = ?1), 0)
		+ coalesce((SELECT sum(`+OfKey+`) FROM idempotency WHERE agent_id = ?1), 0)
		+ coalesce((SELECT sum(`+OfID+`) FROM ids WHERE agent_id = ?1), 0)`+ofFiles(`?1`), id)
	return bytes + rest, err
}
