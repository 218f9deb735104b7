package langgraph

import (
	"context"
	"encoding/json"

	ckpt "github.com/ckptsidecar/ckptsidecar"
	"github.com/jmoiron/sqlx"
)

// graphSearchMost is the most checkpoints that are searched for the values of a put without a parent. If more would
// have to be read for a value, the client is asked for it.
const graphSearchMost = 32

// graphSearch looks for values that a put without a parent leaves out, in the other checkpoints of its thread and
// namespace. LangGraph forks the first checkpoint of a thread with such a put.
type graphSearch struct {
	wanted map[string]ckpt.JSON // the version of each channel
	found  map[string]*graphValue
	doubt  map[string]bool // two forks have different values at one version
}

// graphElsewhere completes a document without a parent, and returns the channels for which the client must be asked. A
// value that no checkpoint of the thread has is left out, as LangGraph's own test suite requires.
func (s *Threads) graphElsewhere(ctx context.Context, sc ckpt.Scope, r *ckpt.GraphPut, d *graphDocument,
	versions map[string]ckpt.JSON) (missing []string, err error) {
	agent, err := s.FindAgent(ctx, sc, r.Agent)
	if ckpt.CodeOf(err) == ckpt.CodeNotFound {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	search := &graphSearch{wanted: map[string]ckpt.JSON{}, found: map[string]*graphValue{}, doubt: map[string]bool{}}
	for _, channel := range r.Carry {
		search.wanted[channel] = versions[channel]
	}
	var all bool
	err = s.Reading(ctx, func(q *sqlx.Tx) error {
		runs, err := graphRuns(ctx, q, agent.ID, &r.Thread, &r.NS)
		if err != nil || len(runs) == 0 {
			all = true
			return err
		}
		all, err = search.run(ctx, s, q, runs[0], r.Carry)
		return err
	})
	if err != nil {
		return nil, err
	}
	for _, channel := range r.Carry {
		switch value := search.found[channel]; {
		case search.doubt[channel] || !all:
			missing = append(missing, channel)
		case value != nil:
			d.Values = append(d.Values, *value)
		}
	}
	return missing, nil
}

// run searches a run, and says whether it has seen all checkpoints that may have the values.
func (g *graphSearch) run(ctx context.Context, s *Threads, q *sqlx.Tx, runID int64, names []string) (all bool, err error) {
	list, err := json.Marshal(names)
	if err != nil {
		return false, err
	}
	var rows []graphRow
	err = q.SelectContext(ctx, &rows, `SELECT `+graphColumns+` FROM graph_checkpoints g JOIN checkpoints c ON c.slot = g.slot
		JOIN runs r ON r.id = g.run_id
		JOIN agents a ON a.id = r.agent_id WHERE g.run_id = ?1 AND EXISTS (SELECT 1 FROM json_each(g.channels)
		WHERE value IN (SELECT value FROM json_each(?2)))
		ORDER BY g.id LIMIT 0 + ?3`, runID, string(list), graphSearchMost+1)
	if err != nil {
		return false, err
	}
	all = len(rows) <= graphSearchMost
	for i := range rows[:min(len(rows), graphSearchMost)] {
		d, err := s.graphDocument(ctx, q, &rows[i])
		if ckpt.CodeOf(err) == ckpt.CodeCorrupt { // the client is asked for its values
			s.Log.Error("a damaged checkpoint is left out of a search", "checkpoint", rows[i].ID, "error", err)
			all = false
			continue
		}
		if err != nil {
			return false, err
		}
		g.look(d)
	}
	return all, nil
}

// look takes the values of a checkpoint whose versions are wanted.
func (g *graphSearch) look(d *graphDocument) {
	for i := range d.Values {
		v := &d.Values[i]
		if version, there := g.wanted[v.Channel]; !there || !sameVersion(v.Version, version) {
			continue
		}
		if other := g.found[v.Channel]; other != nil && (other.Type != v.Type || string(other.Data) != string(v.Data)) {
			g.doubt[v.Channel] = true
		}
		g.found[v.Channel] = v
	}
}
