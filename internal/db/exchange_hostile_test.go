package db_test

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/jmoiron/sqlx"

	ckpt "github.com/ckptsidecar/ckptsidecar"
	"github.com/ckptsidecar/ckptsidecar/internal/db"
	"github.com/ckptsidecar/ckptsidecar/internal/drift"
	"github.com/ckptsidecar/ckptsidecar/internal/expect"
	"github.com/ckptsidecar/ckptsidecar/internal/resume"
)

// forger changes exports as an attacker could.
type forger struct {
	*testing.T
	*rand.Rand
	export string
	tables []string
	what   string // what it has changed
}

func (f *forger) pick(list ...string) string { return list[f.IntN(len(list))] }

// values are what is put in the place of others.
var values = []string{"NULL", "0", "1", "2", "-1", "4294967297", "9223372036854775807", "1e300", "''", "'x'", "'{}'", "'[]'", "'{torn'", "'../x'",
	"'2026-01-01T00:00:00.000Z'", "'019a0000-0000-7000-8000-000000000001'", "'running'", "'completed'", "'critical'", "x'00'", "zeroblob(32)",
	"printf('%1000000s', 'x')", "'[[1,0,1]]'", "'[[1,0,9999999999]]'", "char(27)"}

// sql makes statements that change rows. The hash of all rows is made again after them.
func (f *forger) sql() string {
	table := f.pick(f.tables...)
	row := fmt.Sprintf(`(SELECT %[2]s FROM %[1]s ORDER BY random() LIMIT %[3]d)`, table, f.key(table), 1+f.IntN(2))
	where := ` WHERE ` + f.key(table) + ` IN ` + row
	switch f.IntN(9) {
	case 0:
		return `DELETE FROM ` + table + where
	case 1:
		return f.pick(`UPDATE checkpoints SET sha256 = printf('%064d', 7) WHERE seq = 1`, `UPDATE contents SET sha256 = zeroblob(32)`,
			`UPDATE acts SET hash = zeroblob(32) WHERE n = 3`, `UPDATE trees SET sha256 = printf('%064d', 7)`, `UPDATE graph_writes SET crc = crc + 1`)
	case 2: // a chain that is cut
		return f.pick(`DELETE FROM acts WHERE n > 5; DELETE FROM act_texts WHERE n > 5`,
			`DELETE FROM acts WHERE n < 5`, `DELETE FROM acts WHERE n = (SELECT max(n) / 2 FROM acts)`, `DELETE FROM acts; DELETE FROM act_texts`,
			`UPDATE acts SET n = -n WHERE n = (SELECT max(n) FROM acts)`, `INSERT INTO audit_links (n, hash) SELECT n, lower(hex(hash)) FROM acts; DELETE FROM acts WHERE n < 9`)
	case 3: // counts without measure
		return f.pick(`UPDATE checkpoints SET size = 1 << 60`, `UPDATE segments SET size = 1 << 60`, `UPDATE contents SET fresh = 1 << 60`, `UPDATE trees SET files = 1 << 60`,
			`UPDATE runs SET last_seq = 1 << 60`, `UPDATE runs SET epoch = 9223372036854775807`, `UPDATE graph_writes SET size = 1 << 50`, `UPDATE runs SET last_event = 1 << 61`)
	case 4: // rows that no export has
		return f.pick(`INSERT INTO tokens VALUES ('uid:1', 'x', '', '', '', NULL)`, `INSERT INTO idempotency VALUES ('k', 1, x'', '', 1)`,
			`INSERT INTO policies VALUES ('uid:1', '{}', '')`, `INSERT INTO scrub_owed VALUES (1, 'uid:1', 'a', '', '{}')`,
			`INSERT INTO observed VALUES (1, NULL, 1, '', 0)`, `INSERT INTO content_leases VALUES (1, '')`, `INSERT INTO run_terms VALUES ('x', 0, 1)`,
			`INSERT INTO meta VALUES ('damaged:' || (SELECT min(id) FROM checkpoints), 'x')`)
	}
	var columns []string
	inExport(f, f.export, func(file *sqlx.DB) {
		must(f, file.SelectContext(f.Context(), &columns, `SELECT name FROM pragma_table_info(?)`, table))
	})
	return `UPDATE OR IGNORE ` + table + ` SET ` + f.pick(columns...) + ` = ` + f.pick(values...) + where
}

func (f *forger) key(table string) string {
	if key := map[string]string{"run_segments": "n", "events": "seq", "graph_writes": "task", "tree_files": "path",
		"content_uses": "used", "checkpoint_trees": "n", "owner_changes": "n", "meta": "key"}[table]; key != "" {
		return key
	}
	return "rowid"
}

// forge returns a changed export.
func (f *forger) forge() string {
	switch f.IntN(8) {
	case 0: // bytes
		b := []byte(f.export)
		for range 1 + f.IntN(8) {
			b[f.IntN(len(b))] ^= byte(1 << f.IntN(8))
		}
		f.what = "bytes"
		return string(b)
	case 1:
		f.what = "cut off"
		return f.export[:f.IntN(len(f.export))]
	case 2: // a schema of its own
		f.what = f.pick(`CREATE TRIGGER mine AFTER INSERT ON runs BEGIN DELETE FROM agents; END`, `CREATE VIEW mine AS SELECT load_extension('x')`,
			`CREATE TABLE mine (x)`, `CREATE INDEX mine ON runs (pid)`, `DROP VIEW audit_violations; CREATE VIEW audit_violations (rule, subject, detail) AS SELECT 1, 2, 3 WHERE 0`,
			`DROP TRIGGER acts_are_never_changed`, `DROP INDEX runs_forked`, `ALTER TABLE runs ADD COLUMN mine TEXT`, `DROP TABLE tokens`,
			`CREATE TEMP TABLE x (y); PRAGMA user_version = 2`, `PRAGMA application_id = 1`, `ANALYZE`)
		return inExport(f, f.export, func(file *sqlx.DB) {
			_, err := file.ExecContext(f.Context(), f.what)
			must(f, err)
		})
	case 3:
		f.what = f.pick("PRAGMA journal_mode = WAL", "VACUUM", "PRAGMA page_size = 512; VACUUM", "PRAGMA auto_vacuum = 1; VACUUM", "PRAGMA encoding = 'UTF-16'")
		return inExport(f, f.export, func(file *sqlx.DB) {
			_, err := file.ExecContext(f.Context(), f.what)
			must(f, err)
		})
	}
	for {
		f.what = f.sql()
		for range f.IntN(2) {
			f.what += "; " + f.sql()
		}
		if text, done := f.changed(f.what); done {
			return text
		}
	}
}

// changed runs statements in an export. A statement that a constraint refuses is another's turn.
func (f *forger) changed(statements string) (text string, done bool) {
	text = inExport(f, f.export, func(file *sqlx.DB) {
		_, err := file.ExecContext(f.Context(), "PRAGMA foreign_keys = 0; BEGIN;\n"+db.Unguarded(statements)+"COMMIT;")
		if done = err == nil; done {
			sealRows(f, file)
		} else {
			_, _ = file.ExecContext(f.Context(), "ROLLBACK")
		}
	})
	return text, done
}

// TestForgedExports changes exports as an attacker could. Each is refused, or read back exactly: what it says is what
// the database has then. The database is intact in both cases. -long makes 600.
func TestForgedExports(t *testing.T) {
	t.Parallel()
	expect.OneThread(t)
	rounds := moreOf(60, 600)
	c, p := newClock(), &processes{dead: map[int]bool{}}
	o := options(filepath.Join(t.TempDir(), "ckpt.db"), c)
	o.Resume, o.Processes, o.Drift = resume.Make, p, drift.New()
	r := rand.New(rand.NewPCG(11, 5))
	h := &past{saver: &saver{t, openWith(t, o), ann, "a"}, rand: r, c: c, p: p, pid: 10}
	keepAll := ckpt.DefaultPolicy()
	keepAll.RoutineKeep = 0
	_, err := h.SetPolicy(t.Context(), ann, "a", keepAll)
	must(t, err)
	for range 120 {
		h.do()
	}
	for i := range 12 {
		id := putFiles(t, h.Store, ann, "a", "", nil, folder{"f": fmt.Sprint(i), "g": "same"})
		saveWith(t, h.Store, ann, "a", `{"n":"`+strings.Repeat("grows ", 1000+i)+`"}`, id)
	}
	for pid := range h.pid + 1 {
		p.kill(pid)
	}
	must(t, h.ExecForTest(`UPDATE runs SET heartbeat_timeout_ms = 0 WHERE status = 'running' AND pid IS NULL`))
	f := &forger{T: t, Rand: r, export: exportOf(t, h.Store, "a")}
	for _, table := range strings.Fields(inside(t, f.export, `SELECT name FROM sqlite_schema WHERE type = 'table' AND name NOT LIKE 'sqlite%'`)) {
		if inside(t, f.export, `SELECT count(*) FROM `+table) != "0" {
			f.tables = append(f.tables, table)
		}
	}
	fresh := func() *db.Store {
		o := options(filepath.Join(t.TempDir(), "ckpt.db"), c)
		o.Resume, o.Processes, o.Drift = resume.Make, p, drift.New()
		return openWith(t, o)
	}
	s, taken, exact := fresh(), 0, 0
	for n := range rounds {
		text := f.forge()
		report, err := s.Import(t.Context(), ann, ckpt.ImportRequest{}, strings.NewReader(text))
		if err != nil {
			if code := ckpt.CodeOf(err); code != ckpt.CodeInvalid && code != ckpt.CodeConflict && code != ckpt.CodeTooLarge {
				t.Errorf("round %d: %.300s: %v", n, f.what, err)
			}
			if agents, err := s.Agents(t.Context(), ann, ckpt.AgentFilter{}); err != nil || len(agents.Agents) > 0 {
				t.Fatalf("round %d: %.300s: a refused import left %v, %v", n, f.what, agents, err)
			}
			continue
		}
		taken++
		if len(report.Uncertain) == 0 && len(report.Pruned) == 0 {
			exact++
			is, want := rowsIn(t, exportOf(t, s)), rowsIn(t, text)
			if is != want {
				t.Errorf("round %d: %.300s was taken, and is read back otherwise:\n%s", n, f.what, cmp.Diff(strings.Split(want, "\n"), strings.Split(is, "\n")))
			}
		}
		page, err := s.Runs(t.Context(), ann, ckpt.RunFilter{Limit: ckpt.MaxLimit})
		must(t, err)
		for _, run := range page.Runs {
			_, _, err := s.Resume(t.Context(), ann, ckpt.ResumeRequest{Agent: run.Agent, Run: run.Run, DryRun: true})
			if err != nil {
				t.Errorf("round %d: %.300s: %v", n, f.what, err)
			}
		}
		path := pathOf(s)
		must(t, s.Close())
		sound(t, path)
		if t.Failed() {
			t.Fatalf("round %d: %.300s", n, f.what)
		}
		s = fresh()
	}
	t.Logf("%d of %d were taken, %d of these read back exactly; the others were refused", taken, rounds, exact)
}

// linesOf makes an export of lines, with the last line.
func linesOf(lines ...string) string {
	body := strings.Join(append([]string{`{"type":"ckptsidecar_export","version":1}`}, lines...), "\n") + "\n"
	return sealLines(body)
}

func sealLines(body string) string {
	end, err := json.Marshal(map[string]any{"type": "end", "lines": strings.Count(body, "\n"), "sha256": hashOf(body)})
	if err != nil {
		panic(err)
	}
	return body + string(end) + "\n"
}
