package copy

import (
	"cmp"
	"fmt"

	ckpt "github.com/ckptsidecar/ckptsidecar"
	"github.com/ckptsidecar/ckptsidecar/internal/db/ledger"
)

// This file finds out whether an export has more of a run than this database. An import cannot add
// that to the run, so it refuses the export instead of leaving it out.

// moreOf says what the run in an export has that the run here does not have, "" for nothing.
func (r *runSeen) moreOf(run *ledger.RunRow) string {
	switch {
	case run.LastSeq < r.LastSeq:
		return fmt.Sprintf("checkpoint %d, and here it has %d", r.LastSeq, run.LastSeq)
	case run.LastEvent < r.LastEvent:
		return fmt.Sprintf("event %d, and here it has %d", r.LastEvent, run.LastEvent)
	case run.Epoch < r.Epoch:
		return fmt.Sprintf("epoch %d, and here it is %d", r.Epoch, run.Epoch)
	case run.Attempt < r.Attempt:
		return fmt.Sprintf("attempt %d, and here it is %d", r.Attempt, run.Attempt)
	case run.Epoch == r.Epoch && run.Attempt == r.Attempt && over(run.Status) < over(r.Status):
		return fmt.Sprintf("its end: it is %s, and here it is %s", r.Status, run.Status)
	}
	return ""
}

// over orders statuses. Without another attempt, a run never goes back to a lower number.
func over(s ckpt.RunStatus) int {
	switch s {
	case ckpt.RunSuspended, ckpt.RunAwaitingContinuation:
		return 1
	case ckpt.RunCompleted, ckpt.RunFailed:
		return 2
	}
	return 0
}

// known are queries that say whether the run ?1 here has what a row of the export says. ?2 is the key, or the time of a
// finding or prompt, whose id may be another one here.
var known = map[*table]string{
	steps: `SELECT EXISTS (SELECT 1 FROM steps WHERE run_id = ?1 AND key = ?2
		AND (attempt > ?3 OR attempt = ?3 AND (NOT ?4 OR status NOT IN ('started', 'interrupted'))))`,
	operations: `SELECT EXISTS (SELECT 1 FROM operations WHERE run_id = ?1 AND key = ?2
		AND attempt = ?3 AND (NOT ?4 OR status NOT IN ('open', 'uncertain')))`,
	findings: `SELECT EXISTS (SELECT 1 FROM findings WHERE run_id = ?1 AND at = ?2 AND rule = ?3 AND message = ?4
		AND (NOT ?5 OR closed IS NOT NULL) AND (NOT ?6 OR dismissed_at IS NOT NULL))`,
	prompts: `SELECT EXISTS (SELECT 1 FROM prompts WHERE run_id = ?1 AND at = ?2 AND question = ?3
		AND (NOT ?4 OR answered_at IS NOT NULL))`,
	// The writes of a checkpoint go with it.
	graphWrites: `SELECT NOT EXISTS (SELECT 1 FROM graph_checkpoints WHERE run_id = ?1 AND id = ?2)
		OR EXISTS (SELECT 1 FROM graph_writes WHERE run_id = ?1 AND checkpoint = ?2 AND task = ?3 AND idx = ?4)`,
}

// compare refuses an export that has rows of a run that the run here does not have.
func (im *importing) compare(a *agentSeen) error {
	for _, r := range a.runs {
		if !r.present {
			continue
		}
		for _, t := range children {
			query := known[t]
			if query == "" {
				continue
			}
			err := im.each(t, r.ID, func(values []any) error {
				if _, err := im.screenRow(a, r, t, values, "its "+t.kind); err != nil { // a key may have been redacted here
					return err
				}
				args, what := factOf(t, values)
				if what == "" {
					return nil
				}
				var is bool
				if _, err := im.tx.Get(&is, query, append([]any{r.there}, args...)...); err != nil || is {
					return err
				}
				return hasMore(a.target, r.called, what)
			})
			if err != nil {
				return err
			}
		}
		if err := im.compareTrees(a, r); err != nil {
			return err
		}
	}
	return nil
}

// compareTrees refuses an export that has files of a checkpoint that has none here. The names of the trees of a
// checkpoint go with it.
func (im *importing) compareTrees(a *agentSeen, r *runSeen) error {
	var ids []string
	err := im.q.SelectContext(im.ctx, &ids, `SELECT DISTINCT c.id FROM checkpoint_trees x JOIN checkpoints c ON c.n = x.n AND c.run_id = x.run_id
		WHERE x.run_id = ?`, r.ID)
	for _, id := range ids {
		var is bool
		_, err := im.tx.Get(&is, `SELECT NOT EXISTS (SELECT 1 FROM checkpoints c WHERE c.id IN (?2, ?3) AND +c.run_id = ?1
			AND NOT EXISTS (SELECT 1 FROM checkpoint_trees x WHERE x.n = c.n))`, r.there, id,
			otherID(id, &ledger.AgentRow{Owner: im.scope.Whose(), Name: a.target}))
		if err != nil {
			return err
		}
		if !is {
			return hasMore(a.target, r.called, "the files of checkpoint "+id)
		}
	}
	return err
}

// factOf returns what a row says, as arguments for the query and for a person. It says nothing for a row that is not
// compared.
func factOf(t *table, values []any) (args []any, what string) {
	key := t.text(values, t.columns[0].name)
	switch t {
	case steps, operations:
		if key == doubtKey {
			return nil, ""
		}
		attempt, status := t.whole(values, "attempt"), t.text(values, "status")
		open := status == string(ckpt.StepStarted) || status == string(ckpt.StepInterrupted) ||
			status == string(ckpt.OperationOpen) || status == string(ckpt.OperationUncertain)
		return []any{key, attempt, !open}, fmt.Sprintf("%s %s, attempt %d (%s)", t.kind, key, attempt, status)
	case findings:
		closed, dismissed := t.text(values, "closed"), t.at(values, "dismissed_at") != nil
		args = []any{t.at(values, "at"), t.at(values, "rule"), t.at(values, "message"), closed != "", dismissed}
		if dismissed {
			closed = string(ckpt.ClosedDismissed)
		}
		return args, fmt.Sprintf("finding %s (%s)", key, cmp.Or(closed, "open"))
	case prompts:
		status, answered := "open", t.at(values, "answered_at") != nil
		if answered {
			status = "closed"
		}
		return []any{t.at(values, "at"), t.at(values, "question"), answered}, fmt.Sprintf("prompt %s (%s)", key, status)
	}
	return []any{key, t.at(values, "task"), t.at(values, "idx")}, "a write of a LangGraph task for checkpoint " + key
}

func hasMore(agent, run, what string) error {
	return ckpt.Errorf(ckpt.CodeConflict,
		"the export has more of run %s of agent %s than this database (%s): "+
			"import into another agent with --agent, or delete that run first; nothing was imported", run, agent, what)
}
