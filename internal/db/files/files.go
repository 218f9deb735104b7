package files

import (
	"encoding/json"
	"sync"
	"time"

	ckpt "github.com/ckptsidecar/ckptsidecar"
	"github.com/ckptsidecar/ckptsidecar/internal/db/driftlog"
	"github.com/ckptsidecar/ckptsidecar/internal/db/ledger"
)

// Files keeps the files that checkpoints are saved with.
type Files struct {
	*driftlog.Drifts
	sweeping sync.Mutex // one sweep at a time
	known    knownTrees // the newest trees of agents
	alike    alikes     // contents that others may be like
	stored   sync.Map   // what the contents of an agent take at most, by its number: they are counted anew before it is refused anything
}

// New keeps files in a store.
func New(d *driftlog.Drifts) *Files { return &Files{Drifts: d} }

// ForgetAgent forgets what is in memory of an agent that was erased.
func (s *Files) ForgetAgent(agent *ledger.AgentRow) {
	s.known.forget(agent.ID)
	s.alike.forget(alikeName(agent.Owner, agent.Name))
	s.stored.Delete(agent.ID)
}

const (
	// lease is how long a content or a tree stays though nothing names it.
	lease = time.Hour
	// leaseMore is added to it, so that a client that asks again and again does not
	// write each time.
	leaseMore = 30 * time.Minute
	// attachWithin is how long after its save a checkpoint may get its trees.
	attachWithin = time.Minute
	// batchBytes is how much one transaction stores.
	batchBytes = 4 << 20
	// batchRows is how many rows of any kind one transaction stores or removes.
	batchRows = 1000
)

// modeGone is the mode of a row that takes a file of the base's list away.
const modeGone = "gone"

// leased is until when something stays that is asked for now.
func leased(now ckpt.Time) ckpt.Time { return ckpt.At(now.Add(lease + leaseMore)) }

// missing is the error where contents or trees are not there.
func missing(what string, names []string) error {
	e := ckpt.Errorf(ckpt.CodeFilesMissing, "%d %s are missing or were removed: store them first", len(names), what)
	if len(names) == 1 {
		e = ckpt.Errorf(ckpt.CodeFilesMissing, "the %s %s is missing or was removed: store it first", what[:len(what)-1], names[0])
	}
	e.Missing = names
	return e
}

// list is a JSON array, for json_each.
func list[T any](values []T) string {
	text, err := json.Marshal(values)
	if err != nil {
		return "[]" // texts and numbers can always be written
	}
	return string(text)
}

// mayWrite refuses to store files for all owners at once.
func mayWrite(sc ckpt.Scope, agent string) error {
	if err := ckpt.CheckAgentName(agent); err != nil {
		return err
	}
	if sc.Whose() == ckpt.AllOwners {
		return ckpt.Errorf(ckpt.CodeInvalid, "an agent belongs to one owner: name one, not %s", ckpt.AllOwners)
	}
	return nil
}
