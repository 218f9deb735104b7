package files

import (
	"sync"
	"time"

	ckpt "github.com/ckptsidecar/ckptsidecar"
)

const (
	// mostKnown is the most entries of trees that are kept in memory, about 15 MB.
	mostKnown = 50_000
	// knownFor is how long an unused tree stays in memory.
	knownFor = 10 * time.Minute
)

// knownTrees are the newest trees of agents, in memory. The next tree of an agent is sent as a
// change to the one before, and reading that tree costs more than storing the change. It is a
// cache; the caller must have found the row of the tree.
type knownTrees struct {
	mu      sync.Mutex
	of      map[int64]*knownTree // by agent
	entries int
}

// knownTree is a tree that was stored or read.
type knownTree struct {
	row     TreeRow
	entries []ckpt.TreeEntry          // never changed
	own     map[string]ckpt.TreeEntry // what differs from the base's list; never changed
	since   int                       // see planting
	doubts  int64                     // the store's count of doubts when the tree was read or stored
	used    time.Time
}

func (k *knownTree) size() int { return len(k.entries) + len(k.own) }

// get is the tree of a row, nil if it is not known, or if another program may have changed it
// since.
func (k *knownTrees) get(row *TreeRow, doubts int64, now time.Time) *knownTree {
	k.mu.Lock()
	defer k.mu.Unlock()
	t := k.of[row.AgentID]
	if t == nil || t.row.ID != row.ID || t.row.Sum != row.Sum || !sameID(t.row.Base, row.Base) || t.doubts != doubts {
		return nil
	}
	t.used = now
	return t
}

func sameID(a, b *int64) bool { return a == b || a != nil && b != nil && *a == *b }

// put replaces the agent's last tree.
func (k *knownTrees) put(t *knownTree) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.drop(t.row.AgentID)
	if t.size() > mostKnown/2 {
		return
	}
	for agent := range k.of {
		if k.entries+t.size() <= mostKnown {
			break
		}
		k.drop(agent)
	}
	if k.of == nil {
		k.of = map[int64]*knownTree{}
	}
	k.of[t.row.AgentID] = t
	k.entries += t.size()
}

// forgetIdle drops trees that were not used for a long time.
func (k *knownTrees) forgetIdle(now time.Time) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for agent, t := range k.of {
		if now.Sub(t.used).Abs() > knownFor {
			k.drop(agent)
		}
	}
}

func (k *knownTrees) forget(agent int64) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.drop(agent)
}

func (k *knownTrees) drop(agent int64) {
	if t := k.of[agent]; t != nil {
		k.entries -= t.size()
		delete(k.of, agent)
	}
}
