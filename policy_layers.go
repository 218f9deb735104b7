package ckptsidecar

// PolicySource is the policy that a value comes from.
type PolicySource string

// The sources of a policy's values, the weakest first.
const (
	PolicyBuiltIn  PolicySource = "default" // the defaults of the program
	PolicyOfDaemon PolicySource = "daemon"  // [policy] in the daemon's settings
	PolicyOfOwner  PolicySource = "owner"   // the owner's policy for all of their agents
	PolicyOfAgent  PolicySource = "agent"   // the agent's own policy
)

// AllAgents is used as the name of an agent for an owner's policy for all agents.
const AllAgents = "*"

// PolicyLayers is a policy with the source of each value.
type PolicyLayers struct {
	Policy Policy `json:"policy"` // the effective policy
	// From has the source of each value. Parts of detectors and budget that a policy sets
	// have their own names, such as budget.steps.
	From   map[string]PolicySource `json:"from"`
	Agent  JSON                    `json:"agent,omitempty"` // the agent's own policy; absent for an owner's policy
	Owner  JSON                    `json:"owner"`           // what the owner's policy for all agents sets
	Daemon JSON                    `json:"daemon"`          // what the daemon's settings say
}

// OwnerPolicySet is the answer to a change of an owner's policy.
type OwnerPolicySet struct {
	PolicyLayers
	Agents  int64 `json:"agents"`  // the number of agents for which something changed
	Removed int64 `json:"removed"` // the number of checkpoints that the change removed
}
