package langgraph

import (
	"context"
	"fmt"
	"hash/crc32"

	ckpt "github.com/ckptsidecar/ckptsidecar"
	"github.com/ckptsidecar/ckptsidecar/internal/db/blob"
	"github.com/ckptsidecar/ckptsidecar/internal/db/ledger"
	"github.com/jmoiron/sqlx"
)

const graphWriteColumns = `task, idx, path, channel, type, size, crc, data`

// deflateFrom is the size from which compressing a write may be worthwhile.
const deflateFrom = 256

func storedWrite(w *ckpt.GraphWrite) ledger.GraphWriteRow {
	row := ledger.GraphWriteRow{Task: w.Task, Idx: w.Idx, Path: w.Path, Channel: w.Channel, Type: w.Type,
		Size: int64(len(w.Data)), CRC: crc32.Checksum(w.Data, ledger.Castagnoli), Data: w.Data}
	if len(w.Data) >= deflateFrom {
		row.Data = blob.Deflate(w.Data)
	}
	if row.Data == nil {
		row.Data = []byte{}
	}
	return row
}

// readGraphWrite returns a stored row in its original form, or an error if it is damaged.
func readGraphWrite(r *ledger.GraphWriteRow, checkpoint string) (ckpt.GraphWrite, error) {
	data, err := blob.Inflate(r.Data, r.Size)
	if err != nil || crc32.Checksum(data, ledger.Castagnoli) != r.CRC {
		damage := &blob.DamageError{What: fmt.Sprintf("the write %d of its task %s does not match its checksum", r.Idx, r.Task), ID: checkpoint}
		return ckpt.GraphWrite{}, ckpt.Wrap(ckpt.CodeCorrupt, damage,
			"a write to LangGraph's checkpoint %s is damaged and is not served: run ckptsidecar verify", checkpoint)
	}
	return ckpt.GraphWrite{Task: r.Task, Idx: r.Idx, Path: r.Path, Channel: r.Channel, GraphBytes: ckpt.GraphBytes{Type: r.Type, Data: data}}, nil
}

// GraphPutWrites stores what a task has written. The checkpoint that the writes are for need not
// exist.
func (s *Threads) GraphPutWrites(_ context.Context, sc ckpt.Scope, r *ckpt.GraphPutWrites) (*ckpt.GraphWritten, error) {
	if err := ckpt.CheckAgentName(r.Agent); err != nil {
		return nil, err
	}
	if err := r.Check(); err != nil {
		return nil, err
	}
	rows, size, err := s.graphRows(sc, r)
	if err != nil {
		return nil, err
	}
	e := ledger.Entry(sc, "graph_writes", r.Agent)
	e.Run, e.Subject = r.RunName(), r.Checkpoint
	var answer *ckpt.GraphWritten
	err = s.Submit(&ledger.Op{Owner: sc.Caller.Owner, Size: size, Entry: e, Do: func(tx *ledger.Tx) error {
		answer = &ckpt.GraphWritten{Run: e.Run}
		tx.Touches()
		_, run, err := s.graphRun(tx, sc, r.Agent, r.GraphThread)
		if err != nil {
			return err
		}
		if answer.Written, err = insertGraphWrites(tx, run, r.Checkpoint, rows, r.Special()); err != nil || answer.Written == 0 {
			return err
		}
		e.Detail = map[string]any{"task": r.Writes[0].Task, "writes": answer.Written}
		return tx.Audit(e)
	}})
	if err != nil {
		return nil, err
	}
	return answer, nil
}

// graphRows prepares writes outside the writer, and treats secrets in them as the policy says. With
// the policy to warn, the next checkpoint shows the secrets.
func (s *Threads) graphRows(sc ckpt.Scope, r *ckpt.GraphPutWrites) (rows []ledger.GraphWriteRow, size int64, err error) {
	mode, err := s.SecretsMode(sc, r.Agent)
	if err != nil {
		return nil, 0, err
	}
	rows = make([]ledger.GraphWriteRow, len(r.Writes))
	for i := range r.Writes {
		w := r.Writes[i]
		if s.Opt.Secrets != nil && (mode == ckpt.SecretsReject || mode == ckpt.SecretsRedact) {
			clean, found := s.Opt.Secrets.Redact(w.Data, isGraphJSON(&w.GraphBytes))
			if len(found) > 0 && mode == ckpt.SecretsReject {
				return nil, 0, ckpt.Errorf(ckpt.CodeInvalid,
					"the write to %s holds what looks like %s at %q, and the agent's policy says secrets: reject; "+
						"take it out, or set the policy to redact",
					w.Channel, found[0].Kind, found[0].Path)
			}
			w.Data = clean
		}
		rows[i] = storedWrite(&w)
		size += int64(len(rows[i].Data))
	}
	return rows, size, nil
}

// graphRun finds the run of a thread, or makes it.
func (s *Threads) graphRun(tx *ledger.Tx, sc ckpt.Scope, name string, t ckpt.GraphThread) (*ledger.AgentRow, *ledger.RunRow, error) {
	agent, err := s.graphAgent(tx, sc, name)
	if err != nil {
		return nil, nil, err
	}
	runName := t.RunName()
	if err := checkGraphRun(tx, agent, runName, t); err != nil {
		return nil, nil, err
	}
	run, err := tx.MakeRun(agent.ID, runName, nil)
	if err != nil {
		return nil, nil, err
	}
	if err := s.MayWrite(run, sc, nil); err != nil {
		return nil, nil, err
	}
	if err := s.Revive(tx, run, sc); err != nil {
		return nil, nil, err
	}
	return agent, run, graphThread(tx, agent, run, t)
}

const (
	insertGraphWrite = `INSERT INTO graph_writes (run_id, checkpoint, ` + graphWriteColumns + `) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)`
	keepGraphWrite   = insertGraphWrite + ` ON CONFLICT DO NOTHING`
	setGraphWrite    = insertGraphWrite + ` ON CONFLICT (run_id, checkpoint, task, idx)
		DO UPDATE SET path = excluded.path, channel = excluded.channel,
		type = excluded.type, size = excluded.size, crc = excluded.crc, data = excluded.data`
)

// insertGraphWrites writes rows and returns how many it wrote. Existing rows are replaced or kept.
func insertGraphWrites(tx *ledger.Tx, run *ledger.RunRow, checkpoint string, rows []ledger.GraphWriteRow, replace bool) (written int64, err error) {
	query := keepGraphWrite
	if replace {
		query = setGraphWrite
	}
	for i := range rows {
		w := &rows[i]
		n, err := tx.InsertNew(query, run.ID, checkpoint, w.Task, w.Idx, w.Path, w.Channel, w.Type, w.Size, w.CRC, w.Data)
		if err != nil {
			return 0, err
		}
		written += n
	}
	if written == 0 {
		return 0, nil
	}
	return written, tx.SignOfLife(run)
}

// readGraphWrites reads the writes to a checkpoint, ordered by path, task and index. LangGraph applies the writes of a
// step in this order, and replays the writes of delta channels in the order in which they come.
func readGraphWrites(ctx context.Context, q sqlx.QueryerContext, runID int64, checkpoint string) ([]ckpt.GraphWrite, error) {
	return graphWritesOf(ctx, q, checkpoint,
		`SELECT `+graphWriteColumns+` FROM graph_writes WHERE run_id = ? AND checkpoint = ? ORDER BY path, task, idx`, runID, checkpoint)
}

// readGraphSends reads what tasks have sent, in the order that LangGraph uses.
func readGraphSends(ctx context.Context, q sqlx.QueryerContext, runID int64, checkpoint string) ([]ckpt.GraphBytes, error) {
	writes, err := graphWritesOf(ctx, q, checkpoint,
		`SELECT `+graphWriteColumns+` FROM graph_writes WHERE run_id = ? AND checkpoint = ? AND channel = ? ORDER BY path, task, idx`,
		runID, checkpoint, ckpt.GraphTasks)
	sends := make([]ckpt.GraphBytes, len(writes))
	for i := range writes {
		sends[i] = writes[i].GraphBytes
	}
	return sends, err
}

func graphWritesOf(ctx context.Context, q sqlx.QueryerContext, checkpoint, query string, args ...any) ([]ckpt.GraphWrite, error) {
	var rows []ledger.GraphWriteRow
	if err := sqlx.SelectContext(ctx, q, &rows, query, args...); err != nil {
		return nil, err
	}
	writes := make([]ckpt.GraphWrite, len(rows))
	for i := range rows {
		var err error
		if writes[i], err = readGraphWrite(&rows[i], checkpoint); err != nil {
			return nil, err
		}
	}
	return writes, nil
}
