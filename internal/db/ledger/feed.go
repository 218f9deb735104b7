package ledger

import (
	"context"
	"strings"
	"sync"
	"sync/atomic"

	ckpt "github.com/ckptsidecar/ckptsidecar"
	"github.com/ckptsidecar/ckptsidecar/internal/survey"
)

// feed tells watchers which runs have changed. It delays no writer: changes that a watcher has not
// taken yet are merged. If there are too many, the watcher is told to look at everything.
type feed struct {
	watched  atomic.Int64 // number of watchers
	mu       sync.Mutex
	watchers map[*watcher]bool
}

// changed is something that a transaction has changed.
type changed struct{ what, owner, agent, run string }

// maxUntold is how many changes are kept for a watcher.
const maxUntold = 1000

// watcher watches the agents of one owner or of all owners.
type watcher struct {
	owner   string
	some    chan struct{} // has one element while there is something to tell
	untold  []changed
	known   map[changed]bool
	all     bool // there were more changes than fit
	counted int64
}

// WatchChanges begins to watch. next waits until something has changed and returns the changes;
// stop ends the watch.
func (s *Core) WatchChanges(sc ckpt.Scope) (next func(ctx context.Context) ([]survey.Change, error), stop func()) {
	if sc.Admin && sc.Target == "" {
		sc.Target = ckpt.AllOwners
	}
	w := &watcher{owner: sc.Whose(), some: make(chan struct{}, 1), known: map[changed]bool{}}
	f := &s.feed
	f.mu.Lock()
	if f.watchers == nil {
		f.watchers = map[*watcher]bool{}
	}
	f.watchers[w] = true
	f.mu.Unlock()
	f.watched.Add(1)
	s.AuditRead(sc, "watch_changes", "", "")
	next = func(ctx context.Context) ([]survey.Change, error) {
		select {
		case <-w.some:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
		list := f.take(w)
		s.AuditRead(sc, "watch_changes", "", "")
		return list, nil
	}
	return next, sync.OnceFunc(func() {
		f.watched.Add(-1)
		f.mu.Lock()
		defer f.mu.Unlock()
		delete(f.watchers, w)
	})
}

// take returns the changes that a watcher has not been told.
func (f *feed) take(w *watcher) []survey.Change {
	f.mu.Lock()
	defer f.mu.Unlock()
	list := make([]survey.Change, 0, len(w.untold)+1)
	if w.all {
		w.counted++
		list = append(list, survey.Change{What: survey.ChangedAll, N: w.counted})
		w.untold = nil
	}
	for _, c := range w.untold {
		w.counted++
		list = append(list, survey.Change{What: c.what, Owner: c.owner, Agent: c.agent, Run: c.run, N: w.counted})
	}
	w.untold, w.all = w.untold[:0], false
	clear(w.known)
	return list
}

// tell tells the watchers what a transaction has changed, after it is on disk.
func (f *feed) tell(list []changed) {
	if len(list) == 0 {
		return
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	for w := range f.watchers {
		for _, c := range list {
			if w.owner == c.owner || w.owner == ckpt.AllOwners {
				w.add(c)
			}
		}
	}
}

func (w *watcher) add(c changed) {
	if w.all || w.known[c] {
		return
	}
	if len(w.untold) >= maxUntold {
		w.all, w.untold = true, nil
		clear(w.known)
	} else {
		w.known[c] = true
		w.untold = append(w.untold, c)
	}
	select {
	case w.some <- struct{}{}:
	default:
	}
}

// whatOf says what an action of the audit log changes, "" for something that is not watched.
func whatOf(e *AuditEntry) string {
	switch action := e.Action; {
	case e.Outcome != OutcomeDone || e.Owner == "" || strings.HasPrefix(action, "admin_"):
		return ""
	case action == "save" || action == "remove" || action == "change" || action == "delete" || action == "restore" ||
		action == "attach_files" || action == "let_go_of_files":
		return survey.ChangedCheckpoint
	case strings.HasSuffix(action, "_step"):
		return survey.ChangedStep
	case strings.HasSuffix(action, "_operation"):
		return survey.ChangedOperation
	case action == "append_events":
		return survey.ChangedEvent
	case strings.HasSuffix(action, "finding"):
		return survey.ChangedFinding
	case action == "ask" || action == "answer_prompt":
		return survey.ChangedPrompt
	case strings.HasSuffix(action, "_policy"):
		return survey.ChangedPolicy
	case e.Run != "":
		return survey.ChangedRun
	}
	return survey.ChangedAgent
}
