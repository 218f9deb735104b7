package driftlog

import (
	"maps"
	"sync"
	"time"

	"github.com/ckptsidecar/ckptsidecar/internal/db/ledger"
)

// shared has the values of agents at the places on which their policies say that they must agree.
// It holds only hashes, of the newest state of each agent. Saves keep it up to date, and it is read
// once from disk after a start.
type shared struct {
	mu     sync.Mutex
	values map[ledger.AgentKey]map[string]sharedValue // by pointer
	differ map[sharedKey]*disagreement
}

type sharedValue struct {
	hash       string // "" if the state has no such place
	checkpoint string
	runID      int64
	at         time.Time // since when the run has had it
}

type sharedKey struct{ owner, pointer string }

// disagreement says since when the values at a place have differed.
type disagreement struct {
	began time.Time
	since map[part]time.Time // since when a run has taken part
	told  map[part]bool      // it was warned
}

// part is a run that takes part in a disagreement. An agent with several runs takes part with the
// one that saved last. The others take part again when they save again.
type part struct{ agent, run int64 }

// mostParts is how many runs of one disagreement are remembered that have not saved last.
const mostParts = 1000

// forget drops the runs of agents that no longer take part.
func (d *disagreement) forget(takes map[part]time.Time) {
	agents := map[int64]bool{}
	for p := range takes {
		agents[p.agent] = true
	}
	many := len(d.since) > len(takes)+mostParts
	gone := func(p part) bool {
		_, saved := takes[p]
		return !agents[p.agent] || many && !saved
	}
	maps.DeleteFunc(d.since, func(p part, _ time.Time) bool { return gone(p) })
	maps.DeleteFunc(d.told, func(p part, _ bool) bool { return gone(p) })
}

func (m *shared) put(key ledger.AgentKey, values map[string]sharedValue) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.set(key, values)
}

func (m *shared) set(key ledger.AgentKey, values map[string]sharedValue) {
	if m.values == nil {
		m.values, m.differ = map[ledger.AgentKey]map[string]sharedValue{}, map[sharedKey]*disagreement{}
	}
	m.values[key] = values
}

// fill adds what was read to what is known of an agent, and returns both. A save that came meanwhile
// has newer values.
func (m *shared) fill(key ledger.AgentKey, read map[string]sharedValue) map[string]sharedValue {
	m.mu.Lock()
	defer m.mu.Unlock()
	maps.Copy(read, m.values[key])
	m.set(key, read)
	return read
}

func (m *shared) get(key ledger.AgentKey) (map[string]sharedValue, bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	values, known := m.values[key]
	return values, known
}

// forgetRun forgets the values of a run that leaves its newest state.
func (m *shared) forgetRun(runID int64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	maps.DeleteFunc(m.values, func(_ ledger.AgentKey, values map[string]sharedValue) bool {
		for _, v := range values {
			if v.runID == runID {
				return true
			}
		}
		return false
	})
}

func (m *shared) ForgetAgent(owner, agent string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.values, ledger.AgentKey{Owner: owner, Name: agent})
}
