package journal

import (
	"sync"

	ckpt "github.com/ckptsidecar/ckptsidecar"
	"github.com/ckptsidecar/ckptsidecar/internal/db/archive"
	"github.com/ckptsidecar/ckptsidecar/internal/db/ledger"
)

// agentLines are the lines of agents that were shipped lately, by what they were made of.
// A line that was found is right whatever has happened since.
type agentLines struct {
	mu   sync.Mutex
	made map[archive.Agent]*agentLine
}

// agentLinesMost is how many are kept.
const agentLinesMost = 4096

// agentLine is what the engine is told of an agent.
type agentLine struct {
	doc, takeover string
	policy        *ckpt.Policy // nil for one that cannot be read
}

func (l *agentLines) of(a *archive.Agent) (*agentLine, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if line := l.made[*a]; line != nil {
		return line, nil
	}
	line, err := lineOf(a)
	if err != nil {
		return nil, err
	}
	if len(l.made) >= agentLinesMost || l.made == nil {
		l.made = map[archive.Agent]*agentLine{}
	}
	l.made[*a] = line
	return line, nil
}

// lineOf makes the line of an agent. Where its policy cannot be read, a person must bring
// its runs to another host.
func lineOf(a *archive.Agent) (*agentLine, error) {
	line := &agentLine{takeover: string(ckpt.TakeoverManual)}
	if row, err := (&ledger.AgentRow{Policy: a.Policy}).Parsed(); err == nil {
		line.policy, line.takeover = &row.Settings, string(row.Settings.Takeover)
	}
	var err error
	line.doc, err = a.Line()
	return line, err
}

// ships says whether the agent is shipped. One whose policy cannot be read is, because the
// engine may have it already.
func (l *agentLine) ships(c *Choice) bool { return l.policy == nil || c.Ships(l.policy) }
