package saves

import (
	"cmp"
	"slices"
	"time"

	"github.com/google/uuid"

	ckpt "github.com/ckptsidecar/ckptsidecar"
	"github.com/ckptsidecar/ckptsidecar/internal/db/driftlog"
	"github.com/ckptsidecar/ckptsidecar/internal/db/ledger"
	"github.com/ckptsidecar/ckptsidecar/internal/retention"
)

// facts are what the writer must know to decide on a checkpoint. Reading them writes nothing.
type facts struct {
	agent *ledger.AgentRow
	run   *ledger.RunRow // before the save
	id    string         // of the new checkpoint
	n     int64          // the row of the audit log that will record the save
	now   ckpt.Time
	aged  time.Time // the time for ages; zero while the clock is not trusted
	save  *Save

	cached bool // the run cache gets the run, so that everything that the next save must know is read

	watch    *driftlog.Watched
	seen     driftlog.Seen // what the watch of the run saw in the state
	drifting bool          // a critical finding about checkpoints is open
	later    bool          // the findings, or where the way back begins, change: the policy is applied when they are written

	rows  []ledger.HeldRow // the checkpoints of the run that the save can push out, newest first
	all   []ledger.HeldRow // all checkpoints of the run, newest first, if the save decides on all
	needs ledger.Needs     // before the save
	graph bool             // rows in other tables name the rows of the run's checkpoints
	headN int64            // the row of the save of the run's head; 0 if it is not known
}

// factsOf reads the facts, from the run cache if the run is there, and shows the state to the watch of the run.
func (s *Saves) factsOf(tx *ledger.Tx, v *Save, t *target) (f *facts, err error) {
	f = &facts{agent: t.agent, run: t.run, id: cmp.Or(v.Request.ID, v.id), n: tx.Head.N + 1, now: tx.Now, aged: tx.Trusted.Time, save: v, cached: t.cached}
	if f.id == "" {
		id, err := uuid.NewV7()
		if err != nil {
			return nil, err
		}
		f.id = id.String()
		v.id = f.id
	}
	if f.watch, err = s.WatchRun(tx, f.agent, f.run, v.Printed.Past()); err != nil {
		return nil, err
	}
	f.seen = s.SeeState(tx, f.agent, f.run, f.watch, v.Printed, v.Request, driftlog.Saved{ID: f.id, Seq: f.run.LastSeq + 1, Size: v.State.Size})
	f.drifting = f.watch.Drifting()
	f.later = f.seen.Any() || s.BackMoves(f.run, f.watch)
	if f.later {
		return f, nil
	}
	if known := t.known; known != nil {
		f.rows, f.needs.By, f.graph, f.headN = known.Rows, known.Needed, known.Graph, known.HeadN
		f.needs.Head = string(f.run.Head)
	} else if err := f.read(tx); err != nil {
		return nil, err
	}
	if !f.onlyRoutine() && !f.judgesPushable() {
		f.all, err = tx.History(f.run.ID)
	}
	return f, err
}

// read reads the history of the run.
func (f *facts) read(tx *ledger.Tx) (err error) {
	if f.run.LastSeq > f.run.Removed {
		if f.rows, err = tx.PushableRows(f.run, f.agent.Settings.RoutineKeep); err != nil {
			return err
		}
	}
	if _, err := tx.Get(&f.headN, `SELECT c.n`+ledger.OwnedTables+`?`, f.run.Head, f.agent.Owner); err != nil {
		return err
	}
	if !f.cached && f.onlyRoutine() { // nothing is judged
		return nil
	}
	if f.needs, err = tx.NeedsOf(f.run); err != nil {
		return err
	}
	_, err = tx.Get(&f.graph, `SELECT EXISTS (SELECT 1 FROM graph_threads WHERE run_id = ?)`, f.run.ID)
	return err
}

// onlyRoutine says that the save can push out only routine checkpoints, and that there are not too many of these.
func (f *facts) onlyRoutine() bool {
	keep := f.agent.Settings.RoutineKeep
	if f.save.Request.Kind == ckpt.KindRoutine && keep > 0 {
		return allRoutine(f.rows, keep-1)
	}
	return allRoutine(f.rows, keep)
}

// allRoutine says that there are at most so many checkpoints, and that all are routine ones.
func allRoutine(rows []ledger.HeldRow, most int) bool {
	return len(rows) <= most && !slices.ContainsFunc(rows, func(row ledger.HeldRow) bool { return row.Kind != ckpt.KindRoutine })
}

// judgesPushable says that only checkpoints that a save can push out are judged. Those are enough if the new checkpoint is a clean
// routine one: it becomes the head and the rollback target, so that no checkpoint of another kind loses its place.
func (f *facts) judgesPushable() bool {
	return f.save.Request.Kind == ckpt.KindRoutine && f.agent.Settings.RoutineKeep > 0 && !f.drifting
}

// decision is what a save writes.
type decision struct {
	reply      ledger.SavedReply
	row        ledger.CheckpointRow
	parentN    int64            // the row of the parent's save; 0 if it must be looked up
	gone, stay []ledger.HeldRow // of the checkpoints that were judged, with the new one
	reasons    []string         // why each of gone goes
}

// decide decides what becomes of a run by a save. It depends only on the facts.
func decide(f *facts, plan retention.Func) *decision {
	r, v := f.save.Request, f.save
	d := &decision{}
	d.reply = ledger.SavedReply{ID: f.id, Seq: f.run.LastSeq + 1, Parent: cmp.Or(r.Parent, f.run.Head), CreatedAt: f.now,
		StoredSize: v.State.Stored(), Pruned: []string{}}
	d.row = ledger.CheckpointRow{N: f.n, ID: d.reply.ID, Seq: d.reply.Seq, Kind: r.Kind, Parent: d.reply.Parent, CreatedAt: d.reply.CreatedAt,
		ContentType: r.ContentType, Labels: r.Labels, Metadata: ledger.MetadataText(r.Metadata), Step: r.Step,
		Operation: v.Operation, Program: v.program, Suspect: f.drifting}
	d.reply.Suspect = d.row.Suspect
	if r.Parent == "" && r.ForkFrom == "" {
		d.parentN = f.headN
	}
	if f.later {
		return d
	}
	held := d.row.Held(f.run, &v.State)
	switch {
	case f.onlyRoutine():
		d.stay = f.rows
		if held.Pushable(f.agent.Settings.RoutineKeep) {
			d.stay = prepend(held, f.rows)
		}
		return d
	case f.all != nil:
		d.stay = prepend(held, f.all)
	default:
		d.stay = prepend(held, f.rows)
	}
	after := *f.run
	after.LastSeq, after.Head = d.reply.Seq, ckpt.Ref(d.reply.ID)
	needs := f.needs
	if f.run.EndedAt.IsZero() {
		needs.Head = d.reply.ID
	}
	verdicts := ledger.Judge(plan, f.agent.Settings, f.aged, &after, d.stay, &needs)
	d.stay, d.gone, d.reasons = ledger.Sorted(d.stay, verdicts)
	for i := range d.gone {
		d.reply.Pruned = append(d.reply.Pruned, d.gone[i].ID)
	}
	if !f.graph && v.State.Body != nil && r.Kind == ckpt.KindRoutine {
		d.takeRow()
	}
	return d
}

func prepend(row ledger.HeldRow, rows []ledger.HeldRow) []ledger.HeldRow {
	return append(append(make([]ledger.HeldRow, 0, len(rows)+1), row), rows...)
}

// takeRow gives the row of a removed small checkpoint to the new small state. Then only that page is
// written.
func (d *decision) takeRow() {
	for i := range d.gone {
		if row := &d.gone[i]; row.Inline && row.Kind == ckpt.KindRoutine && !row.Pinned {
			d.row.Takes = row
		}
	}
	for i := range d.stay {
		if d.row.Takes != nil && d.stay[i].Seq == d.row.Seq {
			d.stay[i].Slot = d.row.Takes.Slot
		}
	}
}
