package journal

import (
	"sync"

	ckpt "github.com/ckptsidecar/ckptsidecar"
	"github.com/ckptsidecar/ckptsidecar/internal/db/copy"
	"github.com/ckptsidecar/ckptsidecar/internal/db/ledger"
)

// agentLines are the lines of recently shipped agents, by the rows that they were made from. A line
// depends only on its row, so it never becomes stale.
type agentLines struct {
	mu   sync.Mutex
	made map[copy.Agent]*agentLine
}

// agentLinesMost is how many lines are kept.
const agentLinesMost = 4096

// agentLine is what the engine gets of an agent.
type agentLine struct {
	doc, takeover string
	policy        *ckpt.Policy // nil if it cannot be read
}

func (l *agentLines) of(a *copy.Agent) (*agentLine, error) {
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
		l.made = map[copy.Agent]*agentLine{}
	}
	l.made[*a] = line
	return line, nil
}

// lineOf makes the line of an agent. If its policy cannot be read, takeover is manual: a person
// must move its runs to another host.
func lineOf(a *copy.Agent) (*agentLine, error) {
	line := &agentLine{takeover: string(ckpt.TakeoverManual)}
	if row, err := (&ledger.AgentRow{Policy: a.Policy}).Parsed(); err == nil {
		line.policy, line.takeover = &row.Settings, string(row.Settings.Takeover)
	}
	var err error
	line.doc, err = a.Line()
	return line, err
}

// ships says whether the agent is shipped. An agent whose policy cannot be read is shipped, because
// the engine may have it already.
func (l *agentLine) ships(c *Choice) bool { return l.policy == nil || c.Ships(l.policy) }
