package ckptsidecar

// Caller is the identity of the process that makes a call, as the kernel reports it.
type Caller struct {
	Owner string // "uid:1000", or a SID
	PID   int    // a hint for the audit log; pids are reused
	Admin bool
}

// Scope is the caller, and the owner whose agents the call is about.
type Scope struct {
	Caller
	Target string // an owner, AllOwners, or "" for the caller's own

	// Spooled is when a client put this write into its spool because there was no daemon. It is
	// zero for a write that comes directly. A late write does not show that the owner of its run
	// is alive now.
	Spooled Time

	// Reason is why the caller makes the call, for the audit log; "" if the caller does not say.
	Reason string
}

// For sets the owner whose agents a call is about. Only an administrator may name another owner.
func (c Caller) For(owner string) (Scope, error) {
	if owner == "" || owner == c.Owner && !c.Admin { // an administrator who names nobody sees everybody's
		return Scope{Caller: c}, nil
	}
	if !c.Admin {
		return Scope{}, Errorf(CodeDenied, "only an administrator may name another owner")
	}
	return Scope{Caller: c, Target: owner}, nil
}

// Whose returns the owner whose agents names refer to.
func (s Scope) Whose() string {
	if s.Target == "" {
		return s.Caller.Owner
	}
	return s.Target
}

// Foreign reports whether the call is about agents of other owners.
func (s Scope) Foreign() bool { return s.Target != "" }

// Agent is what the store knows about an agent.
type Agent struct {
	Agent       string `json:"agent" db:"agent"`
	Owner       string `json:"owner" db:"owner"`
	CreatedAt   Time   `json:"created_at" db:"created_at"`
	UpdatedAt   Time   `json:"updated_at" db:"updated_at"` // of the agent's newest run
	Runs        int64  `json:"runs" db:"runs"`
	Checkpoints int64  `json:"checkpoints" db:"checkpoints"`
	StoredBytes int64  `json:"stored_bytes" db:"stored_bytes"` // of the states of its checkpoints
	FilesBytes  int64  `json:"files_bytes" db:"files_bytes"`   // of the contents of its files
	// StateBytes is the size of the states as the agent sees them. It is set only if the filter
	// asks for it.
	StateBytes *int64 `json:"state_bytes,omitempty" db:"state_bytes"`
}

// AgentPage is one page of agents, by owner and name.
type AgentPage struct {
	Agents []Agent `json:"agents"`
	Next   Ref     `json:"next"`
}

// AgentFilter chooses agents.
type AgentFilter struct {
	Before string // a cursor: Next of the previous page
	Limit  int
	States bool // also add up the sizes of the states; this reads every checkpoint
}

// Erased is the answer to the erasure of an agent.
type Erased struct {
	Agent       string `json:"agent"`
	Owner       string `json:"owner"`
	Runs        int64  `json:"runs"`
	Checkpoints int64  `json:"checkpoints"`
	StoredBytes int64  `json:"stored_bytes"`
	FilesBytes  int64  `json:"files_bytes"`
	// Uncertain is how many operations were erased although nobody knows whether they took effect. Their names are erased too.
	Uncertain int64 `json:"uncertain_operations"`

	Fleet *ErasedFleet `json:"fleet,omitempty"` // nil for a host that belongs to no fleet
}

// ErasedFleet says which hosts of the fleet have not erased an agent yet. They learn of it when
// they next speak to the engine.
type ErasedFleet struct {
	Waiting []string `json:"waiting_for"`
}
