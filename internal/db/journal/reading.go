package journal

import (
	"github.com/ckptsidecar/ckptsidecar/internal/db/ledger"
	"github.com/ckptsidecar/ckptsidecar/internal/fleet"
)

// Journal reads committed changes.
type Journal struct {
	core   *ledger.Core
	agents agentLines
}

// New makes a Journal over a store.
func New(c *ledger.Core) *Journal { return &Journal{core: c} }

// Known is what is known about the segments that the engine has.
type Known interface {
	// Has says whether the engine has a segment of a run.
	Has(runUID string, segment int64) bool
	// HasNone says whether the engine certainly has no segment of a run, of any database.
	HasNone(runUID string) bool
}

type place struct{ owner, agent, run string }

func (p place) ofAgent() place { return place{owner: p.owner, agent: p.agent} }

// reading is one call of Since. The number of its statements does not grow with the number of saved
// runs, because a statement costs as much as the rows that it reads.
type reading struct {
	fleet.Changes
	journal  *Journal
	known    Known
	limits   fleet.Limits
	choice   Choice
	archived int64 // the last archived row of the log
	runs     map[place]*touched
	order    []place
	agents   map[place]bool
	ids      map[place]agentID // the agents that are here and are shipped
	local    map[place]bool    // agents that stay on this host
	asked    map[place]bool    // agents whose policies may have changed
	owners   []string          // owners whose agents' policies changed all at once; ckpt.AllOwners for all owners
	all      map[place]part    // agents all of whose runs must be read, and how much of each
	first    map[place]int     // how many rows of the log come before the first row that names a run
	gone     map[place][]int64 // the checkpoints that rows say were removed, by n
	fewer    int               // if not 0, the batch is too large, and should end after this many rows
}

func newReading(j *Journal, from fleet.Mark, limits fleet.Limits, choice Choice, known Known) *reading {
	return &reading{Changes: fleet.Changes{From: from, To: from}, journal: j, known: known, limits: limits, choice: choice,
		runs: map[place]*touched{}, agents: map[place]bool{}, ids: map[place]agentID{}, local: map[place]bool{}, asked: map[place]bool{},
		all: map[place]part{}, first: map[place]int{}, gone: map[place][]int64{}}
}

func (r *reading) touch(p place) *touched {
	t := r.runs[p]
	if t == nil {
		t = &touched{some: map[string][]string{}}
		r.runs[p] = t
		r.order = append(r.order, p)
		r.first[p] = max(0, len(r.Journal)-1)
	}
	return t
}

// tooMuch says, before a run is read, that the data read so far is enough for a batch: the rows of
// the log that come before the run then make the batch. The first run is always read.
func (r *reading) tooMuch(p place) bool {
	before := r.first[p]
	if p == r.order[0] || before == 0 || r.Size <= r.limits.Bytes {
		return false
	}
	r.fewer = before
	return true
}

// agentID has the ids of an agent on this host and in the fleet.
type agentID struct {
	id    int64
	uid   string
	named bool // its runs have names of their own in the whole fleet
}

// found is a run that is being read.
type found struct {
	fleet.Run
	place   place
	touched *touched
	id      int64 // the id of its row
	thread  bool  // it is a LangGraph thread
}
