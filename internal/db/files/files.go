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
	known    knownTrees // the newest tree of each agent
	alike    alikes     // contents that others may be similar to
	stored   sync.Map   // upper bound of bytes of contents, by agent number; counted again before a refusal
}

// New keeps files in a store.
func New(d *driftlog.Drifts) *Files { return &Files{Drifts: d} }

// ForgetAgent forgets what is in memory about an erased agent.
func (s *Files) ForgetAgent(agent *ledger.AgentRow) {
	s.known.forget(agent.ID)
	s.alike.forget(alikeName(agent.Owner, agent.Name))
	s.stored.Delete(agent.ID)
}

const (
	// lease is how long a content or a tree stays although nothing names it.
	lease = time.Hour
	// leaseMore is added to lease, so that a client that asks often does not cause a write each
	// time.
	leaseMore = 30 * time.Minute
	// attachWithin is how long after its save a checkpoint may get its trees.
	attachWithin = time.Minute
	// batchBytes is the most bytes that one transaction stores.
	batchBytes = 4 << 20
	// batchRows is the most rows of any kind that one transaction stores or removes.
	batchRows = 1000
)

// modeGone is the mode of a row that removes a file from the base's list.
const modeGone = "gone"

// leased is the end of a lease that begins now.
func leased(now ckpt.Time) ckpt.Time { return ckpt.At(now.Add(lease + leaseMore)) }

// missing is the error for contents or trees that do not exist.
func missing(what string, names []string) error {
	e := ckpt.Errorf(ckpt.CodeFilesMissing, "%d %s are missing or were removed: store them first", len(names), what)
	if len(names) == 1 {
		e = ckpt.Errorf(ckpt.CodeFilesMissing, "the %s %s is missing or was removed: store it first", what[:len(what)-1], names[0])
	}
	e.Missing = names
	return e
}

// list makes a JSON array for json_each.
func list[T any](values []T) string {
	text, err := json.Marshal(values)
	if err != nil {
		return "[]" // texts and numbers can always be encoded
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
