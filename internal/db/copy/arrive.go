package copy

import (
	"fmt"

	ckpt "github.com/ckptsidecar/ckptsidecar"
	"github.com/ckptsidecar/ckptsidecar/internal/db/blob"
	"github.com/ckptsidecar/ckptsidecar/internal/db/ledger"
	"github.com/ckptsidecar/ckptsidecar/internal/delta"
)

// placed says where the bytes of a segment of the file are here.
type placed struct{ segment, offset int64 }

// logAtOnce is how many rows of the log an import holds in memory.
const logAtOnce = 1000

// checkpoints imports the checkpoints of the missing runs of an agent, in the order in which they were saved.
func (im *importing) checkpoints(agent *ledger.AgentRow, a *agentSeen) error {
	of := map[int64]*runSeen{}
	var list []int64
	for _, r := range a.runs {
		if !r.present {
			of[r.ID], list = r, append(list, r.ID)
		}
	}
	var order []int64
	err := im.q.SelectContext(im.ctx, &order, `SELECT slot FROM checkpoints WHERE run_id IN (SELECT value FROM json_each(?)) ORDER BY n, run_id, seq`,
		jsonList(list))
	if err != nil {
		return err
	}
	query := `SELECT ` + checkpoints.list("", all) + ` FROM checkpoints WHERE slot = ?`
	read, err := im.q.PreparexContext(im.ctx, query)
	if err != nil {
		return err
	}
	defer read.Close()
	for _, slot := range order {
		values, err := read.QueryRowxContext(im.ctx, slot).SliceScan()
		if err != nil {
			return err
		}
		if err := im.checkpoint(agent, a, of[checkpoints.whole(values, "run_id")], values); err != nil {
			return err
		}
	}
	return nil
}

func (im *importing) checkpoint(agent *ledger.AgentRow, a *agentSeen, r *runSeen, values []any) error {
	tx, run := im.tx, r.run
	row, _, err := readCheckpoint(values)
	if err != nil {
		return err
	}
	row.N = tx.Head.N + 1
	old := row.ID
	if row.ID, err = im.own(agent, old, `SELECT r.agent_id`+ledger.OwnedTables+`?`, old, agent.Owner); err != nil {
		return err
	}
	parentN := int64(0)
	if parent := string(row.Parent); parent != "" && parent == r.old {
		row.Parent, parentN = ckpt.Ref(r.parent), r.parentN
	} else if parent != "" {
		here, err := im.here(agent, parent)
		if err != nil {
			return err
		}
		row.Parent = ckpt.Ref(here)
	}
	state, report, err := im.state(a, r, values)
	if err != nil {
		return err
	}
	last, head := run.LastSeq, run.Head
	list, err := tx.InsertRow(run, row, state)
	if err != nil {
		return err
	}
	run.LastSeq, run.Head = last, head // they are final since the run was made
	run.Removed--
	r.keep(row.N, list)
	graph := row.ContentType == ckpt.ContentTypeGraph
	if graph && im.logged { // a state whose row of LangGraph's the file does not have stays without one
		if err := im.q.GetContext(im.ctx, &graph, `SELECT EXISTS (SELECT 1 FROM graph_checkpoints WHERE slot = ?)`, checkpoints.at(values, "slot")); err != nil {
			return err
		}
	}
	if graph {
		if state.State == nil {
			if state.State, err = blob.Decode(im.ctx, im.q, stateRow(values)); err != nil {
				return err
			}
		}
		if err := im.graphImported(tx, agent, run, row.Seq, state.State); err != nil {
			return err
		}
	}
	im.report.Imported++
	e := ledger.Entry(im.scope, "import", agent.Name)
	e.Run, e.Subject = run.Name, row.ID
	e.Detail = map[string]any{"from_owner": a.owner, "from_seq": row.Seq}
	if e.Save, err = tx.Facts(run, row, state, parentN); err != nil {
		return err
	}
	r.old, r.parent, r.parentN = old, row.ID, row.N
	if err := tx.Audit(e); err != nil {
		return err
	}
	if err := report(); err != nil {
		return err
	}
	if im.held++; im.held < logAtOnce {
		return nil
	}
	im.held = 0
	return tx.WriteLog()
}

// state is the state of a checkpoint as it is stored here. Bytes that are in the file are not compressed again.
func (im *importing) state(a *agentSeen, r *runSeen, values []any) (*blob.Encoded, func() error, error) {
	row := stateRow(values)
	var e blob.Encoded
	report := func() error { return nil }
	if r.unscreened {
		state, err := blob.Decode(im.ctx, im.q, row)
		if err == nil {
			state, report, err = im.screen(a, r, state, ckpt.IsJSON(checkpoints.text(values, "content_type")), "a state")
		}
		if err != nil {
			return nil, nil, err
		}
		e = blob.Encode(state)
	} else if row.Pieces == nil {
		e = blob.Kept(row.Size, row.SHA256, row.Body, nil, 0, nil)
	} else {
		pieces, fresh, data, err := im.pieces(r, *row.Pieces)
		if err != nil {
			return nil, nil, err
		}
		e = blob.Kept(row.Size, row.SHA256, nil, pieces, fresh, data)
	}
	if of, is := checkpoints.at(values, "state_of").(int64); is {
		e.Of.Int64, e.Of.Valid = of, true
	}
	return &e, report, nil
}

// pieces replaces the segments in a list. The segments that are not here yet become one, because a checkpoint brings at
// most one.
func (im *importing) pieces(r *runSeen, text string) (list []delta.Piece, fresh int64, data []byte, err error) {
	if list, err = blob.ReadPieces(text); err != nil {
		return nil, 0, nil, err
	}
	var brought []segmentRow
	now := map[int64]placed{}
	for i := range list {
		p := &list[i]
		at, met := now[p.Segment]
		if !met {
			if at, met = r.segments[p.Segment]; !met {
				if r.closed[p.Segment] {
					return nil, 0, nil, refused("the export has checkpoints that use segment %d and are not next to one another", p.Segment)
				}
				var row segmentRow
				if err := im.q.GetContext(im.ctx, &row, `SELECT size, data FROM segments WHERE id = ? AND run_id = ?`, p.Segment, r.ID); err != nil {
					return nil, 0, nil, fmt.Errorf("segment %d: %w", p.Segment, err)
				}
				at = placed{delta.New, fresh}
				fresh += row.Size
				brought = append(brought, row)
			}
			now[p.Segment] = at
		}
		p.Segment, p.Offset = at.segment, p.Offset+at.offset
	}
	if data, err = joined(brought); err != nil {
		return nil, 0, nil, err
	}
	for id := range r.segments {
		if _, still := now[id]; !still {
			r.closed[id] = true
		}
	}
	r.segments = now
	return list, fresh, data, nil
}

// segmentRow is a segment of a file.
type segmentRow struct {
	Size int64  `db:"size"`
	Data []byte `db:"data"`
}

// joined is the stored form of the bytes of some segments, one after the other.
func joined(list []segmentRow) ([]byte, error) {
	switch len(list) {
	case 0:
		return nil, nil
	case 1:
		return list[0].Data, nil
	}
	var all []byte
	for _, row := range list {
		plain, err := blob.Inflate(row.Data, row.Size)
		if err != nil {
			return nil, err
		}
		all = append(all, plain...)
	}
	return blob.Deflate(all), nil
}

// keep notes where the bytes of a checkpoint's segments are once it has its number.
func (r *runSeen) keep(n int64, list []delta.Piece) {
	if list == nil {
		return
	}
	for id, at := range r.segments {
		if at.segment == delta.New {
			r.segments[id] = placed{n, at.offset}
		}
	}
}

// sameGraphs refuses a file whose rows of LangGraph's checkpoints are not those of the states.
func (im *importing) sameGraphs(_ *ledger.AgentRow, a *agentSeen) error {
	for _, r := range a.runs {
		if r.present || r.run.Ago() > 0 || !im.logged {
			continue
		}
		err := im.each(graphCheckpoints, r.ID, func(values []any) error {
			t := graphCheckpoints
			var is bool
			_, err := im.tx.Get(&is, `SELECT EXISTS (SELECT 1 FROM graph_checkpoints WHERE run_id = ? AND id = ? AND parent IS ? AND channels = ?)`,
				r.run.ID, t.at(values, "id"), t.at(values, "parent"), t.at(values, "channels"))
			if err == nil && !is {
				err = refused("LangGraph's checkpoint %s in the export is not that of its state", cut(t.text(values, "id")))
			}
			return err
		})
		if err != nil {
			return err
		}
	}
	return nil
}
