package saves

import (
	ckpt "github.com/ckptsidecar/ckptsidecar"
	"github.com/ckptsidecar/ckptsidecar/internal/db/blob"
	"github.com/ckptsidecar/ckptsidecar/internal/db/driftlog"
	"github.com/ckptsidecar/ckptsidecar/internal/db/ledger"
	"github.com/ckptsidecar/ckptsidecar/internal/db/usage"
)

// saveHot is a save the short way: a routine one, after others of its run, of
// which all that has to be known is known. It answers false, and has changed
// nothing, where the long way has to be gone: also where the save is to be
// refused, since one that was answered before is answered again all the same.
func (s *Saves) saveHot(tx *ledger.Tx, v *Save, agent *ledger.AgentRow) (done bool, err error) {
	r := v.Request
	if r.Kind != ckpt.KindRoutine || r.Parent != "" || r.ForkFrom != "" || len(r.Trees) > 0 {
		return false, nil
	}
	h, err := s.hotRun(tx, agent, ledger.RunName(r.Run))
	if h == nil || err != nil {
		return false, err
	}
	if s.MayWrite(&h.Run, v.Scope, r.Epoch) != nil || s.admitHot(tx, v, h) != nil {
		return false, nil
	}
	run := h.Run
	reply, err := v.begin(tx, &run)
	if err != nil {
		return false, err
	}
	w, err := s.WatchRun(tx, agent, &run, v.PastOf())
	if err != nil || w.Drifting() {
		return false, err
	}
	if s.SeeSave(tx, &v.WatchedSave, v.State.Size, agent, &run, w, reply); len(v.Seen.Found) > 0 || s.BackMoves(&run, w) {
		return false, nil
	}
	keep, err := s.planHot(tx, v, agent, h, &run, &reply)
	if keep == nil || err != nil {
		return false, err
	}
	if isNew, err := s.rememberHot(tx, v, agent, &reply); !isNew || err != nil {
		return false, err
	}
	return true, s.writeHot(tx, v, agent, h, &run, w, reply, keep)
}

// hotPlan is what stays of a run's routine checkpoints, the new one among
// them, and what goes.
type hotPlan struct {
	graph      bool
	stay, gone []ledger.HeldRow
	reasons    []string
	taken      *ledger.HeldRow // one of those that go, whose row the new one takes; nil for none
}

// takes lets a small state take the row of the oldest small one that goes: the same
// page is written then, and no other.
func (p *hotPlan) takes(v *Save) {
	if p.graph || v.State.Body == nil {
		return
	}
	for i := range p.gone {
		if row := &p.gone[i]; row.Inline && row.Kind == ckpt.KindRoutine && !row.Pinned {
			p.taken = row
		}
	}
}

// planHot asks retention, before anything is written; nil where the whole run
// must be asked about.
func (s *Saves) planHot(tx *ledger.Tx, v *Save, agent *ledger.AgentRow, h *ledger.HotRun, run *ledger.RunRow,
	reply *ledger.SavedReply) (*hotPlan, error) {
	p := &hotPlan{graph: h.Graph}
	keep := agent.Settings.RoutineKeep
	rows := make([]ledger.HeldRow, 0, len(h.Rows)+1)
	if keep > 0 {
		rows = append(rows, ledger.HeldRow{Slot: ledger.Slot(run.ID, reply.Seq), N: tx.Head.N + 1, ID: reply.ID, Seq: reply.Seq, Kind: v.Request.Kind,
			CreatedAt: ledger.Lenient[ckpt.Time]{Value: reply.CreatedAt}, StoredSize: reply.StoredSize, Inline: v.State.Body != nil, Beside: v.beside(reply)})
	}
	rows = append(rows, h.Rows...)
	if ledger.AllStay(rows, keep) {
		p.stay = rows
		return p, nil
	}
	if keep == 0 {
		return nil, nil
	}
	after := *run
	after.LastSeq, after.Head = reply.Seq, ckpt.Ref(reply.ID)
	neededBy := tx.NeededBy
	if h.Quiet && !run.BackSeq.Valid {
		neededBy = nobodyNeeds
	}
	verdicts, err := tx.Judge(s.Opt.Retention, agent.Settings, tx.Trusted.Time, &after, rows, neededBy)
	if err != nil {
		return nil, err
	}
	p.stay, p.gone, p.reasons = ledger.Sorted(rows, verdicts)
	if p.takes(v); p.taken != nil {
		for i := range p.stay {
			if p.stay[i].Seq == reply.Seq {
				p.stay[i].Slot = p.taken.Slot
			}
		}
	}
	for i := range p.gone {
		reply.Pruned = append(reply.Pruned, p.gone[i].ID)
	}
	return p, nil
}

// rememberHot keeps the key of a save that is about to be written, and answers
// false where it is not new: then nothing was changed.
func (s *Saves) rememberHot(tx *ledger.Tx, v *Save, agent *ledger.AgentRow, reply *ledger.SavedReply) (isNew bool, err error) {
	switch {
	case v.key == "":
		return true, nil
	case v.Request.ID == "":
		return tx.RememberNew(agent.ID, v.key, v.print, AppendReply(nil, reply))
	}
	return tx.RememberNewID(agent.ID, v.key, v.print, tx.Head.N+1)
}

// beside is what the row of the checkpoint takes beside the state.
func (v *Save) beside(reply *ledger.SavedReply) int64 {
	r := v.Request
	return usage.RowLength(reply.ID, string(r.Kind), reply.Parent, reply.CreatedAt, v.State.Sha256, r.ContentType,
		r.Labels, ledger.MetadataText(r.Metadata),
		r.Step, v.Operation, v.program)
}

func nobodyNeeds(*ledger.RunRow, string) (string, error) { return "", nil }

// writeHot writes what was planned, and notes the run as it then is. Small
// states go before the new one comes, which finds their room: the other way
// round the table would grow by a page and shrink again at every save.
func (s *Saves) writeHot(tx *ledger.Tx, v *Save, agent *ledger.AgentRow, h *ledger.HotRun, run *ledger.RunRow,
	w *driftlog.Watched, reply ledger.SavedReply, p *hotPlan) error {
	if p.taken != nil {
		if err := tx.GiveRow(p.taken); err != nil {
			return err
		}
	}
	if err := tx.RemoveInline(p.gone); err != nil {
		return err
	}
	if err := s.insertSaved(tx, v, agent, run, w, reply, h.HeadN, p.taken); err != nil {
		return err
	}
	if _, err := s.RemoveRows(tx, agent, run, p.gone, p.reasons, v.Entry.Into(v.n)); err != nil {
		return err
	}
	if err := tx.NoteHotSaved(run); err != nil {
		return err
	}
	h.Run, h.Rows, h.HeadN = *run, p.stay, v.n // a rollback forgets all of it
	v.Saved = v.answer(agent, reply)
	var err error
	v.Saved.Drift, err = s.VerdictFor(tx, agent, run.Name)
	return err
}

// hotRun is a run that a save may take the short way into, nil for others: it
// is there and running, its policy keeps few, and its newest checkpoint is clean.
func (s *Saves) hotRun(tx *ledger.Tx, agent *ledger.AgentRow, name string) (*ledger.HotRun, error) {
	key := ledger.HotKey{Agent: agent.ID, Name: name}
	if h := s.Hot.Runs[key]; h != nil {
		return h, nil
	}
	run, err := tx.Run(agent.ID, name)
	if err != nil || run == nil || run.Status != ckpt.RunRunning || run.LastSeq == 0 || agent.Settings.RoutineKeep >= ledger.HotRowsMost {
		return nil, err
	}
	h := &ledger.HotRun{Run: *run}
	if h.Rows, err = tx.RoutineRows(run, agent.Settings.RoutineKeep); err != nil {
		return nil, err
	}
	if len(h.Rows) > ledger.HotRowsMost || len(h.Rows) > 0 && h.Rows[0].Suspect {
		return nil, nil
	}
	_, err = tx.Get(&h.Quiet, `SELECT NOT EXISTS (SELECT 1 FROM operations WHERE run_id = ?1 AND checkpoint IS NOT NULL
		AND status IN ('open', 'uncertain'))
		AND NOT EXISTS (SELECT 1 FROM prompts WHERE run_id = ?1 AND checkpoint IS NOT NULL AND answered_at IS NULL)
		AND NOT EXISTS (SELECT 1 FROM runs f JOIN checkpoints c ON c.id = f.forked_from
		WHERE c.run_id = ?1 AND f.forked_from IS NOT NULL AND f.last_seq = 0 AND f.ended_at IS NULL)`, run.ID)
	if err != nil {
		return nil, err
	}
	if _, err := tx.Get(&h.Graph, `SELECT EXISTS (SELECT 1 FROM graph_threads WHERE run_id = ?)`, run.ID); err != nil {
		return nil, err
	}
	if _, err := tx.Get(&h.HeadN, `SELECT c.n`+ledger.OwnedTables+`?`, run.Head, agent.Owner); err != nil {
		return nil, err
	}
	if s.Hot.Runs == nil {
		s.Hot.Runs = make(map[ledger.HotKey]*ledger.HotRun)
	}
	if len(s.Hot.Runs) >= ledger.HotMost {
		s.Hot.ForgetAll()
	}
	s.Hot.Runs[key] = h
	return h, nil
}

// Admit refuses a save that breaks its agent's policy or schema, or for which its
// owner has no room left. A save that was made before is answered again instead.
func (s *Saves) Admit(tx *ledger.Tx, v *Save) error {
	if v.State.Refused != nil {
		return v.State.Refused
	}
	if v.Drift != nil && v.Drift.Refused != nil {
		return v.Drift.Refused
	}
	if err := blob.Settle(tx.Tx, &v.State); err != nil {
		return err
	}
	return s.Usage.MayStore(&tx.Tally, v.Scope.Whose(), v.State.Stored(), 0)
}

// admitHot is admit for a run of which is known what its newest state is.
func (s *Saves) admitHot(tx *ledger.Tx, v *Save, h *ledger.HotRun) error {
	if v.State.Base == nil || !h.NewestIs(v.State.Base) || v.State.Refused != nil || v.Drift != nil && v.Drift.Refused != nil {
		return s.Admit(tx, v)
	}
	return s.Usage.MayStore(&tx.Tally, v.Scope.Whose(), v.State.Stored(), 0)
}
