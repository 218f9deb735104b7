package db

import (
	ckpt "github.com/ckptsidecar/ckptsidecar"
)

// saveHot is a save the short way: a routine one, after others of its run, of
// which all that has to be known is known. It answers false, and has changed
// nothing, where the long way has to be gone: also where the save is to be
// refused, since one that was answered before is answered again all the same.
func (s *saves) saveHot(tx *tx, v *save, agent *agentRow) (done bool, err error) {
	r := v.request
	if r.Kind != ckpt.KindRoutine || r.Parent != "" {
		return false, nil
	}
	h, err := s.hotRun(tx, agent, runName(r.Run))
	if h == nil || err != nil {
		return false, err
	}
	if h.run.mayWrite(r.Epoch) != nil || s.admitHot(tx, v, h) != nil {
		return false, nil
	}
	run := h.run
	reply, err := v.begin(tx, &run)
	if err != nil {
		return false, err
	}
	w, err := s.watchRun(tx, agent, &run, v.pastOf())
	if err != nil || w.drifting() {
		return false, err
	}
	if s.seeSave(tx, &v.watchedSave, v.state.size, agent, &run, w, reply); len(v.seen.found) > 0 || s.backMoves(&run, w) {
		return false, nil
	}
	keep, err := s.planHot(tx, v, agent, h, &run, &reply)
	if keep == nil || err != nil {
		return false, err
	}
	if v.key != "" {
		if isNew, err := tx.rememberNew(agent.ID, v.key, v.print, appendReply(nil, &reply)); !isNew || err != nil {
			return false, err
		}
	}
	return true, s.writeHot(tx, v, agent, &run, w, reply, keep)
}

// hotPlan is what stays of a run's routine checkpoints, the new one among
// them, and what goes.
type hotPlan struct {
	quiet      bool
	stay, gone []heldRow
	reasons    []string
}

// planHot asks retention, before anything is written; nil where the whole run
// must be asked about.
func (s *saves) planHot(tx *tx, v *save, agent *agentRow, h *hotRun, run *runRow, reply *savedReply) (*hotPlan, error) {
	p := &hotPlan{quiet: h.quiet}
	keep := agent.policy.RoutineKeep
	rows := make([]heldRow, 0, len(h.rows)+1)
	if keep > 0 {
		rows = append(rows, heldRow{N: tx.head.n + 1, ID: reply.ID, Seq: reply.Seq, Kind: v.request.Kind,
			CreatedAt: lenient[ckpt.Time]{value: reply.CreatedAt}, StoredSize: reply.StoredSize, Inline: v.state.body != nil})
	}
	rows = append(rows, h.rows...)
	if allStay(rows, keep) {
		p.stay = rows
		return p, nil
	}
	if keep == 0 {
		return nil, nil
	}
	after := *run
	after.LastSeq, after.Head = reply.Seq, ckpt.Ref(reply.ID)
	neededBy := tx.neededBy
	if h.quiet && !run.BackSeq.Valid {
		neededBy = nobodyNeeds
	}
	verdicts, err := tx.judge(s.opt.Retention, agent.policy, tx.trusted.Time, &after, rows, neededBy)
	if err != nil {
		return nil, err
	}
	p.stay, p.gone, p.reasons = sorted(rows, verdicts)
	for i := range p.gone {
		reply.Pruned = append(reply.Pruned, p.gone[i].ID)
	}
	return p, nil
}

func nobodyNeeds(*runRow, string) (string, error) { return "", nil }

// writeHot writes what was planned, and knows the run as it then is. Small
// states go before the new one comes, which finds their room: the other way
// round the table would grow by a page and shrink again at every save.
func (s *saves) writeHot(tx *tx, v *save, agent *agentRow, run *runRow, w *watched, reply savedReply, p *hotPlan) error {
	if err := tx.removeInline(p.gone); err != nil {
		return err
	}
	if err := s.insertSaved(tx, v, agent, run, w, reply); err != nil {
		return err
	}
	if _, err := s.removeRows(tx, agent, run, p.gone, p.reasons, v.entry); err != nil {
		return err
	}
	if err := tx.noteSaved(run); err != nil {
		return err
	}
	tx.store.hot.runs[hotKey{agent.ID, run.Name}] = &hotRun{run: *run, rows: p.stay, quiet: p.quiet}
	v.saved = v.answer(agent, reply)
	var err error
	v.saved.Drift, err = s.verdictFor(tx, agent, run.Name)
	return err
}

// hotRun is a run that a save may take the short way into, nil for others: it
// is there and running, its policy keeps few, and its newest checkpoint is clean.
func (s *saves) hotRun(tx *tx, agent *agentRow, name string) (*hotRun, error) {
	key := hotKey{agent.ID, name}
	if h := s.hot.runs[key]; h != nil {
		return h, nil
	}
	run, err := tx.run(agent.ID, name)
	if err != nil || run == nil || run.Status != ckpt.RunRunning || run.LastSeq == 0 || agent.policy.RoutineKeep >= hotRowsMost {
		return nil, err
	}
	h := &hotRun{run: *run}
	if h.rows, err = tx.routineRows(run, agent.policy.RoutineKeep); err != nil {
		return nil, err
	}
	if len(h.rows) > hotRowsMost || len(h.rows) > 0 && h.rows[0].Suspect {
		return nil, nil
	}
	_, err = tx.get(&h.quiet, `SELECT NOT EXISTS (SELECT 1 FROM operations WHERE run_id = ?1 AND checkpoint IS NOT NULL AND status IN ('open', 'uncertain'))
		AND NOT EXISTS (SELECT 1 FROM prompts WHERE run_id = ?1 AND checkpoint IS NOT NULL AND answered_at IS NULL)
		AND NOT EXISTS (SELECT 1 FROM runs f JOIN checkpoints c ON c.id = f.forked_from WHERE c.run_id = ?1 AND f.forked_from IS NOT NULL AND f.last_seq = 0 AND f.ended_at IS NULL)`, run.ID)
	if err != nil {
		return nil, err
	}
	if s.hot.runs == nil {
		s.hot.runs = make(map[hotKey]*hotRun)
	}
	if len(s.hot.runs) >= hotMost {
		s.hot.forgetAll()
	}
	s.hot.runs[key] = h
	return h, nil
}

// admit refuses a save that breaks its agent's policy or schema, or for which its
// owner has no room left. A save that was made before is answered again instead.
func (s *saves) admit(tx *tx, v *save) error {
	if v.state.refused != nil {
		return v.state.refused
	}
	if v.drift != nil && v.drift.refused != nil {
		return v.drift.refused
	}
	if err := tx.settle(&v.state); err != nil {
		return err
	}
	return s.mayStore(tx, v.scope.Whose(), v.state.stored(), 0)
}

// admitHot is admit for a run of which is known what its newest state is.
func (s *saves) admitHot(tx *tx, v *save, h *hotRun) error {
	if v.state.base == nil || !h.newestIs(v.state.base) || v.state.refused != nil || v.drift != nil && v.drift.refused != nil {
		return s.admit(tx, v)
	}
	return s.mayStore(tx, v.scope.Whose(), v.state.stored(), 0)
}
