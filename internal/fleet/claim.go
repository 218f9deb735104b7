package fleet

import "time"

// Claimable is a run as the engine holds it, with what a claimant must know about its
// owner.
type Claimable struct {
	RunShown
	AgentUID string
	Here     string   // the user who owns it on the claimant's host
	AgentDoc string   // the agent's line in an export
	Doc      string   // the run's row in an export
	Takeover string   // what the agent's policy says: auto, manual or never; "" if its host does not tell
	Lease    *float64 // seconds until the owner's lease is over, by the engine's clock; nil for a host that holds no lease
	Released bool     // the owner has let go of the run
	Drained  bool     // the owner has let go of all of its runs
	Named    bool     // no other run of the principal may have the name
	Sure     bool     // nothing can have happened to the run that the engine does not know
	SeenAgo  float64  // seconds since the engine last heard from the owner, by the engine's clock
	Seen     any      // when that was, in the engine's own type: a claim compares it
	KeyID    string   // the key that it is sealed with, "" for in the clear

	// What is known about the claim that gave the run to its owner; "" if there is none.
	How        string
	FromDB     string
	FromHost   string
	FromSilent float64 // seconds since the engine last heard from the former owner, or since the claim if it has come back
}

// Lost returns the run as something to bring to the host that has claimed it. term is the
// term that the claim gave it.
func (c *Claimable) Lost(term int64) LostAgent {
	return LostAgent{UID: c.AgentUID, Owner: c.Here, Name: c.Agent, Doc: c.AgentDoc,
		Runs: []LostRun{{UID: c.UID, AgentUID: c.AgentUID, Name: c.Run, Term: term, Status: c.Status, Doc: c.Doc, KeyID: c.KeyID, Sure: c.Sure}}}
}

// Claim says which host claims which run from which host.
type Claim struct {
	Run    *Claimable
	To     string // the claimant's database
	By     string // the user who asked for it
	Ground Ground
	Anew   bool          // the run loses its name: the claimant begins a run of its own under it
	Grace  time.Duration // for GroundLease: for how long the lease must have been over
}

// Ground is why a claim is right. The engine checks it in the claim's own transaction.
type Ground string

// The grounds of claims.
const (
	GroundLease    Ground = "lease"    // the owner's lease, and the grace, are over
	GroundReleased Ground = "released" // the owner has let go of the run
	GroundDrained  Ground = "drained"  // the owner has let go of all of its runs
	GroundSilent   Ground = "silent"   // the owner holds no lease, and the engine has not heard from it for SilentFor
	GroundForced   Ground = "forced"   // a person forces the claim
)

// SilentFor is how long a host without a lease must be silent before other hosts may claim
// its runs.
const SilentFor = 2 * time.Minute

// Ground returns why the run may be claimed now, "" if it may not. It is only a forecast:
// the engine decides.
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

// Wait returns how long it takes until the run may be claimed, if nothing changes.
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

// How a claim brought a run to another host. A restore of a whole host notes "restored".
const (
	HowClaimed    = "claimed"
	HowReleased   = "released"
	HowForced     = "forced"
	HowBorn       = "born"        // nobody has claimed it: both hosts began a run of this name, and the other one has it
	HowReasserted = "re-asserted" // the engine had lost the claim, and the claimant has told it again
	HowOutrun     = "outrun"      // the engine had lost the claim of this host, and another host has claimed the run since
)

// How returns what the engine notes about a claim.
func (g Ground) How() string {
	switch g {
	case GroundForced:
		return HowForced
	case GroundReleased, GroundDrained:
		return HowReleased
	}
	return HowClaimed
}

// RunTerm is a run with the term that the engine gave to its host.
type RunTerm struct {
	UID  string `db:"uid"`
	Term int64  `db:"term"`
}

// Given returns the runs that the engine has not given to another host under a higher term.
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

// Remember adds to says, what an engine reports about runs that other hosts have claimed,
// what it reported before (said) and may have lost since. A run stays with the other host
// unless this host was given it under a higher term. If a claim was asserted again,
// Remember keeps the earlier report of it, because the strand begins at the row of the
// original claim.
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

// Taken is a run of this host that another host has claimed. The claimant does not have
// what this host wrote about the run after row From of its audit log: that is the strand.
type Taken struct {
	UID  string `json:"uid"`
	Term int64  `json:"term"` // the term that the claim gave
	From int64  `json:"from_n"`
	To   string `json:"to_db"`
	Host string `json:"to_host"`
	How  string `json:"how"`
	At   string `json:"at"`
}

// ClaimRequest asks to bring a run of another host here. Agent must be set. Run, Owner and
// Host choose a run if several have the name.
type ClaimRequest struct {
	Agent string `json:"agent"`
	Run   string `json:"run,omitempty"`
	Owner string `json:"owner,omitempty"`
	Host  string `json:"host,omitempty"`
	Force bool   `json:"force,omitempty"`

	// The daemon looks for fewer runs with these. "" stands for any.
	UID       string `json:"-"`
	Takeover  string `json:"-"` // what the policy must say
	Principal string `json:"-"` // whose the run must be
	OrOwner   string `json:"-"` // or of this owner, whoever that is in the fleet
}

// Claimed says what a claim brought to this host.
type Claimed struct {
	Owner       string `json:"owner"`
	Agent       string `json:"agent"`
	Run         string `json:"run"`
	UID         string `json:"uid"`
	From        string `json:"from_host"` // the name of the former owner
	FromDB      string `json:"from_db"`
	Term        int64  `json:"term"`
	Checkpoints int    `json:"checkpoints"`
	Uncertain   string `json:"uncertain,omitempty"` // why a person must decide before the run goes on, "" if nobody must

	Damaged []DamagedCheckpoint `json:"damaged,omitempty"` // what the engine holds but this host cannot read
}

// Released says which run a host has let go of.
type Released struct {
	Owner string `json:"owner"`
	Agent string `json:"agent"`
	Run   string `json:"run"`
	UID   string `json:"uid"`
}

// DrainRequest asks a host to let go of all of its runs, or to own them again.
type DrainRequest struct {
	Undo bool `json:"undo,omitempty"`
}

// Drained says whether a host has let go of its runs.
type Drained struct {
	Host    string `json:"host"`
	Drained bool   `json:"drained"`
}

// Strand is what a host has of a run beyond what the host that claimed the run got.
type Strand struct {
	Taken
	Owner       string `json:"owner"`
	Agent       string `json:"agent"`
	Run         string `json:"run"`
	Status      string `json:"status"`
	Checkpoints int64  `json:"checkpoints"`
	Rows        int64  `json:"audit_rows"` // rows of the audit log that name the run
	Changed     bool   `json:"-"`          // the agent's policy has changed meanwhile
}
