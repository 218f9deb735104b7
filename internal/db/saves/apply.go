package saves

import (
	"slices"

	"github.com/ckptsidecar/ckptsidecar/internal/db/blob"
	"github.com/ckptsidecar/ckptsidecar/internal/db/ledger"
)

// apply writes a save as it was decided. It is the only function of a save that writes. If the watch of the run saw something, apply writes
// the findings, and then lets retention judge the run as they left it.
func (s *Saves) apply(tx *ledger.Tx, f *facts, d *decision) error {
	v := f.save
	if v.Request.ID != "" {
		if err := tx.RememberID(f.agent.ID, v.key, v.print, f.n); err != nil {
			return err
		}
	}
	// Small states are removed before the new one is written, so that it finds their space. In the other order, the table would grow by a
	// page and shrink again at every save.
	if d.row.Takes != nil {
		if err := tx.GiveRow(d.row.Takes); err != nil {
			return err
		}
	}
	if err := tx.RemoveInline(d.gone); err != nil {
		return err
	}
	if err := s.insert(tx, f, d); err != nil {
		return err
	}
	if len(v.Request.Trees) > 0 || v.Request.ForkFrom != "" {
		if err := s.Trees.Name(tx, f.agent, f.run, &d.row, v.Request.Trees, v.Request.ForkFrom); err != nil {
			return err
		}
	}
	e := v.Entry.Into(f.n)
	if f.later {
		if err := s.applyFindings(tx, f, d, e); err != nil {
			return err
		}
	} else {
		if _, err := s.RemoveRows(tx, f.agent, f.run, d.gone, d.reasons, e); err != nil {
			return err
		}
		if err := tx.NoteSaved(f.run); err != nil {
			return err
		}
		if f.cached {
			s.remember(f, d)
		}
	}
	if d.reply.Seq != 1 || f.run.ForkedFrom == "" {
		return nil
	}
	freed, err := s.RetainForked(tx, f.run, e.Into(0)) // the row of the save is not about the other run
	d.reply.Pruned = append(d.reply.Pruned, freed...)
	return err
}

// insert writes the row, the state, the audit row, and findings of secrets.
func (s *Saves) insert(tx *ledger.Tx, f *facts, d *decision) error {
	v := f.save
	list, err := tx.InsertRow(f.run, &d.row, &v.State)
	if err != nil {
		return err
	}
	key := blob.RunKey{Owner: f.agent.Owner, Agent: f.agent.Name, Run: f.run.Name}
	s.States.Keep(tx.Tx, key, d.row.Place(f.run), &v.State, list)
	e := v.Entry
	e.Subject = d.row.ID
	if e.Save, err = tx.Facts(f.run, &d.row, &v.State, d.parentN); err != nil {
		return err
	}
	if err := tx.Audit(e); err != nil {
		return err
	}
	s.Share(tx, f.agent, f.run, v.Printed.Shared(), &d.row)
	return s.ReportSecrets(tx, f.agent, f.run, f.watch, d.reply.ID, v.secrets)
}

// applyFindings writes what the watch saw, and then applies the policy to the run.
func (s *Saves) applyFindings(tx *ledger.Tx, f *facts, d *decision, e ledger.AuditEntry) error {
	if err := tx.NoteSaved(f.run); err != nil {
		return err
	}
	critical, err := s.FoundInState(tx, f.agent, f.run, f.watch, f.seen, d.reply.ID)
	if err != nil {
		return err
	}
	d.reply.Suspect = f.watch.Covers(d.reply.Seq)
	tx.AmendSave(f.n, d.reply.Suspect)
	d.reply.Pruned, err = s.retainAfter(tx, f, critical, e)
	return err
}

// retainAfter applies the policy to a run that findings have changed, and to all of it after a critical finding.
func (s *Saves) retainAfter(tx *ledger.Tx, f *facts, critical bool, e ledger.AuditEntry) ([]string, error) {
	if critical {
		return s.RetainRun(tx, f.agent, f.run, e)
	}
	keep := f.agent.Settings.RoutineKeep
	rows, err := tx.PushableRows(f.run, keep)
	switch {
	case err != nil:
		return nil, err
	case allRoutine(rows, keep):
		return []string{}, nil
	case f.judgesPushable() && !rows[0].Suspect:
		return s.Retain(tx, f.agent, f.run, rows, e)
	}
	return s.RetainRun(tx, f.agent, f.run, e)
}

// remember keeps in the run cache what the next save of the run must know. A rollback clears it.
func (s *Saves) remember(f *facts, d *decision) {
	keep := f.agent.Settings.RoutineKeep
	rows := slices.DeleteFunc(d.stay, func(row ledger.HeldRow) bool { return !row.Pushable(keep) })
	s.RunCache.Put(&ledger.CachedRun{Run: *f.run, Rows: rows, Needed: f.needs.By, Graph: f.graph, HeadN: f.n})
}
