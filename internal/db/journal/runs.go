package journal

import (
	"context"
	"encoding/json"

	"github.com/jmoiron/sqlx"

	"github.com/ckptsidecar/ckptsidecar/internal/db/copy"
	"github.com/ckptsidecar/ckptsidecar/internal/fleet"
)

// togetherMost is the most runs that are read with the same statements.
const togetherMost = 64

// readRuns reads the runs that rows name, as they are in the snapshot.
func (r *reading) readRuns(ctx context.Context, q *sqlx.Tx) error {
	todo := r.order
	for len(todo) > 0 && r.fewer == 0 {
		if r.tooMuch(todo[0]) {
			return nil
		}
		n := r.together(todo)
		if err := r.readSome(ctx, q, todo[:n]); err != nil {
			return err
		}
		todo = todo[n:]
	}
	return nil
}

// together is how many of the next runs are read at once. A run that must be read whole is read
// alone, because it may be large.
func (r *reading) together(todo []place) int {
	n := 0
	for n < min(len(todo), togetherMost) && !r.runs[todo[n]].whole {
		n++
	}
	return max(n, 1)
}

// readSome reads several runs with the same statements, or one whole run.
func (r *reading) readSome(ctx context.Context, q *sqlx.Tx, places []place) error {
	list, err := r.find(ctx, q, places)
	if err != nil || len(list) == 0 {
		return err
	}
	for _, read := range []func(context.Context, *sqlx.Tx, []*found) error{r.readRows, r.readStates, r.readPieces, r.readSegments} {
		if err := read(ctx, q, list); err != nil || r.fewer > 0 {
			return err
		}
	}
	for _, run := range list {
		if err := readWrites(ctx, q, run); err != nil {
			return err
		}
		r.Names = append(r.Names, fleet.Name{Owner: run.Owner, Agent: run.Agent, Run: run.Name, UID: run.UID})
		r.Runs = append(r.Runs, run.Run)
	}
	return nil
}

// find finds runs by their places. It notes a run that does not exist, and leaves out a run whose
// import has not ended.
func (r *reading) find(ctx context.Context, q *sqlx.Tx, places []place) (list []*found, err error) {
	var keys [][2]any
	var shipped []place
	for _, p := range places {
		if !r.local[p.ofAgent()] {
			keys, shipped = append(keys, [2]any{r.ids[p.ofAgent()].id, p.run}), append(shipped, p)
		}
	}
	text, err := json.Marshal(keys)
	if err != nil || len(keys) == 0 {
		return nil, err
	}
	rows, err := q.QueryxContext(ctx, runsByName, string(text))
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	var at int
	var run found
	there := make([]bool, len(shipped))
	lines := copy.ScanRuns(&at, &run.id, &run.UID, &run.Term, &run.Status, &run.UpdatedAt, &run.Seq, &run.FirstEvent, &run.thread)
	for rows.Next() {
		if run.Doc, err = lines.Scan(rows); err != nil {
			return nil, err
		}
		there[at] = true
		one := run
		r.place(&one, shipped[at])
		list = append(list, &one)
	}
	for i, p := range shipped {
		if !there[i] {
			r.Names = append(r.Names, fleet.Name{Owner: p.owner, Agent: p.agent, Run: p.run})
		}
	}
	return list, rows.Err()
}

// runsByName reads runs by their agents' numbers and their names.
var runsByName = `SELECT e.key, r.id, r.uid, r.epoch, r.status, r.updated_at, r.last_seq,
	coalesce((SELECT min(seq) FROM events v WHERE v.run_id = r.id), 0), EXISTS (SELECT 1 FROM graph_threads g WHERE g.run_id = r.id), ` + copy.RunColumns + ` FROM json_each(?) e
	CROSS JOIN runs r ON r.agent_id = json_extract(e.value, '$[0]') AND r.name = json_extract(e.value, '$[1]')`

// place completes a found run with what is known of it.
func (r *reading) place(run *found, p place) {
	t := r.runs[p]
	run.place, run.touched, run.Term = p, t, fleet.TermOf(run.Term)
	run.AgentUID, run.Owner, run.Agent, run.Name = r.ids[p.ofAgent()].uid, p.owner, p.agent, p.run
	run.AsOf, run.Whole, run.Gone, run.Named = r.Head, t.whole, r.gone[p], r.ids[p.ofAgent()].named
}

// readRows reads the steps, operations, events and other rows that have changed, or all of them.
func (r *reading) readRows(ctx context.Context, q *sqlx.Tx, list []*found) error {
	for _, run := range list {
		some := run.touched.some
		if run.Whole {
			some = nil
		} else if len(some) == 0 {
			continue
		}
		rows, err := copy.RowsOf(ctx, q, run.id, some)
		if err != nil {
			return err
		}
		for _, c := range rows {
			run.Rows, r.Size = append(run.Rows, fleet.Row{Kind: c.Kind, Key: c.Key, Order: c.Order, Doc: c.Text}), r.Size+int64(len(c.Text))
		}
	}
	return nil
}

// readWrites lists the writes of LangGraph's tasks that still exist, if checkpoints were removed. A
// save also removes older checkpoints.
func readWrites(ctx context.Context, q *sqlx.Tx, run *found) (err error) {
	if run.Whole || !run.thread || !run.touched.removed && len(run.Gone) == 0 {
		return nil
	}
	run.TrimWrites = true
	run.Writes, err = copy.WriteKeys(ctx, q, run.id)
	return err
}
