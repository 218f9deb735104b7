package fleet

import "fmt"

// Usage is how much the engine holds for the principals of a host, compared with their
// quota.
type Usage struct {
	// Limit is limits.principal_bytes of this host. If it is 0, nothing is counted.
	Limit      int64           `json:"limit"`
	CountedAgo float64         `json:"counted_seconds_ago"` // negative before the first count
	Principals []PrincipalUsed `json:"principals"`
}

// PrincipalUsed is how much the engine holds for one principal, of all hosts together.
type PrincipalUsed struct {
	Principal string `json:"principal"`
	Owner     string `json:"owner"` // who the principal is on this host
	Bytes     int64  `json:"bytes"`
	Full      bool   `json:"full"` // the quota is used up
}

// Of returns the usage of one owner.
func (u *Usage) Of(owner string) *Usage {
	own := &Usage{Limit: u.Limit, CountedAgo: u.CountedAgo, Principals: []PrincipalUsed{}}
	for _, p := range u.Principals {
		if p.Owner == owner {
			own.Principals = append(own.Principals, p)
		}
	}
	return own
}

// Full returns how many principals have used up their quota.
func (u *Usage) Full() (n int) {
	for _, p := range u.Principals {
		if p.Full {
			n++
		}
	}
	return n
}

// Refusal tells a principal that has used up its quota what is wrong and what to do.
func (p *PrincipalUsed) Refusal(limit int64) string {
	return fmt.Sprintf("the fleet's engine has %d bytes of %s, and the limit is %d (limits.principal_bytes), so nothing "+
		"more is saved for agents with durability: fleet: delete checkpoints or runs, erase agents, or let the policies "+
		"keep less, and try again; with on_outage: degrade the agent saves on this host only", p.Bytes, p.Principal, limit)
}

// RunVersion is a run, and the values that change whenever its rows in the engine
// change.
type RunVersion struct {
	UID, Principal, Host string
	Term, AsOf           int64
}
