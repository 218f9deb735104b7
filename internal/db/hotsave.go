package db

import (
	ckpt "github.com/ckptsidecar/ckptsidecar"
)

// saveHot is a save the short way: a routine one, after others of its run, of
// which all that has to be known is known. It answers false, and has changed
// nothing, where the long way has to be gone: also where the save is to be
// refused, since one that was answered before is answered again all the same.
func (s *Store) saveHot(tx *tx, v *save, agent *agentRow) (done bool, err error) {
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
	if s.seeSave(tx, v, agent, &run, w, reply); len(v.seen.found) > 0 || s.backMoves(&run, w) {
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
func (s *Store) planHot(tx *tx, v *save, agent *agentRow, h *hotRun, run *runRow, reply *savedReply) (*hotPlan, error) {
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
func (s *Store) writeHot(tx *tx, v *save, agent *agentRow, run *runRow, w *watched, reply savedReply, p *hotPlan) error {
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
