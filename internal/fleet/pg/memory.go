package pg

import (
	"crypto/sha256"

	"github.com/ckptsidecar/ckptsidecar/internal/fleet"
)

// remembered is how many entries a connection remembers before it forgets everything.
const remembered = 1 << 16

// memory is what the engine has got over this connection, so that each thing is sent
// once. It ends with the connection: after a reconnect, nobody knows what the engine
// has.
type memory struct {
	names  map[fleet.Name]string // the uids under each name; the keys have no uid
	agents map[string][32]byte   // a hash of what was sent of each agent, by uid
	runs   map[string]int64      // the runs that the engine has, by uid, with the first event of each
}

func (m *memory) forget() {
	m.names, m.agents, m.runs = map[fleet.Name]string{}, map[string][32]byte{}, map[string]int64{}
}

// look forgets everything if a name of a batch now means something else. The engine
// removes what had the name, and the host may send it again under another name.
func (m *memory) look(c *fleet.Changes) {
	if m.names == nil || len(m.names)+len(m.agents)+len(m.runs) > remembered {
		m.forget()
	}
	for _, n := range c.Names {
		if uid, known := m.names[bare(n)]; known && uid != n.UID {
			m.forget()
			return
		}
	}
}

// keep remembers a batch that the engine has. It remembers nothing about a run that
// another host owns.
func (m *memory) keep(c *fleet.Changes, mine map[string]bool) {
	for _, n := range c.Names {
		m.names[bare(n)] = n.UID
	}
	for i := range c.Agents {
		m.agents[c.Agents[i].UID] = sent(&c.Agents[i])
	}
	for i := range c.Runs {
		if r := &c.Runs[i]; mine[r.UID] {
			m.runs[r.UID] = r.FirstEvent
		} else {
			delete(m.runs, r.UID)
		}
	}
}

func bare(n fleet.Name) fleet.Name {
	n.UID = ""
	return n
}

func sent(a *fleet.Agent) [32]byte {
	return sha256.Sum256([]byte(a.Owner + "\n" + a.Name + "\n" + a.Principal + "\n" + a.Takeover + "\n" + a.Doc))
}
