package driftlog

import (
	"container/list"
	"database/sql"
	"slices"
	"sync"
	"sync/atomic"

	ckpt "github.com/ckptsidecar/ckptsidecar"
	"github.com/ckptsidecar/ckptsidecar/internal/db/blob"
	"github.com/ckptsidecar/ckptsidecar/internal/drift/observer"
)

// Watched is what the writer keeps in memory of a run to detect its drift. All of it is derived
// from what is on disk: it is made when the run is first written to, dropped when a transaction is
// rolled back, and made again.
type Watched struct {
	runID    int64
	key      blob.RunKey
	policy   string            // the policy when this was made
	watch    observer.RunWatch // nil if nothing is to be watched
	partial  bool              // made without the data that is read outside the writer
	open     []ckpt.Finding    // the run's open findings, oldest first, without those of secrets
	secrets  []ckpt.Finding    // the open findings of secrets
	recovery ckpt.Ref          // the checkpoint that was made at the first critical one of them
	asked    sql.NullInt64     // the position up to which the watch wanted a rollback target
	place    *list.Element
}

// add adds a finding that was made or opened again.
func (w *Watched) add(f *ckpt.Finding) {
	if f.Rule == ckpt.RuleSecret {
		w.secrets = append(w.secrets, *f)
	} else {
		w.open = append(w.open, *f)
	}
}

// take removes the open findings for which is is true, and returns them.
func (w *Watched) take(is func(*ckpt.Finding) bool) (taken []ckpt.Finding) {
	w.open = slices.DeleteFunc(w.open, func(f ckpt.Finding) bool {
		gone := is(&f)
		if gone {
			taken = append(taken, f)
		}
		return gone
	})
	if !w.Drifting() {
		w.recovery = ""
	}
	return taken
}

// Drifting says whether a critical finding that affects checkpoints is open.
func (w *Watched) Drifting() bool { return w.coveredFrom() >= 0 }

// coveredFrom is the seq after which checkpoints are suspect, -1 if none is.
func (w *Watched) coveredFrom() int64 {
	from := int64(-1)
	for i := range w.open {
		f := &w.open[i]
		if f.Marks() && (from < 0 || *f.SinceSeq < from) {
			from = *f.SinceSeq
		}
	}
	return from
}

// Covers says whether a checkpoint of the run is suspect.
func (w *Watched) Covers(seq int64) bool {
	from := w.coveredFrom()
	return from >= 0 && seq > from
}

// watches are the runs that are being watched, up to a limit; the run that was written to most
// recently is dropped last. Only the writer uses them, except for the fields that are atomic or a
// sync.Map.
type watches struct {
	most   int
	order  list.List // of *Watched, the most recently used first
	runs   map[int64]*Watched
	held   atomic.Int64
	ready  sync.Map // runKey: the watched runs that are not partial
	shown  sync.Map // runKey to map[string]float64: the measures of runs whose policy has rules
	Panics atomic.Int64
}

func (m *watches) get(runID int64) *Watched {
	w := m.runs[runID]
	if w != nil {
		m.order.MoveToFront(w.place)
	}
	return w
}

func (m *watches) put(w *Watched) {
	m.drop(w.runID)
	if m.runs == nil {
		m.runs = map[int64]*Watched{}
	}
	w.place = m.order.PushFront(w)
	m.runs[w.runID] = w
	m.held.Add(1)
	if !w.partial {
		m.ready.Store(w.key, true)
	}
	for len(m.runs) > m.most {
		m.drop(m.order.Back().Value.(*Watched).runID)
	}
}

func (m *watches) drop(runID int64) {
	w := m.runs[runID]
	if w == nil {
		return
	}
	delete(m.runs, runID)
	m.order.Remove(w.place)
	m.held.Add(-1)
	m.ready.Delete(w.key)
	m.shown.Delete(w.key)
}

// DropAgent drops the watches of all runs of an agent.
func (m *watches) DropAgent(owner, agent string) {
	for id, w := range m.runs {
		if w.key.Owner == owner && w.key.Agent == agent {
			m.drop(id)
		}
	}
}
