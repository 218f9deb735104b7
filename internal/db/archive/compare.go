package archive

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	ckpt "github.com/ckptsidecar/ckptsidecar"
	"github.com/ckptsidecar/ckptsidecar/internal/db/ledger"
	"github.com/ckptsidecar/ckptsidecar/internal/db/sqlite"
)

// This file finds out whether an export has more of a run than this database. An import cannot add
// that to the run, so it refuses the export instead of leaving it out.

// moreOf says what the line of a run in an export has that the run here does not have, "" for
// nothing.
func (r *runSeen) moreOf(run *ledger.RunRow) string {
	switch {
	case run.LastSeq < r.lastSeq:
		return fmt.Sprintf("checkpoint %d, and here it has %d", r.lastSeq, run.LastSeq)
	case run.LastEvent < r.lastEvent:
		return fmt.Sprintf("event %d, and here it has %d", r.lastEvent, run.LastEvent)
	case run.Epoch < r.epoch:
		return fmt.Sprintf("epoch %d, and here it is %d", r.epoch, run.Epoch)
	case run.Attempt < r.attempt:
		return fmt.Sprintf("attempt %d, and here it is %d", r.attempt, run.Attempt)
	case run.Epoch == r.epoch && run.Attempt == r.attempt && over(run.Status) < over(r.status):
		return fmt.Sprintf("its end: it is %s, and here it is %s", r.status, run.Status)
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

// fact is what a line of an export says about a row of a run.
type fact struct {
	agent *agentSeen
	run   *runSeen
	kind  string
	id    any
	args  []any  // the other arguments of the query of known
	what  string // for a person
}

// known are, by the kind of a line, queries that say whether the run ?1 here has what the line
// says. ?2 is the key, the id of a checkpoint, or the time of a finding or prompt, whose id may be
// another one here.
var known = map[string]string{
	lineStep: `SELECT EXISTS (SELECT 1 FROM steps WHERE run_id = ?1 AND key = ?2
		AND (attempt > ?3 OR attempt = ?3 AND (NOT ?4 OR status NOT IN ('started', 'interrupted'))))`,
	lineOperation: `SELECT EXISTS (SELECT 1 FROM operations WHERE run_id = ?1 AND key = ?2
		AND attempt = ?3 AND (NOT ?4 OR status NOT IN ('open', 'uncertain')))`,
	lineFinding: `SELECT EXISTS (SELECT 1 FROM findings WHERE run_id = ?1 AND at = ?2 AND rule = ?3 AND message = ?4
		AND (NOT ?5 OR closed IS NOT NULL) AND (NOT ?6 OR dismissed_at IS NOT NULL))`,
	linePrompt: `SELECT EXISTS (SELECT 1 FROM prompts WHERE run_id = ?1 AND at = ?2 AND question = ?3
		AND (NOT ?4 OR answered_at IS NOT NULL))`,
	// The writes of a checkpoint, and the names of its trees, go with it.
	lineWrite: `SELECT NOT EXISTS (SELECT 1 FROM graph_checkpoints WHERE run_id = ?1 AND id = ?2)
		OR EXISTS (SELECT 1 FROM graph_writes WHERE run_id = ?1 AND checkpoint = ?2 AND task = ?3 AND idx = ?4)`,
	lineTrees: `SELECT NOT EXISTS (SELECT 1 FROM checkpoints c WHERE c.id IN (?2, ?3) AND +c.run_id = ?1
		AND NOT EXISTS (SELECT 1 FROM checkpoint_trees x WHERE x.n = c.n))`,
}

// compare refuses an export that has rows of a run that the run here does not have.
func (im *importing) compare(ctx context.Context) error {
	if !slices.ContainsFunc(im.contents.agents, func(a *agentSeen) bool {
		return slices.ContainsFunc(a.order, func(r *runSeen) bool { return r.present })
	}) {
		return nil
	}
	var facts []fact
	size := 0
	check := func() error {
		list := facts
		facts, size = facts[:0], 0
		if err := ctx.Err(); err != nil {
			return sqlite.ReadError(err)
		}
		return im.store.Submit(&ledger.Op{Owner: im.scope.Caller.Owner, Claim: sqlite.GoesOn, Do: func(tx *ledger.Tx) error {
			for i := range list {
				if err := list[i].check(tx); err != nil {
					return err
				}
			}
			return nil
		}})
	}
	err := im.contents.each(im.aside, func(l *exportLine, a *agentSeen) error {
		r := a.runs[l.Run]
		if r == nil || !r.present {
			return nil
		}
		f, err := im.factOf(l, a, r)
		if err != nil || f == nil {
			return err
		}
		facts, size = append(facts, *f), size+len(l.Row)
		if len(facts) < importRowsAtOnce && size < importBytesAtOnce {
			return nil
		}
		return check()
	})
	if err == nil {
		err = check()
	}
	return err
}

// factOf returns what a line says, nil if that is not compared.
func (im *importing) factOf(l *exportLine, a *agentSeen, r *runSeen) (*fact, error) {
	f := &fact{agent: a, run: r, kind: l.Type}
	if l.Type == lineTrees {
		named, err := readTrees(l)
		if err != nil {
			return nil, err
		}
		f.id, f.what = named.Checkpoint, "the files of checkpoint "+named.Checkpoint
		f.args = []any{otherID(named.Checkpoint, &ledger.AgentRow{Owner: im.scope.Whose(), Name: a.target})}
		return f, nil
	}
	t := tableOf(l.Type)
	if t == nil || known[t.kind] == "" {
		return nil, nil
	}
	text := slices.Clone(l.Row)
	if a.secrets == ckpt.SecretsRedact { // a key may have been redacted here
		var err error
		if text, _, err = im.screen(a, r, text, true, "its "+t.kind); err != nil {
			return nil, err
		}
	}
	row, err := t.parseRow(text)
	if err != nil {
		return nil, err
	}
	id := t.text(row, t.columns[0].name)
	f.id = id
	switch t.kind {
	case lineStep, lineOperation:
		if id == halfKey {
			return nil, nil
		}
		attempt, status := t.whole(row, "attempt"), t.text(row, "status")
		open := status == string(ckpt.StepStarted) || status == string(ckpt.StepInterrupted) ||
			status == string(ckpt.OperationOpen) || status == string(ckpt.OperationUncertain)
		f.args = []any{attempt, !open}
		f.what = fmt.Sprintf("%s %s, attempt %d (%s)", t.kind, id, attempt, status)
	case lineFinding:
		closed, dismissed := t.text(row, "closed"), t.at(row, "dismissed_at") != nil
		f.id, f.args = t.at(row, "at"), []any{t.at(row, "rule"), t.at(row, "message"), closed != "", dismissed}
		if dismissed {
			closed = string(ckpt.ClosedDismissed)
		}
		f.what = fmt.Sprintf("finding %s (%s)", id, cmp.Or(closed, "open"))
	case linePrompt:
		status, answered := "open", t.at(row, "answered_at") != nil
		if answered {
			status = "closed"
		}
		f.id, f.args = t.at(row, "at"), []any{t.at(row, "question"), answered}
		f.what = fmt.Sprintf("prompt %s (%s)", id, status)
	case lineWrite:
		f.args = []any{t.at(row, "task"), t.at(row, "idx")}
		f.what = "a write of a LangGraph task for checkpoint " + id
	}
	return f, nil
}

func (f *fact) check(tx *ledger.Tx) error {
	var is bool
	if _, err := tx.Get(&is, known[f.kind], append([]any{f.run.there, f.id}, f.args...)...); err != nil || is {
		return err
	}
	return hasMore(f.agent.target, f.run.called, f.what)
}

func hasMore(agent, run, what string) error {
	return ckpt.Errorf(ckpt.CodeConflict,
		"the export has more of run %s of agent %s than this database (%s): "+
			"import into another agent with --agent, or delete that run first; nothing was imported", run, agent, what)
}
