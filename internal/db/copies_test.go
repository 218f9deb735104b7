package db_test

import (
	stdsql "database/sql"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/jmoiron/sqlx"
	_ "modernc.org/sqlite"

	"github.com/ckptsidecar/ckptsidecar/internal/db"
	copier "github.com/ckptsidecar/ckptsidecar/internal/db/copy"
)

// inExport opens an export, and returns it as do has left it.
func inExport(t testing.TB, export string, do func(*sqlx.DB)) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "export")
	must(t, os.WriteFile(path, []byte(export), 0o600))
	file, err := sqlx.Open("sqlite", path)
	must(t, err)
	do(file)
	must(t, file.Close())
	changed, err := os.ReadFile(path)
	must(t, err)
	return string(changed)
}

// forged changes an export past its guards, and makes its hash again, as an attacker could.
func forged(t testing.TB, export, statements string) string {
	t.Helper()
	return inExport(t, export, func(file *sqlx.DB) {
		_, err := file.ExecContext(t.Context(), "BEGIN;\n"+db.Unguarded(statements)+"COMMIT;")
		must(t, err)
		sealRows(t, file)
	})
}

// sealRows makes the hash of all rows again.
func sealRows(t testing.TB, file *sqlx.DB) {
	t.Helper()
	sum, err := copier.Sum(t.Context(), file)
	if errors.Is(err, stdsql.ErrNoRows) { // a forger has taken what says that it is an export
		return
	}
	must(t, err)
	_, err = file.ExecContext(t.Context(), `UPDATE meta SET value = ? WHERE key = 'export_rows'`, sum)
	must(t, err)
}

// inside asks an export. The answer has a line for each row.
func inside(t testing.TB, export string, queries ...string) string {
	t.Helper()
	var lines []string
	inExport(t, export, func(file *sqlx.DB) {
		for _, query := range queries {
			rows, err := file.QueryxContext(t.Context(), query)
			must(t, err)
			for rows.Next() {
				values, err := rows.SliceScan()
				must(t, err)
				lines = append(lines, strings.TrimSuffix(fmt.Sprintln(values...), "\n"))
			}
			must(t, rows.Err())
			must(t, rows.Close())
		}
	})
	return strings.Join(lines, "\n")
}

// rowsIn are the rows of an export that are the same in the export of what was imported: without the log, and without
// what depends on how a state is stored.
func rowsIn(t testing.TB, export string) string {
	t.Helper()
	columns := func(table string) string { // an import numbers these rows anew, in the same order
		return inside(t, export, `SELECT group_concat(name, ', ') FROM pragma_table_info('`+table+`') WHERE name <> 'id'`)
	}
	return inside(t, export,
		`SELECT owner, name, created_at, policy, policy_at FROM agents ORDER BY name`,
		`SELECT id, agent_id, name, life, status, epoch, attempt, started_at, updated_at, ended_at, last_seq, removed, head, workflow, pid, process_start,
			boot_id, parent_run, forked_from, segment_at, interrupted_at, accumulated_ms, heartbeat_at, heartbeat_timeout_ms, progress_timeout_ms, progress,
			progress_at, goal, first_goal, steps_ended, input_tokens, output_tokens, cost_usd, stretch, stretch_seq, stretch_from, back_seq,
			continuation_prompt, external_session, command, labels, result, error, last_event, source, partial FROM runs ORDER BY id`,
		`SELECT c.id, c.run_id, c.seq, c.kind, c.parent, c.created_at, c.size, c.sha256, c.content_type, c.labels, c.metadata, c.program, c.step, c.operation,
			c.pinned, c.suspect, c.state_of FROM checkpoints c JOIN runs r ON r.id = c.run_id ORDER BY r.agent_id, c.n`,
		`SELECT * FROM run_segments ORDER BY 1, 2`,
		`SELECT `+columns("steps")+` FROM steps ORDER BY id`, `SELECT `+columns("operations")+` FROM operations ORDER BY id`, `SELECT * FROM findings ORDER BY id`, `SELECT * FROM prompts ORDER BY id`,
		`SELECT * FROM events ORDER BY 1, 2`, `SELECT * FROM graph_threads ORDER BY 1`, `SELECT run_id, id, parent, channels FROM graph_checkpoints ORDER BY 1, 2`,
		`SELECT run_id, checkpoint, task, idx, path, channel, type, size, crc FROM graph_writes ORDER BY 1, 2, 3, 4`, `SELECT * FROM audit_files ORDER BY 1, 2`,
		`SELECT checkpoint, tree, root, git_head, captured_at, complete, files, bytes, left_out FROM audit_trees ORDER BY 1, 2`)
}
