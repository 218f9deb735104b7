package audit

import (
	"context"
	"fmt"
	"hash/crc32"

	"github.com/ckptsidecar/ckptsidecar/internal/db/blob"
	"github.com/ckptsidecar/ckptsidecar/internal/db/ledger"
)

// graphWrites checks the writes of LangGraph's tasks against their checksums.
func (v *verifier) graphWrites(ctx context.Context) error {
	rows, err := v.db.QueryxContext(ctx, `SELECT run_id, checkpoint, task, idx, size, crc, data FROM graph_writes`)
	if err != nil {
		return v.met(ctx, "graph_writes", err)
	}
	defer rows.Close()
	for rows.Next() {
		var w struct {
			ledger.GraphWriteRow
			RunID      int64  `db:"run_id"`
			Checkpoint string `db:"checkpoint"`
		}
		if err := rows.StructScan(&w); err != nil {
			return v.met(ctx, "graph_writes", err)
		}
		if data, err := blob.Inflate(w.Data, w.Size); err != nil || crc32.Checksum(data, ledger.Castagnoli) != w.CRC {
			v.found("graph_write", fmt.Sprintf("%s/%s/%d", w.Checkpoint, w.Task, w.Idx), "the write does not match its checksum (run %d)", w.RunID)
		}
	}
	return v.met(ctx, "graph_writes", rows.Err())
}
