package db

import (
	"context"
	"encoding/json"
	"errors"
	"maps"
	"slices"

	ckpt "github.com/ckptsidecar/ckptsidecar"
	"github.com/ckptsidecar/ckptsidecar/internal/db/driftlog"
	"github.com/ckptsidecar/ckptsidecar/internal/db/ledger"
	"github.com/ckptsidecar/ckptsidecar/internal/db/sqlite"
	"github.com/ckptsidecar/ckptsidecar/internal/resume"
)

// Resume returns how to continue a run. If that is safe, it makes the caller the owner in the same
// transaction: the epoch rises, and the old owner's next write is refused. A dry run changes
// nothing.
func (s *Store) Resume(_ context.Context, sc ckpt.Scope, r ckpt.ResumeRequest) (*ckpt.Plan, bool, error) {
	if err := r.Check(); err != nil {
		return nil, false, err
	}
	if s.Opt.Resume == nil {
		return nil, false, errors.New("db.Open: Options.Resume is required to resume")
	}
	c := s.Screen(sc, r.Agent, "resume")
	if c.Text("reason", &r.Reason); c.Err != nil {
		return nil, false, c.Err
	}
	c.Command(r.Command)
	if c.Err != nil {
		return nil, false, c.Err
	}
	e := ledger.Entry(sc, "resume", r.Agent)
	e.Run, e.Reason = ledger.RunName(r.Run), r.Reason
	if r.DryRun {
		s.AuditRead(sc, "read_plan", r.Agent, "")
		plan, err := s.look(sc, r)
		return plan, false, err
	}
	plan, replayed, err := driftlog.Keyed(s.Drifts, sc, driftlog.KeyedRequest{
		Agent: r.Agent, Key: r.IdempotencyKey, Print: r, Entry: e, Claim: sqlite.GoesOn, Make: true, Secrets: c.Found,
	}, func(tx *ledger.Tx, agent *ledger.AgentRow) (*ckpt.Plan, error) {
		return s.resume(tx, sc, agent, r, e)
	})
	if replayed && plan.Checkpoint != nil { // the state was not kept with the key
		id := plan.Checkpoint.ID
		if plan.Checkpoint, err = s.again(sc, id); err == nil && plan.Checkpoint == nil { // without it, the plan would say to start from nothing
			err = ckpt.Errorf(ckpt.CodeConflict, "checkpoint %s, from which this plan goes on, was removed or damaged since: "+
				"resume again with another Idempotency-Key", id)
		}
	}
	if err != nil {
		return nil, false, err
	}
	return plan, replayed, nil
}

// look makes the plan without changing anything.
func (s *Store) look(sc ckpt.Scope, r ckpt.ResumeRequest) (*ckpt.Plan, error) {
	var plan *ckpt.Plan
	err := s.Submit(&ledger.Op{Owner: sc.Caller.Owner, Claim: sqlite.GoesOn, Do: func(tx *ledger.Tx) error {
		agent, err := s.Agent(tx, sc.Whose(), r.Agent)
		if err != nil {
			return err
		}
		var run *ledger.RunRow
		if agent != nil {
			if run, err = tx.Run(agent.ID, ledger.RunName(r.Run)); err != nil {
				return err
			}
		}
		if run != nil {
			if err := s.MayOwn(run); err != nil {
				return err
			}
		}
		plan, err = s.plan(tx, sc, agent, run, r)
		return err
	}})
	return plan, err
}

// plan gathers the facts and asks the planner. If all checkpoints that it looks at are damaged, it
// looks at older ones, because the newest states can share one damaged piece.
func (s *Store) plan(tx *ledger.Tx, sc ckpt.Scope, agent *ledger.AgentRow, run *ledger.RunRow, r ckpt.ResumeRequest) (*ckpt.Plan, error) {
	for most := factCheckpoints; ; most *= 16 {
		f, err := s.facts(tx, sc, agent, run, r, most)
		if err != nil {
			return nil, err
		}
		plan, err := s.Opt.Resume(f)
		if err != nil {
			return nil, err
		}
		if plan.Verdict != ckpt.VerdictUnsafe || len(plan.Skipped) < most {
			plan.Agent, plan.Run = r.Agent, ledger.RunName(r.Run)
			if r.Command != nil {
				plan.Command = r.Command
			}
			if r.LeaveUncertain {
				return plan, nil
			}
			return plan, addPrompt(tx, plan)
		}
	}
}

// addPrompt gives a plan that asks about operations the question about the oldest one.
func addPrompt(tx *ledger.Tx, plan *ckpt.Plan) (err error) {
	for i := range plan.UncertainOperations {
		o := &plan.UncertainOperations[i]
		if plan.Verdict == ckpt.VerdictAsk && plan.Prompt == nil && o.NeedsPerson() && o.Prompt != "" {
			plan.Prompt, err = readPrompt(tx, string(o.Prompt))
		}
	}
	return err
}

func (s *Store) resume(tx *ledger.Tx, sc ckpt.Scope, agent *ledger.AgentRow, r ckpt.ResumeRequest, e ledger.AuditEntry) (*ckpt.Plan, error) {
	run, err := tx.Run(agent.ID, ledger.RunName(r.Run))
	if err != nil {
		return nil, err
	}
	if run != nil {
		if err := s.MayOwn(run); err != nil {
			return nil, err
		}
	}
	plan, err := s.plan(tx, sc, agent, run, r)
	if err != nil {
		return nil, err
	}
	if r.LeaveUncertain && run != nil && plan.Verdict != ckpt.VerdictUnsafe {
		if err := mayLeave(tx, agent.Name, run, true, "", &e); err != nil {
			return nil, err
		}
	}
	switch plan.Verdict {
	case ckpt.VerdictUnsafe:
	case ckpt.VerdictAsk:
		if err = s.ask(tx, agent, run, plan); err == nil {
			err = s.noteWaiting(tx, sc, run, r)
		}
	default:
		err = s.claim(tx, sc, agent, run, r, plan)
	}
	if err != nil {
		return nil, err
	}
	if e.Detail == nil {
		e.Detail = map[string]any{}
	}
	maps.Copy(e.Detail, map[string]any{"verdict": plan.Verdict, "epoch": plan.Epoch, "claimed": plan.Claimed, "force": r.Force})
	if plan.Checkpoint != nil {
		e.Subject = plan.Checkpoint.ID
	}
	switch {
	case plan.Claimed:
		e.States(ckpt.RunRunning, plan.Epoch)
	case run != nil:
		e.States(run.Status, run.Epoch)
	}
	return plan, tx.Audit(e)
}

// ask leaves the run to the operator: it marks the run as its owner left it, and makes sure that
// there is one open prompt.
func (s *Store) ask(tx *ledger.Tx, agent *ledger.AgentRow, run *ledger.RunRow, plan *ckpt.Plan) error {
	if run.Status == ckpt.RunRunning {
		if err := s.interruptRun(tx, agent, run, ckpt.RunInterrupted, "its process was gone when the run was resumed"); err != nil {
			return err
		}
	}
	var err error
	if plan.Prompt, err = s.openPrompt(tx, agent, run, plan); err != nil {
		return err
	}
	for i := range plan.UncertainOperations { // as they are now
		o := &plan.UncertainOperations[i]
		row, err := findOperation(tx, run.ID, `o.key = ? AND o.attempt = ?`, o.Key, o.Attempt)
		if err != nil || row == nil {
			return err
		}
		*o = row.Operation
	}
	return nil
}

// noteWaiting notes how the agent is started, and who goes on with its run when a person has answered.
func (s *Store) noteWaiting(tx *ledger.Tx, sc ckpt.Scope, run *ledger.RunRow, r ckpt.ResumeRequest) error {
	var waiting any
	if p := s.owner(sc, r.Waits); p.PID > 0 {
		text, err := json.Marshal(p)
		if err != nil {
			return err
		}
		waiting = string(text)
	}
	return tx.Update(`UPDATE runs SET command = coalesce(?, command), waiting = coalesce(?, waiting) WHERE id = ?`, r.Command, waiting, run.ID)
}

// claim makes the caller the owner.
func (s *Store) claim(tx *ledger.Tx, sc ckpt.Scope, agent *ledger.AgentRow, run *ledger.RunRow, r ckpt.ResumeRequest, plan *ckpt.Plan) error {
	var err error
	var from *ckpt.Checkpoint // the checkpoint that this segment of the run begins from
	closing, existed := ckpt.ClosedBegun, run != nil
	switch {
	case run == nil:
		if run, err = tx.MakeRun(agent.ID, ledger.RunName(r.Run), nil); err != nil {
			return err
		}
		if run.Epoch, err = tx.NextEpoch(0); err != nil {
			return err
		}
	case !run.EndedAt.IsZero():
		existed = false
		if run, err = s.newLife(tx, agent, run, ckpt.RunRunning); err != nil {
			return err
		}
	default:
		if err := s.takeOver(tx, agent, run); err != nil {
			return err
		}
		// If no clean checkpoint is left, an operator has decided to trust this one.
		from, closing = plan.Checkpoint, ckpt.ClosedResumed
	}
	head := run.Head
	if plan.Checkpoint != nil {
		head = ckpt.Ref(plan.Checkpoint.ID)
	}
	err = tx.Update(`UPDATE runs SET status = 'running', epoch = ?, attempt = ?, segment_at = ?, interrupted_at = NULL, head = ?,
		command = coalesce(?, command), waiting = NULL WHERE id = ?`, run.Epoch, run.Attempt, tx.Now, head, r.Command, run.ID)
	if err != nil {
		return err
	}
	run.SegmentAt, run.Head = tx.Now, head
	if existed {
		if err := s.NewStretch(tx, run, from, closing); err != nil {
			return err
		}
		if _, err := s.RetainRun(tx, agent, run, ledger.Entry(sc, "resume", agent.Name)); err != nil { // what only the head kept
			return err
		}
	}
	if err := s.withdrawDecisions(tx, run); err != nil {
		return err
	}
	if err := ownRun(tx, agent, run, s.owner(sc, r.PID), r.HeartbeatTimeout, r.ProgressTimeout); err != nil {
		return err
	}
	plan.Epoch, plan.Attempt, plan.Claimed, plan.AccumulatedMS = run.Epoch, run.Attempt, true, run.AccumulatedMS
	return nil
}

// takeOver ends the old owner's segment and raises the epoch.
func (s *Store) takeOver(tx *ledger.Tx, agent *ledger.AgentRow, run *ledger.RunRow) error {
	const evidence = "its run was taken over by another process"
	if !run.SegmentAt.IsZero() {
		if err := s.interruptRun(tx, agent, run, ckpt.RunInterrupted, evidence); err != nil {
			return err
		}
	}
	if err := s.leaveOpen(tx, agent, run, evidence); err != nil {
		return err
	}
	run.Attempt++
	var err error
	run.Epoch, err = tx.NextEpoch(run.Epoch)
	return err
}

// factCheckpoints is how many checkpoints of each kind a plan looks at first. If none of them is clean,
// the newest clean one is looked up separately.
const factCheckpoints = 64

// facts reads all that a plan needs to know of a run, with at most most checkpoints of each kind.
func (s *Store) facts(tx *ledger.Tx, sc ckpt.Scope, agent *ledger.AgentRow, run *ledger.RunRow, r ckpt.ResumeRequest, most int) (*resume.Facts, error) {
	f := &resume.Facts{Now: tx.Now.Time, Force: r.Force, DryRun: r.DryRun, Claimed: r.Claimed, Leave: r.LeaveUncertain, Autoresume: true}
	if agent != nil {
		f.Autoresume = agent.Settings.Autoresume
		f.Load = func(id string) (*ckpt.Checkpoint, error) {
			return tx.CheckpointOf(agent, ckpt.RestoreRequest{Agent: agent.Name, Checkpoint: id})
		}
	}
	if run == nil {
		f.Run.Agent, f.Run.Run = r.Agent, ledger.RunName(r.Run)
		return f, nil
	}
	shown, err := tx.ShownRun(run.ID)
	if err != nil {
		return nil, err
	}
	f.Run, f.Exists, f.LastEvent = *shown, true, run.LastEvent
	f.Run.Status = run.Status
	f.Run.AccumulatedMS = run.Accumulated(run.LastSign())
	f.OwnerAlive = s.OwnerAlive(run)
	f.CallerOwns = run.PID.Valid && run.Process() == s.owner(sc, r.PID)
	f.OwnerSeen = s.OwnerSeen(run)
	f.OwnerStands = run.Status == ckpt.RunTimedOut && !f.CallerOwns && f.OwnerSeen
	f.Interrupted = run.InterruptedAt.Time
	if run.Status == ckpt.RunRunning && run.PID.Valid && !f.OwnerAlive && !f.CallerOwns {
		f.Interrupted = tx.Now.Time
	}
	if err := readFactCheckpoints(tx, run, f, most); err != nil {
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
	if err := readFactQuestions(tx, run, f); err != nil {
		return nil, err
	}
	return f, readFactFindings(tx, run, f)
}

// goesBackTo returns the number of the checkpoint that the run went back to without saving since,
// or a number above all if there is none. A recovery checkpoint that drift has made does not move
// the head, but it does not mean that the run went back.
func goesBackTo(tx *ledger.Tx, run *ledger.RunRow) (int64, error) {
	const none = int64(1 << 62)
	head := none
	if found, err := tx.Get(&head, `SELECT seq FROM checkpoints WHERE id = ? AND +run_id = ?`, run.Head, run.ID); err != nil || !found {
		return none, err
	}
	var left bool
	_, err := tx.Get(&left, `SELECT EXISTS (SELECT 1 FROM checkpoints c
		WHERE c.run_id = ?1 AND c.kind IN ('routine', 'pre_operation', 'recovery') AND c.seq > ?2
		AND NOT EXISTS (SELECT 1 FROM findings f WHERE f.run_id = ?1 AND c.kind = 'recovery'
		AND (f.closed IS NULL OR f.closed IN ('dismissed', 'recovered'))
		AND (f.checkpoint = c.id OR EXISTS (SELECT 1 FROM json_each(f.earlier) e WHERE e.value ->> 'checkpoint' = c.id))))`,
		run.ID, head)
	if err != nil || !left {
		return none, err
	}
	return head, nil
}

// readFactCheckpoints reads the checkpoints from which the run may continue. If the run went back
// to an earlier one and has saved nothing since, the later ones were given up.
func readFactCheckpoints(tx *ledger.Tx, run *ledger.RunRow, f *resume.Facts, most int) error {
	newest, err := goesBackTo(tx, run)
	if err != nil {
		return err
	}
	var rows []ledger.HeldRow
	err = tx.List(&rows, `SELECT `+ledger.HeldColumns+` FROM checkpoints WHERE slot IN (
			SELECT slot FROM (SELECT slot FROM checkpoints WHERE run_id = ?1 AND kind = 'routine'
				AND seq <= ?2 ORDER BY seq DESC LIMIT 0 + ?3)
			UNION SELECT slot FROM (SELECT slot FROM checkpoints WHERE run_id = ?1 AND kind = 'recovery' AND seq <= ?2
			ORDER BY seq DESC LIMIT 0 + ?3)
			UNION SELECT slot FROM (SELECT slot FROM checkpoints WHERE run_id = ?1 AND kind = 'pre_operation' AND seq <= ?2
			ORDER BY seq DESC LIMIT 0 + ?3)
			UNION SELECT slot FROM (SELECT slot FROM checkpoints WHERE run_id = ?1 AND kind = 'routine' AND seq <= ?2
			AND suspect = 0 ORDER BY seq DESC LIMIT 1)
			UNION SELECT slot FROM (SELECT slot FROM checkpoints WHERE run_id = ?1 AND kind = 'recovery' AND seq <= ?2
			AND suspect = 0 ORDER BY seq DESC LIMIT 1)
			UNION SELECT slot FROM (SELECT slot FROM checkpoints WHERE run_id = ?1 AND kind = 'pre_operation' AND seq <= ?2
			AND suspect = 0 ORDER BY seq DESC LIMIT 1)
			UNION SELECT slot FROM (SELECT slot FROM checkpoints WHERE run_id = ?1 AND seq <= ?2
			AND suspect = 0 AND seq <= `+ledger.SoundUpTo("checkpoints")+` ORDER BY seq DESC LIMIT 1)
			UNION `+ledger.SlotOfFork+`)
		ORDER BY n DESC`, run.ID, newest, most, ledger.ForkWithout(run))
	if err != nil {
		return err
	}
	var sound int64
	if _, err := tx.Get(&sound, `SELECT `+ledger.SoundUpTo("r")+` FROM (SELECT ? AS run_id) r`, run.ID); err != nil {
		return err
	}
	fork := ledger.ForkWithout(run) // its number is of another run
	for _, row := range rows {
		f.Checkpoints = append(f.Checkpoints, resume.FactCheckpoint{ID: row.ID, Seq: row.Seq, Kind: row.Kind,
			Suspect: row.Suspect, Doubtful: row.Seq > sound && ckpt.Ref(row.ID) != fork, At: row.CreatedAt.Value.Time, StateOf: row.StateOf})
	}
	f.LastSeq = run.LastSeq
	_, err = tx.Get(&f.GivenUp, `SELECT count(*) FROM checkpoints WHERE run_id = ? AND seq > ?`, run.ID, newest)
	return err
}

// readFactSteps reads the steps since the oldest checkpoint that may be chosen, and all steps that
// have not ended.
func readFactSteps(tx *ledger.Tx, run *ledger.RunRow, f *resume.Facts) error {
	oldest := int64(0)
	if n := len(f.Checkpoints); n > 0 && run.LastSeq > 0 {
		oldest = f.Checkpoints[n-1].Seq
		for i := range f.Checkpoints {
			oldest = min(oldest, f.Checkpoints[i].StateSeq())
		}
	}
	var rows []ledger.StepRow
	err := tx.List(&rows, `SELECT `+ledger.StepColumns+` FROM steps WHERE run_id = ?1 AND after_seq >= ?2
		UNION SELECT `+ledger.StepColumns+` FROM steps WHERE run_id = ?1 AND status IN ('started', 'interrupted') ORDER BY id`, run.ID, oldest)
	for _, row := range rows {
		f.Steps = append(f.Steps, row.Step)
		f.StepsAfter = append(f.StepsAfter, row.AfterSeq)
	}
	return err
}

func readFactOperations(tx *ledger.Tx, run *ledger.RunRow, f *resume.Facts) error {
	rows, err := unresolved(tx, run)
	for i := range rows {
		f.Operations = append(f.Operations, rows[i].Operation)
	}
	return err
}

func readFactPrompt(tx *ledger.Tx, run *ledger.RunRow, f *resume.Facts) error {
	var err error
	const newest = ` AND p.kind = 'decision' ORDER BY p.rowid DESC LIMIT 1` // not by time: the clock may have been set back
	if f.Prompt, err = promptWhere(tx, `p.run_id = ?`+newest, run.ID); err != nil || f.Prompt != nil {
		return err
	}
	// The decision to begin anew is in the life before.
	f.Prompt, err = promptWhere(tx, `r.agent_id = ? AND r.name = ? AND p.choice = 'reinitialize'`+newest, run.AgentID, ckpt.LifeName(run.Name, 1))
	return err
}

// maxFactQuestions is how many of a run's newest questions a plan looks at.
const maxFactQuestions = 64

// readFactQuestions reads the questions that the run has asked since it last began again.
func readFactQuestions(tx *ledger.Tx, run *ledger.RunRow, f *resume.Facts) error {
	var rows []struct {
		promptRow
		Seq int64 `db:"answered_seq"`
	}
	err := tx.List(&rows, `SELECT `+promptColumns+`, coalesce(p.answered_seq, 0) AS answered_seq`+promptTables+
		`WHERE p.run_id = ? AND p.kind = 'question'
		ORDER BY p.id DESC LIMIT 0 + ?`, run.ID, maxFactQuestions)
	for _, row := range slices.Backward(rows) {
		row.Status = row.StatusAt(tx.Now, ledger.Daemon)
		f.Questions = append(f.Questions, resume.FactQuestion{Prompt: row.Prompt, Seq: row.Seq})
	}
	return err
}

// readFactFindings reads the findings that made the run's checkpoints suspect, and those that are
// open and doubt its states.
func readFactFindings(tx *ledger.Tx, run *ledger.RunRow, f *resume.Facts) error {
	return tx.List(&f.Findings, `SELECT `+driftlog.FindingColumns+driftlog.FindingTables+
		`WHERE f.run_id = ? AND f.since_seq IS NOT NULL AND f.dismissed_at IS NULL
		AND (f.severity = 'critical' OR f.severity = 'warn' AND f.about = 'state')
		ORDER BY f.id DESC LIMIT 0 + ?`, run.ID, factFindings)
}

const factFindings = 16
