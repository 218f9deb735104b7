package pg

import (
	"crypto/sha256"

	"github.com/ckptsidecar/ckptsidecar/internal/fleet"
)

// remembered is how much a connection remembers before it begins anew.
const remembered = 1 << 16

// memory is what the engine has from this connection, so that it is sent once. It ends
// with the connection: nobody knows what an engine has to which one connects again.
type memory struct {
	names  map[fleet.Name]string // the uids that stand under names; the keys have none
	agents map[string][32]byte   // what was sent of agents, by uid
	runs   map[string]int64      // those that are there, by uid, with the first event that each has
}

func (m *memory) forget() {
	m.names, m.agents, m.runs = map[fleet.Name]string{}, map[string][32]byte{}, map[string]int64{}
}

// look forgets everything where a name of a batch stands for something else by now: what
// stood there goes, and may be sent again under another name.
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

// keep remembers a batch that the engine has. Of a run that another host owns nothing
// is known.
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
