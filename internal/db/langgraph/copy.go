package langgraph

import (
	"context"

	ckpt "github.com/ckptsidecar/ckptsidecar"
	"github.com/ckptsidecar/ckptsidecar/internal/db/ledger"
	"github.com/jmoiron/sqlx"
)

// graphCopying is the copy of one namespace of a thread.
type graphCopying struct {
	store  *Threads
	scope  ckpt.Scope
	agent  *ledger.AgentRow
	from   int64
	to     ckpt.GraphThread
	copied int64
}

// all copies the checkpoints in the order in which they were saved, so that each is based on the
// one before, and then the writes.
func (c *graphCopying) all(ctx context.Context) error {
	for last := int64(0); ; {
		d, id, slot, err := c.next(ctx, last)
		if err != nil {
			return err
		}
		if d == nil {
			return c.writes()
		}
		d.GraphThread, last = c.to, slot
		if _, err := c.store.graphSave(ctx, c.scope, c.agent.Name, d, id); err != nil {
			return err
		}
		c.copied++
	}
}

// next reads the next checkpoint after a place, nil after the last.
func (c *graphCopying) next(ctx context.Context, after int64) (d *graphDocument, id string, slot int64, err error) {
	err = c.store.Reading(ctx, func(q *sqlx.Tx) error {
		var row graphRow
		err := q.GetContext(ctx, &row,
			`SELECT `+graphColumns+` FROM graph_checkpoints g JOIN checkpoints c ON c.slot = g.slot JOIN runs r ON r.id = g.run_id
			JOIN agents a ON a.id = r.agent_id WHERE g.run_id = ? AND g.slot > ? ORDER BY g.slot LIMIT 1`, c.from, after)
		if err != nil {
			return notThere(err)
		}
		id, slot = row.Graph, row.Slot
		d, err = c.store.graphDocument(ctx, q, &row)
		return err
	})
	return d, id, slot, err
}

// writes copies the writes that the other thread does not have.
func (c *graphCopying) writes() error {
	e := ledger.Entry(c.scope, "copy_thread", c.agent.Name)
	e.Run = c.to.RunName()
	return c.store.Submit(&ledger.Op{Owner: c.scope.Caller.Owner, Entry: e, Do: func(tx *ledger.Tx) error {
		agent, run, err := c.store.graphRun(tx, c.scope, c.agent.Name, c.to)
		if err != nil {
			return err
		}
		var size int64
		if _, err := tx.Get(&size, `SELECT coalesce(sum(length(data)), 0) FROM graph_writes WHERE run_id = ?`, c.from); err != nil {
			return err
		}
		err = tx.Insert(`INSERT INTO graph_writes (run_id, checkpoint, `+graphWriteColumns+`) SELECT ?1, checkpoint, `+graphWriteColumns+`
			FROM graph_writes WHERE run_id = ?2 ON CONFLICT DO NOTHING`, run.ID, c.from)
		if err != nil {
			return err
		}
		tx.Tally.Add(agent.Owner, size)
		e.Detail = map[string]any{"checkpoints": c.copied}
		return tx.Audit(e)
	}})
}
