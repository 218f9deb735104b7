package fleet

import (
	"strconv"
	"time"
)

// Claimable is a run as the engine holds it, with what a claimant must know of its owner.
type Claimable struct {
	RunShown
	AgentUID string
	Here     string   // who owns it on the claimant's host
	AgentDoc string   // the agent's line in an export
	Doc      string   // the run's row in an export
	Takeover string   // what the agent's policy says: auto, manual or never; "" where its host does not tell
	Lease    *float64 // seconds until the owner's lease is over, by the engine's clock; nil for a host that holds none
	Released bool     // the owner has let go of the run
	Drained  bool     // the owner has let go of all of its runs
	Sure     bool     // nothing can have happened to it that the engine has not
	SeenAgo  float64  // seconds since the engine heard of the owner, by the engine's clock
	Seen     any      // when that was, as the engine stores it: a claim compares it
	KeyID    string   // that it is sealed with, "" for in the clear
}

// Lost is the run, to be brought to the host that has claimed it. term is the one that
// the claim gave it.
func (c *Claimable) Lost(term int64) LostAgent {
	return LostAgent{UID: c.AgentUID, Owner: c.Here, Name: c.Agent, Doc: c.AgentDoc,
		Runs: []LostRun{{UID: c.UID, AgentUID: c.AgentUID, Name: c.Run, Term: term, Status: c.Status, Doc: c.Doc, KeyID: c.KeyID, Sure: c.Sure}}}
}

// Claim says who takes which run from whom.
type Claim struct {
	Run    *Claimable
	To     string // the claimant's database
	By     string // who asked for it
	Ground Ground
	Grace  time.Duration // for GroundLease: how long the lease must be over
}

// Ground is why a claim is right. The engine checks it in the claim's own transaction.
type Ground string

// The grounds of claims.
const (
	GroundLease    Ground = "lease"    // the owner's lease, and the grace, are over
	GroundReleased Ground = "released" // the owner has let go of the run
	GroundDrained  Ground = "drained"  // the owner has let go of all of its runs
	GroundSilent   Ground = "silent"   // the owner holds no lease, and was not heard of for long
	GroundForced   Ground = "forced"   // a person says so
)

// SilentFor is how long a host without a lease must be silent before its runs are claimed.
const SilentFor = 2 * time.Minute

// Ground says why the run may be claimed now, "" where it may not. It is only a look: the
// engine decides.
func (c *Claimable) Ground(grace time.Duration, force bool) Ground {
	switch {
	case force:
		return GroundForced
	case c.Released:
		return GroundReleased
	case c.Drained:
		return GroundDrained
	case c.Lease != nil && *c.Lease+grace.Seconds() < 0:
		return GroundLease
	case c.Lease == nil && c.SeenAgo >= SilentFor.Seconds():
		return GroundSilent
	}
	return ""
}

// Wait is how long it takes until the run may be claimed, if nothing changes.
func (c *Claimable) Wait(grace time.Duration) time.Duration {
	if c.Ground(grace, false) != "" {
		return 0
	}
	left := SilentFor.Seconds() - c.SeenAgo
	if c.Lease != nil {
		left = *c.Lease + grace.Seconds()
	}
	return time.Duration(max(left, 0.001) * float64(time.Second))
}

// How a run came to another host by a claim. A restore of a whole host notes "restored".
const (
	HowClaimed    = "claimed"
	HowReleased   = "released"
	HowForced     = "forced"
	HowReasserted = "re-asserted" // the engine had lost the claim, and the claimant has said so
	HowRejoined   = "rejoined"    // nobody has claimed it: this host has joined anew, and its former id has the run
)

// How is what the engine notes of a claim.
func (g Ground) How() string {
	switch g {
	case GroundForced:
		return HowForced
	case GroundReleased, GroundDrained:
		return HowReleased
	}
	return HowClaimed
}

// RunTerm is a run with the term that its host was given.
type RunTerm struct {
	UID  string `db:"uid"`
	Term int64  `db:"term"`
}

// Given are the runs that no other host was given under a higher term.
func Given(runs []RunTerm, taken []Taken) (mine []RunTerm) {
	higher := map[string]int64{}
	for i := range taken {
		higher[taken[i].UID] = max(higher[taken[i].UID], taken[i].Term)
	}
	for _, r := range runs {
		if r.Term > 0 && higher[r.UID] <= r.Term {
			mine = append(mine, r)
		}
	}
	return mine
}

// Remember adds to what an engine says of runs that other hosts have claimed what it said
// before, and may have lost since: a run stays theirs unless this host was given a higher
// term. Of a claim that was asserted again, the row from which on there is a strand is that
// of the claim itself.
func Remember(says, said []Taken, given []RunTerm) []Taken {
	mine, at := map[string]int64{}, map[string]int{}
	for _, r := range given {
		mine[r.UID] = r.Term
	}
	for i := range says {
		at[says[i].UID] = i
	}
	for _, t := range said {
		i, is := at[t.UID]
		switch term, here := mine[t.UID]; {
		case is && says[i].Term == t.Term && says[i].How == HowReasserted:
			says[i] = t
		case !is && here && term < t.Term:
			says = append(says, t)
		}
	}
	return says
}

// Taken is a run of this host that another host has claimed. What this host has of the
// run after row From of its audit log, the claimant has not: that is the strand.
type Taken struct {
	UID  string `json:"uid"`
	Term int64  `json:"term"` // the one that the claim gave
	From int64  `json:"from_n"`
	To   string `json:"to_db"`
	Host string `json:"to_host"`
	How  string `json:"how"`
	At   string `json:"at"`

	Decided   string `json:"decided"` // "" while nobody has decided about the strand, else adopted or dropped
	DecidedBy string `json:"decided_by"`
}

// ClaimRequest asks to bring a run of another host here. Agent must be set. Run,
// Owner and Host choose where the name stands for several.
type ClaimRequest struct {
	Agent string `json:"agent"`
	Run   string `json:"run,omitempty"`
	Owner string `json:"owner,omitempty"`
	Host  string `json:"host,omitempty"`
	Force bool   `json:"force,omitempty"`
}

// Claimed says what a claim brought here.
type Claimed struct {
	Owner       string `json:"owner"`
	Agent       string `json:"agent"`
	Run         string `json:"run"`
	UID         string `json:"uid"`
	From        string `json:"from_host"` // the name of the former owner
	FromDB      string `json:"from_db"`
	Term        int64  `json:"term"`
	Checkpoints int    `json:"checkpoints"`
	Uncertain   string `json:"uncertain,omitempty"` // why a person must decide before the run goes on, "" for nothing
}

// Released says which run a host has let go of.
type Released struct {
	Owner string `json:"owner"`
	Agent string `json:"agent"`
	Run   string `json:"run"`
	UID   string `json:"uid"`
}

// DrainRequest asks a host to let go of all of its runs, or to take them up again.
type DrainRequest struct {
	Undo bool `json:"undo,omitempty"`
}

// Drained says whether a host has let go of its runs.
type Drained struct {
	Host    string `json:"host"`
	Drained bool   `json:"drained"`
}

// Strand is what a host has of a run that another host has claimed, beyond what the
// claimant got.
type Strand struct {
	Taken
	Owner       string `json:"owner"`
	Agent       string `json:"agent"`
	Run         string `json:"run"`
	Status      string `json:"status"`
	Checkpoints int64  `json:"checkpoints"`
	Rows        int64  `json:"audit_rows"`       // of the audit log that name the run
	Newest      string `json:"newest,omitempty"` // its newest checkpoint, a clean one if there is any
	Seq         int64  `json:"newest_seq,omitempty"`
}

// Strands are all strands of a host.
type Strands struct {
	Strands []Strand `json:"strands"`
}

// What is decided about a strand.
const (
	Adopted = "adopted"
	Dropped = "dropped"
)

// StrandDecision asks to adopt or drop a strand.
type StrandDecision struct {
	Decision string `json:"-"`             // adopted or dropped
	Run      string `json:"run,omitempty"` // to adopt into; "" for the name that AdoptedName makes
}

// StrandDecided says what became of a strand.
type StrandDecided struct {
	Strand
	Into       string `json:"into,omitempty"`       // the run that has it now
	Checkpoint string `json:"checkpoint,omitempty"` // the first of that run
}

// AdoptedName is the run that a strand is adopted into where nobody names one.
func AdoptedName(run string, term int64) string {
	return run + "-strand-" + strconv.FormatInt(term, 10)
}
