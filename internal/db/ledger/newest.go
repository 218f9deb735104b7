package ledger

import (
	"context"
	"sync"

	"github.com/jmoiron/sqlx"

	ckpt "github.com/ckptsidecar/ckptsidecar"
)

// newestCheckpoint is the place of the newest checkpoint of an agent.
type newestCheckpoint struct {
	run, seq, n int64
	kind        ckpt.Kind
}

// newestOf remembers the newest checkpoint of each agent, so that an agent with many runs need not
// be searched run by run. No checkpoint of the agent has a greater n than the remembered one. The
// remembered checkpoint may be gone, or its transaction rolled back: then the runs are searched.
// The remembered n only rises, so it is safe to remember it before the transaction commits.
type newestOf struct {
	mu     sync.RWMutex
	agents map[int64]newestCheckpoint
}

// raise remembers a checkpoint if it is newer than the remembered one.
func (o *newestOf) raise(agent int64, c newestCheckpoint) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.agents == nil {
		o.agents = map[int64]newestCheckpoint{}
	}
	if c.n > o.agents[agent].n {
		o.agents[agent] = c
	}
}

func (o *newestOf) of(agent int64) (newestCheckpoint, bool) {
	o.mu.RLock()
	defer o.mu.RUnlock()
	c, known := o.agents[agent]
	return c, known
}

// newestRows reads the newest row that passes a filter. It first looks at the remembered newest
// checkpoint. If that is gone or does not pass, it searches the runs.
func (s *Core) newestRows(ctx context.Context, q sqlx.QueryerContext, agentID int64, f ckpt.CheckpointFilter, state bool) ([]ReadRow, error) {
	if f.Run != "" || len(f.Labels) > 0 {
		return listRows(ctx, q, agentID, f, 1<<62, 1, state)
	}
	if err := CheckFilter(f); err != nil {
		return nil, err
	}
	c, known := s.newest.of(agentID)
	if known {
		rows, err := rememberedRows(ctx, q, agentID, c, f, state)
		if err != nil || len(rows) > 0 {
			return rows, err
		}
	}
	rows, err := listRows(ctx, q, agentID, f, 1<<62, 1, state)
	if err == nil && len(rows) > 0 && f.Kind == "" && f.Suspect == nil && !f.Clean {
		r := &rows[0]
		s.newest.raise(agentID, newestCheckpoint{run: r.RunID, seq: r.Seq, n: r.N, kind: r.Kind})
	}
	return rows, err
}

// rememberedRows reads the remembered checkpoint if it still exists and passes the filter.
func rememberedRows(ctx context.Context, q sqlx.QueryerContext, agentID int64, c newestCheckpoint,
	f ckpt.CheckpointFilter, state bool) ([]ReadRow, error) {
	if f.Kind != "" && f.Kind != c.kind {
		return nil, nil
	}
	columns := ReadColumns + treesColumn
	if state {
		columns += StateColumns
	}
	var rows []ReadRow
	return rows, sqlx.SelectContext(ctx, q, &rows, `SELECT `+columns+`
		FROM checkpoints c CROSS JOIN runs r ON r.id = c.run_id CROSS JOIN agents a ON a.id = r.agent_id
		WHERE c.run_id = ? AND c.kind = ? AND c.seq = ? AND c.n = ? AND a.id = ? AND (?6 IS NULL OR c.suspect = ?6)
		AND (NOT ?7 OR c.suspect = 0 AND c.seq <= `+SoundUpTo("c")+`)`,
		c.run, string(c.kind), c.seq, c.n, agentID, f.Suspect, f.Clean)
}
