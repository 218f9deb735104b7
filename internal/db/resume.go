package db

import (
	"context"
	"errors"

	ckpt "github.com/ckptsidecar/ckptsidecar"
	"github.com/ckptsidecar/ckptsidecar/internal/db/sqlite"
)

// Resume answers how to go on with a run and, where that is safe, makes the
// caller its owner in the same transaction: the epoch rises, and the old
// owner's next write is refused. A dry run only looks.
func (s *Store) Resume(_ context.Context, sc ckpt.Scope, r ckpt.ResumeRequest) (*ckpt.Plan, bool, error) {
	if err := r.Check(); err != nil {
		return nil, false, err
	}
	if s.opt.Resume == nil {
		return nil, false, errors.New("db.Open: Options.Resume is required to resume")
	}
	c := s.screen(sc, r.Agent, "resume")
	if c.text("reason", &r.Reason); c.err != nil {
		return nil, false, c.err
	}
	e := entry(sc, "resume", r.Agent)
	e.Run, e.Reason = runName(r.Run), r.Reason
	if r.DryRun {
		s.auditForeign(sc, "read_plan", r.Agent, "")
		plan, err := s.look(sc, r)
		return plan, false, err
	}
	plan, replayed, err := keyed(s.drifts, sc, keyedRequest{agent: r.Agent, key: r.IdempotencyKey, print: r, entry: e, claim: sqlite.GoesOn, make: true, secrets: c.found}, func(tx *tx, agent *agentRow) (*ckpt.Plan, error) {
		return s.resume(tx, sc, agent, r, e)
	})
	if replayed && plan.Checkpoint != nil { // the state was not kept with the key
		plan.Checkpoint, err = s.again(sc, plan.Checkpoint.ID)
	}
	return plan, replayed, err
}

// look makes the plan and changes nothing.
func (s *Store) look(sc ckpt.Scope, r ckpt.ResumeRequest) (*ckpt.Plan, error) {
	var plan *ckpt.Plan
	err := s.write(&op{owner: sc.Caller.Owner, claim: sqlite.GoesOn, apply: func(tx *tx) error {
		agent, err := s.agent(tx, sc.Whose(), r.Agent)
		if err != nil {
			return err
		}
		var run *runRow
		if agent != nil {
			if run, err = tx.run(agent.ID, runName(r.Run)); err != nil {
				return err
			}
		}
		plan, err = s.plan(tx, sc, agent, run, r)
		return err
	}})
	return plan, err
}

// plan gathers the facts and asks the planner.
func (s *Store) plan(tx *tx, sc ckpt.Scope, agent *agentRow, run *runRow, r ckpt.ResumeRequest) (*ckpt.Plan, error) {
	f, err := s.facts(tx, sc, agent, run, r)
	if err != nil {
		return nil, err
	}
	plan, err := s.opt.Resume(f)
	if err == nil {
		plan.Agent, plan.Run = r.Agent, runName(r.Run)
	}
	return plan, err
}

func (s *Store) resume(tx *tx, sc ckpt.Scope, agent *agentRow, r ckpt.ResumeRequest, e auditEntry) (*ckpt.Plan, error) {
	run, err := tx.run(agent.ID, runName(r.Run))
	if err != nil {
		return nil, err
	}
	plan, err := s.plan(tx, sc, agent, run, r)
	if err != nil {
		return nil, err
	}
	switch plan.Verdict {
	case ckpt.VerdictUnsafe:
	case ckpt.VerdictAsk:
		err = s.ask(tx, agent, run, plan)
	default:
		err = s.claim(tx, sc, agent, run, r, plan)
	}
	if err != nil {
		return nil, err
	}
	e.Detail = map[string]any{"verdict": plan.Verdict, "epoch": plan.Epoch, "claimed": plan.Claimed, "force": r.Force}
	if plan.Checkpoint != nil {
		e.Subject = plan.Checkpoint.ID
	}
	return plan, tx.audit(e)
}

// ask leaves the run to the operator: it is settled as its owner left it, and
// there is one open prompt.
func (s *Store) ask(tx *tx, agent *agentRow, run *runRow, plan *ckpt.Plan) error {
	if run.Status == ckpt.RunRunning {
		if err := interruptRun(tx, run, ckpt.RunInterrupted); err != nil {
			return err
		}
	}
	var err error
	plan.Prompt, err = s.openPrompt(tx, agent, run, plan)
	return err
}

// claim makes the caller the owner.
func (s *Store) claim(tx *tx, sc ckpt.Scope, agent *agentRow, run *runRow, r ckpt.ResumeRequest, plan *ckpt.Plan) error {
	var err error
	var from *ckpt.Checkpoint // of this beginning of the run
	closing, existed := ckpt.ClosedBegun, run != nil
	switch {
	case run == nil:
		if run, err = tx.makeRun(agent.ID, runName(r.Run)); err != nil {
			return err
		}
	case !run.EndedAt.IsZero():
		if err := beginAnew(tx, run); err != nil {
			return err
		}
	default:
		if err := takeOver(tx, run); err != nil {
			return err
		}
		// Where no clean checkpoint is left, an operator has decided to trust this one.
		from, closing = plan.Checkpoint, ckpt.ClosedResumed
	}
	head := run.Head
	if plan.Checkpoint != nil {
		head = ckpt.Ref(plan.Checkpoint.ID)
	}
	err = tx.exec(`UPDATE runs SET status = 'running', epoch = ?, attempt = ?, segment_at = ?, interrupted_at = NULL, head = ? WHERE id = ?`,
		run.Epoch, run.Attempt, tx.now, head, run.ID)
	if err != nil {
		return err
	}
	run.SegmentAt, run.Head = tx.now, head
	if existed {
		if err := s.newStretch(tx, run, from, closing); err != nil {
			return err
		}
		if _, err := s.retainRun(tx, agent, run, entry(sc, "resume", agent.Name)); err != nil { // what only the head had kept
			return err
		}
	}
	if err := withdrawPrompts(tx, run); err != nil {
		return err
	}
	if err := ownRun(tx, agent, run, s.owner(sc, r.PID), r.HeartbeatTimeout, r.ProgressTimeout); err != nil {
		return err
	}
	plan.Epoch, plan.Attempt, plan.Claimed, plan.AccumulatedMS = run.Epoch, run.Attempt, true, run.AccumulatedMS
	return nil
}

// takeOver ends the old owner's segment and raises the epoch.
func takeOver(tx *tx, run *runRow) error {
	if !run.SegmentAt.IsZero() {
		if err := interruptRun(tx, run, ckpt.RunInterrupted); err != nil {
			return err
		}
	}
	if err := leaveOpen(tx, run); err != nil {
		return err
	}
	run.Epoch++
	run.Attempt++
	return nil
}

// factCheckpoints is how many checkpoints of each kind a plan looks at. Beyond
// them the newest clean one is looked up by itself.
const factCheckpoints = 64

// facts are all that is known of a run.
func (s *Store) facts(tx *tx, sc ckpt.Scope, agent *agentRow, run *runRow, r ckpt.ResumeRequest) (*ckpt.Facts, error) {
	f := &ckpt.Facts{Now: tx.now.Time, Force: r.Force, DryRun: r.DryRun, Autoresume: true}
	if agent != nil {
		f.Autoresume = agent.policy.Autoresume
		f.Load = func(id string) (*ckpt.Checkpoint, error) {
			return tx.checkpointOf(agent, ckpt.RestoreRequest{Agent: agent.Name, Checkpoint: id})
		}
	}
	if run == nil {
		return f, nil
	}
	shown, err := tx.shownRun(run.ID)
	if err != nil {
		return nil, err
	}
	f.Run, f.Exists, f.LastEvent = *shown, true, run.LastEvent
	f.Run.Status = run.Status
	f.Run.AccumulatedMS = run.accumulated(run.lastSign())
	f.OwnerAlive = s.alive(run)
	f.CallerOwns = run.PID.Valid && run.process() == s.owner(sc, r.PID)
	f.Interrupted = run.InterruptedAt.Time
	if run.Status == ckpt.RunRunning && run.PID.Valid && !f.OwnerAlive && !f.CallerOwns {
		f.Interrupted = tx.now.Time
	}
	if err := readFactCheckpoints(tx, run, f); err != nil {
		return nil, err
	}
	if err := readFactSteps(tx, run, f); err != nil {
		return nil, err
	}
	if err := readFactOperations(tx, run, f); err != nil {
		return nil, err
	}
	if err := readFactPrompt(tx, run, f); err != nil {
		return nil, err
	}
	return f, readFactFindings(tx, run, f)
}

// factCheckpoints are those that the run may go on from. Where an earlier one
// was restored and nothing saved since, what came after it was given up.
func readFactCheckpoints(tx *tx, run *runRow, f *ckpt.Facts) error {
	newest := int64(1 << 62)
	if _, err := tx.get(&newest, `SELECT seq FROM checkpoints WHERE id = ? AND run_id = ?`, run.Head, run.ID); err != nil {
		return err
	}
	var rows []heldRow
	err := tx.List(&rows, `SELECT `+heldColumns+` FROM checkpoints WHERE n IN (
			SELECT n FROM (SELECT n FROM checkpoints WHERE run_id = ?1 AND kind = 'routine' AND seq > ?2 AND seq <= ?5 ORDER BY seq DESC LIMIT ?3)
			UNION SELECT n FROM (SELECT n FROM checkpoints WHERE run_id = ?1 AND kind = 'recovery' AND seq > ?2 AND seq <= ?5 ORDER BY seq DESC LIMIT ?3)
			UNION SELECT n FROM (SELECT n FROM checkpoints WHERE run_id = ?1 AND kind = 'pre_operation' AND seq > ?2 AND seq <= ?5 ORDER BY seq DESC LIMIT ?3)
			UNION SELECT n FROM (SELECT n FROM checkpoints WHERE run_id = ?1 AND kind = 'routine' AND seq > ?2 AND seq <= ?5 AND suspect = 0 ORDER BY seq DESC LIMIT 1)
			UNION SELECT n FROM (SELECT n FROM checkpoints WHERE run_id = ?1 AND kind = 'recovery' AND seq > ?2 AND seq <= ?5 AND suspect = 0 ORDER BY seq DESC LIMIT 1)
			UNION SELECT n FROM (SELECT n FROM checkpoints WHERE run_id = ?1 AND kind = 'pre_operation' AND seq > ?2 AND seq <= ?5 AND suspect = 0 ORDER BY seq DESC LIMIT 1)
			UNION SELECT n FROM checkpoints WHERE id = ?4)
		ORDER BY n DESC`, run.ID, run.BaseSeq, factCheckpoints, forkWithout(run), newest)
	if err != nil {
		return err
	}
	for _, row := range rows {
		f.Checkpoints = append(f.Checkpoints, ckpt.FactCheckpoint{ID: row.ID, Seq: row.Seq, Kind: row.Kind, Suspect: row.Suspect, At: row.CreatedAt.value.Time, StateOf: row.StateOf})
		if row.Seq == 1 && run.LastSeq > 0 && run.BaseSeq == 0 {
			f.Initial, err = f.Load(row.ID)
			if code := ckpt.CodeOf(err); err != nil && code != ckpt.CodeCorrupt {
				return err
			}
		}
	}
	return nil
}

// factSteps are those since the oldest checkpoint that may be chosen, and all
// that have no end.
func readFactSteps(tx *tx, run *runRow, f *ckpt.Facts) error {
	oldest := int64(0)
	if n := len(f.Checkpoints); n > 0 && run.LastSeq > run.BaseSeq {
		oldest = f.Checkpoints[n-1].Seq
		for i := range f.Checkpoints {
			oldest = min(oldest, f.Checkpoints[i].StateSeq())
		}
	}
	var rows []stepRow
	err := tx.List(&rows, `SELECT `+stepColumns+` FROM steps WHERE run_id = ?1 AND after_seq >= ?2
		UNION SELECT `+stepColumns+` FROM steps WHERE run_id = ?1 AND status IN ('started', 'interrupted') ORDER BY id`, run.ID, oldest)
	for _, row := range rows {
		f.Steps = append(f.Steps, row.Step)
		f.StepsAfter = append(f.StepsAfter, row.AfterSeq)
	}
	return err
}

func readFactOperations(tx *tx, run *runRow, f *ckpt.Facts) error {
	var rows []operationRow
	err := tx.List(&rows, `SELECT `+operationColumns+` FROM operations WHERE run_id = ? AND status IN ('open', 'uncertain') ORDER BY id`, run.ID)
	for _, row := range rows {
		f.Operations = append(f.Operations, row.Operation)
	}
	return err
}

func readFactPrompt(tx *tx, run *runRow, f *ckpt.Facts) error {
	var p ckpt.Prompt
	found, err := tx.get(&p, `SELECT `+promptColumns+promptTables+`WHERE p.run_id = ? ORDER BY p.at DESC, p.id DESC LIMIT 1`, run.ID)
	if found {
		f.Prompt = &p
	}
	return err
}

// factFindings are what made suspects of the run's checkpoints.
func readFactFindings(tx *tx, run *runRow, f *ckpt.Facts) error {
	return tx.List(&f.Findings, `SELECT `+findingColumns+findingTables+`WHERE f.run_id = ? AND f.severity = 'critical' AND f.since_seq IS NOT NULL AND f.dismissed_at IS NULL
		ORDER BY f.id DESC LIMIT ?`, run.ID, factFindings)
}

const factFindings = 16
