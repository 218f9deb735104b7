package files

import (
	"sync"
	"time"

	ckpt "github.com/ckptsidecar/ckptsidecar"
)

const (
	// mostKnown is how many entries of trees are kept in memory at most, about 15 MB.
	mostKnown = 50_000
	// knownFor is how long a tree is kept in memory that nobody uses.
	knownFor = 10 * time.Minute
)

// knownTrees are the newest trees of agents, in memory: the next tree of an agent is
// told as a change to the one before, and reading that costs more than storing the
// change. It is a cache; whoever asks it must have found the row of the tree.
type knownTrees struct {
	mu      sync.Mutex
	of      map[int64]*knownTree // by agent
	entries int
}

// knownTree is a tree as it was stored or read.
type knownTree struct {
	row     TreeRow
	entries []ckpt.TreeEntry          // never changed
	own     map[string]ckpt.TreeEntry // what differs from the base's list; never changed
	since   int                       // see planting
	doubts  int64                     // of the store when it was read or stored
	used    time.Time
}

func (k *knownTree) size() int { return len(k.entries) + len(k.own) }

// get is the tree of a row, nil where it is not known, or where another program may
// have changed it since.
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

// put keeps a tree in the place of the agent's last one.
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

// forgetIdle drops what was not used for long.
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
