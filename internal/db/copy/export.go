package copy

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"os"
	"slices"
	"time"

	"github.com/google/uuid"
	"github.com/jmoiron/sqlx"

	ckpt "github.com/ckptsidecar/ckptsidecar"
	"github.com/ckptsidecar/ckptsidecar/internal/db/blob"
	"github.com/ckptsidecar/ckptsidecar/internal/db/ledger"
	"github.com/ckptsidecar/ckptsidecar/internal/db/sqlite"
)

// exportVersion is the version of the form.
const exportVersion = 1

// Export writes everything of an agent.
func (s *Copier) Export(ctx context.Context, sc ckpt.Scope, name string, w io.Writer) error {
	return s.ExportAgents(ctx, sc, ckpt.ExportRequest{Agents: []string{name}}, w)
}

// ExportAgents writes everything of some agents, or one run of an agent, as a SQLite file. It first makes the whole
// file beside the database, so that a slow reader holds no snapshot.
func (s *Copier) ExportAgents(ctx context.Context, sc ckpt.Scope, r ckpt.ExportRequest, w io.Writer) error {
	agents, err := s.exported(ctx, sc, r)
	if err != nil {
		return err
	}
	for _, agent := range agents {
		e := ledger.Entry(sc, "export", agent.Name)
		e.Run = r.Run
		err := s.Submit(&ledger.Op{Owner: sc.Caller.Owner, Claim: sqlite.GoesOn, Do: func(tx *ledger.Tx) error { return tx.Audit(e) }})
		if err != nil {
			return err
		}
	}
	path, drop, err := s.aside()
	if err != nil {
		return err
	}
	defer drop()
	x := &exporting{Copier: s, ctx: ctx, request: r, said: manifest{Version: exportVersion, Damaged: map[int64]string{}}}
	err = makeFile(ctx, path, s.Opt.Now(), func(to *sqlx.Conn) (*manifest, error) {
		x.to = to
		err := s.Reading(ctx, func(q *sqlx.Tx) error {
			x.q = q
			return x.all(agents)
		})
		return &x.said, err
	})
	for _, damage := range x.damage {
		s.ReportDamage(damage)
	}
	if err != nil {
		return noRoom(err)
	}
	made, err := os.Open(path)
	if err != nil {
		return err
	}
	defer made.Close()
	_, err = io.Copy(w, made)
	return err
}

// exported finds the agents of a request, each once, and the run that it names.
func (s *Copier) exported(ctx context.Context, sc ckpt.Scope, r ckpt.ExportRequest) ([]*ledger.AgentRow, error) {
	if err := r.Check(); err != nil {
		return nil, err
	}
	names := slices.Compact(slices.Sorted(slices.Values(r.Agents)))
	if len(names) == 0 {
		err := s.RO.SelectContext(ctx, &names, `SELECT name FROM agents WHERE owner = ? ORDER BY name`, sc.Whose())
		if err != nil {
			return nil, sqlite.ReadError(err)
		}
		if len(names) == 0 {
			return nil, ckpt.Errorf(ckpt.CodeNotFound, "%s has no agents: there is nothing to export", sc.Whose())
		}
	}
	var agents []*ledger.AgentRow
	for _, name := range names {
		agent, err := s.FindAgent(ctx, sc, name)
		if err != nil {
			return nil, err
		}
		agents = append(agents, agent)
	}
	if r.Run != "" {
		if _, err := s.FindRun(ctx, sc, ckpt.RunRef{Agent: r.Agents[0], Run: r.Run}); err != nil {
			return nil, err
		}
	}
	return agents, nil
}

// manifest is what an export says about itself, in meta.
type manifest struct {
	Version    int              `json:"version"`
	Alive      []int64          `json:"alive,omitempty"`      // runs whose owners were alive
	Damaged    map[int64]string `json:"damaged,omitempty"`    // of runs: what could not be read
	Unscreened []int64          `json:"unscreened,omitempty"` // runs from other programs, not screened for secrets
}

// The keys of meta in an export.
const (
	keyExport = "export"
	keyRows   = "export_rows" // the hash of all rows
)

// makeFile makes a database file with the rows that fill writes. It runs the schema twice: first only the tables,
// because the guards would refuse some rows, and the whole schema after the rows.
func makeFile(ctx context.Context, path string, now time.Time, fill func(to *sqlx.Conn) (*manifest, error)) error {
	return sqlite.Fill(ctx, path, func(to *sqlx.Conn) error {
		do := func(query string, args ...any) error { _, err := to.ExecContext(ctx, query, args...); return err }
		err := errors.Join(do(`PRAGMA page_size = `+fmt.Sprint(sqlite.PageSize)), do(`BEGIN`), do(ckpt.SchemaTables()),
			do(`INSERT INTO meta (key, value) VALUES ('database_id', ?), ('created_at', ?), ('chain_key', lower(hex(randomblob(32)))), (?, ?)`,
				uuid.NewString(), ckpt.At(now).String(), sqlite.FingerprintKey, ledger.Identity().Fingerprint))
		if err != nil {
			return err
		}
		var triggers []string // they make rows that the copy brings
		if err := to.SelectContext(ctx, &triggers, `SELECT 'DROP TRIGGER ' || name FROM sqlite_schema WHERE type = 'trigger'`); err != nil {
			return err
		}
		for _, drop := range triggers {
			if err := do(drop); err != nil {
				return err
			}
		}
		said, err := fill(to)
		if err != nil {
			return err
		}
		if err := do(countRuns); err != nil {
			return err
		}
		if err := chain(ctx, to); err != nil {
			return err
		}
		text, err := json.Marshal(said)
		if err != nil {
			return err
		}
		if err := do(`INSERT INTO meta (key, value) VALUES (?, ?)`, keyExport, string(text)); err != nil {
			return err
		}
		sum, err := Sum(ctx, to)
		if err != nil {
			return err
		}
		return errors.Join(do(`INSERT INTO meta (key, value) VALUES (?, ?)`, keyRows, sum), do(ckpt.Schema),
			do(fmt.Sprintf(`PRAGMA application_id = %d`, ckpt.ApplicationID)), do(fmt.Sprintf(`PRAGMA user_version = %d`, ckpt.SchemaVersion)), do(`COMMIT`))
	})
}

const countRuns = `UPDATE runs SET removed = last_seq - (SELECT count(*) FROM checkpoints c WHERE c.run_id = runs.id),
	stored_bytes = coalesce((SELECT sum(length(body)) FROM checkpoints c WHERE c.run_id = runs.id), 0)
		+ coalesce((SELECT sum(length(data)) FROM segments g WHERE g.run_id = runs.id), 0)`

// exporting copies rows from a snapshot of the database into a file.
type exporting struct {
	*Copier
	ctx     context.Context
	q       *sqlx.Tx
	to      *sqlx.Conn
	request ckpt.ExportRequest
	said    manifest
	damage  []error // not reported yet
	renumber
}

// all copies the agents of a request.
func (x *exporting) all(agents []*ledger.AgentRow) error {
	runsOf := map[int64][]int64{}
	var rows []int64
	for _, agent := range agents {
		var list []int64
		err := x.q.SelectContext(x.ctx, &list, `SELECT id FROM runs WHERE agent_id = ?1 AND (?2 = '' OR name = ?2 OR base = ?2) ORDER BY id`,
			agent.ID, x.request.Run)
		if err != nil {
			return err
		}
		runsOf[agent.ID] = list
		of, err := x.actsOf(agent, list)
		if err != nil {
			return err
		}
		rows = append(rows, of...)
	}
	slices.Sort(rows)
	rows = slices.Compact(rows)
	x.numberActs(rows)
	for _, agent := range agents {
		if err := x.agent(agent, runsOf[agent.ID]); err != nil {
			return err
		}
	}
	return x.log(rows)
}

// agent copies an agent with some of its runs.
func (x *exporting) agent(agent *ledger.AgentRow, list []int64) error {
	for _, t := range []*table{agents, ownerChanges} {
		if err := x.rows(t, 0, agent.ID, 0, nil); err != nil {
			return err
		}
	}
	for _, id := range list {
		var run ledger.RunRow
		if err := x.q.GetContext(x.ctx, &run, `SELECT `+ledger.RunColumns+` FROM runs WHERE id = ?`, id); err != nil {
			return err
		}
		for _, t := range tables {
			if t.hangs() && t != checkpointTrees {
				if err := x.rows(t, id, agent.ID, id, nil); err != nil {
					return err
				}
			}
		}
		if x.OwnerAlive(&run) {
			x.said.Alive = append(x.said.Alive, x.number(runNo, id))
		}
	}
	if x.request.NoFiles {
		return nil
	}
	return x.files(agent, list)
}

// rows copies the rows of a table. It leaves out a row that is damaged, and says so, if the row belongs to a run.
func (x *exporting) rows(t *table, run int64, args ...any) error {
	rows, err := x.q.QueryxContext(x.ctx, t.query(), args...)
	if err != nil {
		return err
	}
	defer rows.Close()
	insert, err := x.to.PreparexContext(x.ctx, t.insert(all))
	if err != nil {
		return err
	}
	defer insert.Close()
	for rows.Next() {
		values, err := rows.SliceScan()
		if err != nil {
			return err
		}
		if err := x.intact(t, values); err != nil {
			if ckpt.CodeOf(err) != ckpt.CodeCorrupt {
				return err
			}
			if run == 0 || t == runs {
				return ckpt.Errorf(ckpt.CodeCorrupt, "a row of %s is damaged: %v; run ckptsidecar verify", t.name, plain(err))
			}
			x.note(t, run, err)
			continue
		}
		if err := x.anew(t, values); err != nil {
			return err
		}
		if _, err := insert.ExecContext(x.ctx, values...); err != nil {
			return noRoom(fmt.Errorf("%s: %w", t.name, err))
		}
	}
	return rows.Err()
}

// intact says what is damaged in a row.
func (x *exporting) intact(t *table, values []any) error {
	corrupt := func(err error) error {
		if err == nil {
			return nil
		}
		return ckpt.Wrap(ckpt.CodeCorrupt, err, "%v", plain(err))
	}
	err := t.valid(values)
	switch {
	case t != checkpoints && err == nil:
		return corrupt(sumOfWrite(t, values))
	case t != checkpoints:
		return corrupt(err)
	case err != nil:
		id := t.text(values, "id")
		return ckpt.Wrap(ckpt.CodeCorrupt, &blob.DamageError{What: err.Error(), ID: id}, "checkpoint %s is damaged: %v", id, err)
	}
	_, err = blob.Decode(x.ctx, x.q, stateRow(values))
	if err == nil && x.numbers[actNo][t.whole(values, "n")] == nobody {
		err = corrupt(errors.New("the row of the audit log that records its save is gone"))
	}
	return err
}

// stateRow has the columns of a checkpoint from which its state is read.
func stateRow(values []any) *blob.StateRow {
	t := checkpoints
	r := &blob.StateRow{N: t.whole(values, "n"), ID: t.text(values, "id"), Size: t.whole(values, "size"), SHA256: t.text(values, "sha256")}
	r.Body, _ = t.at(values, "body").([]byte)
	if pieces, is := t.at(values, "pieces").(string); is {
		r.Pieces = &pieces
	}
	return r
}

// sumOfWrite checks a write of a LangGraph task against its checksum.
func sumOfWrite(t *table, values []any) error {
	if t != graphWrites {
		return nil
	}
	stored, _ := t.at(values, "data").([]byte)
	data, err := blob.Inflate(stored, t.whole(values, "size"))
	if err != nil || int64(crc32.Checksum(data, ledger.Castagnoli)) != t.whole(values, "crc") {
		return errors.New("it does not match its checksum")
	}
	return nil
}

// note says in the export that a row of a run is left out.
func (x *exporting) note(t *table, run int64, err error) {
	x.Log.Warn("a damaged row was left out of an export", "table", t.name, "run", run, "error", err)
	if t == checkpoints {
		x.damage = append(x.damage, err)
	}
	what := t.kind
	if what == "" {
		what = t.name
	}
	x.said.Damaged[x.number(runNo, run)] = what + " " + plain(err).Error()
}

func noRoom(err error) error {
	if sqlite.Classify(err) != sqlite.ClassFull {
		return err
	}
	return ckpt.Wrap(ckpt.CodeStorageFull, err, "the export cannot be stored beside the database: %v", err)
}
