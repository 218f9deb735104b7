package saves

import (
	"context"

	ckpt "github.com/ckptsidecar/ckptsidecar"
	"github.com/ckptsidecar/ckptsidecar/internal/db/ledger"
	"github.com/ckptsidecar/ckptsidecar/internal/wellformed"
)

// Save puts a state on disk. It returns after the transaction is flushed that holds the state and
// everything that the save implies: the pruning of its run, the idempotency key, the audit rows.
func (s *Saves) Save(ctx context.Context, sc ckpt.Scope, r *ckpt.SaveRequest) (saved *ckpt.Saved, err error) {
	if err := wellformed.SaveRest(r); err != nil {
		return nil, err
	}
	v, err := s.NewSave(ctx, sc, r)
	if err != nil {
		return nil, err
	}
	defer v.Leave()
	err = s.Submit(&ledger.Op{Owner: sc.Caller.Owner, Size: int64(len(r.State)), Entry: v.Entry, Do: func(tx *ledger.Tx) (err error) {
		saved, err = s.Put(tx, v)
		return err
	}})
	if err != nil {
		return nil, err
	}
	return saved, nil
}

// Put is one save inside the writer's transaction. A repeated save is answered again, even if it would be refused now. A save that is
// refused has changed nothing.
func (s *Saves) Put(tx *ledger.Tx, v *Save) (*ckpt.Saved, error) {
	t, err := s.find(tx, v)
	if err != nil {
		return nil, err
	}
	tx.Touches() // what a save changes, it changes in the run cache too
	if saved, err := s.replayed(tx, v, t); saved != nil || err != nil {
		return saved, err
	}
	if err := s.mayPut(tx, v, t); err != nil {
		return nil, err
	}
	if err := s.openRun(tx, v, t); err != nil {
		return nil, err
	}
	reply, err := s.take(tx, v, t)
	if err != nil {
		return nil, err
	}
	saved := v.answer(t.agent, reply)
	if saved.Drift, err = s.VerdictFor(tx, t.agent, t.run.Name); err != nil || v.key == v.Request.ID {
		return saved, err
	}
	return saved, tx.RememberText(t.agent.ID, v.key, v.print, AppendReply(nil, &reply))
}

// Take writes a checkpoint that was admitted and has no key, with all consequences for its run. Its operation changes the run further, so the
// run cache does not get the run.
func (s *Saves) Take(tx *ledger.Tx, v *Save, agent *ledger.AgentRow, run *ledger.RunRow) (ledger.SavedReply, error) {
	return s.take(tx, v, &target{agent: agent, run: run})
}

// take reads what the writer must know of a checkpoint that may be made, decides what becomes of its run, and writes all of it.
func (s *Saves) take(tx *ledger.Tx, v *Save, t *target) (ledger.SavedReply, error) {
	f, err := s.factsOf(tx, v, t)
	if err != nil {
		return ledger.SavedReply{}, err
	}
	d := decide(f, s.Opt.Retention)
	err = s.apply(tx, f, d) // it completes the reply
	return d.reply, err
}

// target is where a save goes.
type target struct {
	agent *ledger.AgentRow  // nil if there is none yet
	run   *ledger.RunRow    // nil if there is none yet
	known *ledger.CachedRun // of the run cache; nil if the run is not there

	cached bool // the run cache gets the run as the save leaves it
	idSeen bool // somebody has saved under the id of the save
}

// find looks up the agent and the run of a save. If its operation has changed something before, the run cache may not know.
func (s *Saves) find(tx *ledger.Tx, v *Save) (*target, error) {
	t := &target{cached: true}
	var err error
	if t.agent, err = s.Agent(tx, v.Scope.Whose(), v.Request.Agent); err != nil || t.agent == nil {
		return t, err
	}
	name := ledger.RunName(v.Request.Run)
	if known := s.RunCache.Get(t.agent.ID, name); known != nil && !tx.Wrote {
		run := known.Run
		t.known, t.run = known, &run
		return t, nil
	}
	t.run, err = tx.Run(t.agent.ID, name)
	return t, err
}

// openRun makes the agent and the run if they do not exist, and revives a run that was found dead.
func (s *Saves) openRun(tx *ledger.Tx, v *Save, t *target) (err error) {
	if t.run != nil {
		return s.Revive(tx, t.run, v.Scope)
	}
	if t.agent == nil {
		if t.agent, err = s.MakeAgent(tx, v.Scope.Whose(), v.Request.Agent); err != nil {
			return err
		}
	}
	if t.run, err = tx.MakeRun(t.agent.ID, ledger.RunName(v.Request.Run), v.Request.Epoch); err != nil || v.Request.ForkFrom == "" {
		return err
	}
	return v.fork(tx, t.agent, t.run)
}

// fork notes what a new run was forked from. In the same agent, that is the parent of its first
// checkpoint.
func (v *Save) fork(tx *ledger.Tx, agent *ledger.AgentRow, run *ledger.RunRow) error {
	from := v.Request.ForkFrom
	if v.Request.Parent == "" {
		switch err := CheckParent(tx, agent, string(from)); {
		case err == nil:
			run.Head = from
		case ckpt.CodeOf(err) != ckpt.CodeNotFound:
			return err
		}
	}
	run.ForkedFrom = from
	tx.ForgetRuns() // another run now keeps a checkpoint for this one
	return tx.Exec(`UPDATE runs SET forked_from = ?, head = ? WHERE id = ?`, from, run.Head, run.ID)
}
