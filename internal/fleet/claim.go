package fleet

// Claimable is a run as the engine holds it, with what a claimant must know of its owner.
type Claimable struct {
	RunShown
	AgentUID string
	AgentDoc string  // the agent's line in an export
	Doc      string  // the run's row in an export
	SeenAgo  float64 // seconds since the engine heard of the owner, by the engine's clock
	Seen     any     // when that was, as the engine stores it: a claim compares it
}

// Lost is the run, to be brought to the host that has claimed it. term is the one that
// the claim gave it.
func (c *Claimable) Lost(term int64) LostAgent {
	return LostAgent{UID: c.AgentUID, Owner: c.Owner, Name: c.Agent, Doc: c.AgentDoc,
		Runs: []LostRun{{UID: c.UID, AgentUID: c.AgentUID, Name: c.Run, Term: term, Status: c.Status, Doc: c.Doc}}}
}

// Claim says who takes which run from whom.
type Claim struct {
	Run    *Claimable
	To     string // the claimant's database
	By     string // who asked for it
	Forced bool   // the owner may be alive
}

// How a run came to another host.
const (
	HowClaimed  = "claimed"
	HowForced   = "forced"
	HowRestored = "restored"
)

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
	Owner       string   `json:"owner"`
	Agent       string   `json:"agent"`
	Run         string   `json:"run"`
	UID         string   `json:"uid"`
	From        string   `json:"from_host"` // the name of the former owner
	FromDB      string   `json:"from_db"`
	Term        int64    `json:"term"`
	Checkpoints int      `json:"checkpoints"`
	Damaged     []string `json:"damaged"`
	Uncertain   string   `json:"uncertain,omitempty"` // why a person must decide before the run goes on, "" for nothing
}
