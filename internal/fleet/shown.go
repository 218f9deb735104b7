package fleet

import "strings"

// Status says how a host's shipping is doing. If a host belongs to no fleet, On is false
// and nothing else is set.
type Status struct {
	On       bool   `json:"on"`
	State    string `json:"state"` // one of the states below
	Error    string `json:"error"` // the last error, "" if the engine answers
	Name     string `json:"name"`  // of this host
	DB       string `json:"db"`    // the id of its database
	Address  string `json:"address"`
	Engine   string `json:"engine"` // what the engine calls itself, "" before it was reached
	EngineID string `json:"engine_id"`
	Profile  string `json:"profile"`

	Ship      string  `json:"ship"` // all, or policy: only agents whose policies ask for the fleet
	Mark      Mark    `json:"mark"`
	Unshipped int64   `json:"unshipped_rows"` // of the audit log
	Lag       float64 `json:"lag_seconds"`    // how long the oldest unshipped row has waited
	Batches   int64   `json:"batches"`        // since the daemon began
	Took      float64 `json:"batch_seconds"`  // how long the last batch took
	Clear     bool    `json:"stored_in_the_clear"`

	Keys     []string       `json:"sealed_with"` // the names of the keys that seal what is shipped
	Erasures []ErasureShown `json:"erasures"`    // erasures that some host has not confirmed
	Strands  []Strand       `json:"strands"`     // what only this host has of runs that other hosts have claimed
	WentBack int64          `json:"went_back"`   // how often the engine had lost what it had acknowledged, since the daemon began

	// Noticed are the hosts that have found that the engine went back. No host claims by itself until a person has
	// accepted that.
	Noticed []string `json:"went_back_noticed_by"`

	Principals map[string]string `json:"principals"` // as the settings map users of this host
	Realms     map[string]string `json:"realms"`
	Lease      string            `json:"lease"` // held or doubtful
	LeaseLeft  float64           `json:"lease_left_seconds"`
	LeaseSpan  float64           `json:"lease_seconds"`
	Grace      float64           `json:"grace_seconds"` // how much longer this host waits before it claims
	LeaseError string            `json:"lease_error"`   // why the lease is not renewed, "" if it is
}

// Which agents are shipped.
const (
	ShipAll    = "all"
	ShipPolicy = "policy"
)

// States of a shipper.
const (
	StateOff         = "off"         // no engine is set
	StateConnecting  = "connecting"  // the engine was not reached yet
	StateShipping    = "shipping"    // all is well
	StateUnreachable = "unreachable" // the engine is away, or does not answer
	StateFull        = "full"        // the engine has no room
	StateRefused     = "refused"     // the engine answers, but does not take what this host has
	StateSplit       = "split"       // the engine has another history of this database
)

// HostShown is a host as the engine knows it.
type HostShown struct {
	DB      string  `json:"db"`
	Name    string  `json:"name"`
	Version string  `json:"version"`
	SeenAt  string  `json:"seen_at"`
	SeenAgo float64 `json:"seen_seconds_ago"` // by the engine's clock
	MarkN   int64   `json:"mark"`
	Runs    int64   `json:"runs"`
	This    bool    `json:"this_host"`

	Forgotten bool     `json:"forgotten"`          // a person said that it is gone for good
	Lease     *float64 `json:"lease_left_seconds"` // by the engine's clock, negative after its end; nil if it holds none
}

// Hosts are all hosts of the fleet.
type Hosts struct {
	Hosts []HostShown `json:"hosts"`
}

// RunShown is a run as the engine knows it.
type RunShown struct {
	UID       string `json:"uid"`
	DB        string `json:"db"`
	Host      string `json:"host"`
	This      bool   `json:"this"` // the host of the daemon that answers has the run
	Owner     string `json:"owner"`
	Principal string `json:"principal"` // of the owner
	Agent     string `json:"agent"`
	Run       string `json:"run"`
	Status    string `json:"status"`
	Term      int64  `json:"term"`
	Seq       int64  `json:"last_seq"`
	UpdatedAt string `json:"updated_at"`
	AsOf      int64  `json:"as_of_n"`
}

// Runs are one page of the runs of all hosts, the last changed first.
type Runs struct {
	Runs []RunShown `json:"runs"`
	Next *string    `json:"next"` // nil on the last page
}

// Cursor returns the cursor of the page that follows a run.
func (r *RunShown) Cursor() string { return r.UpdatedAt + "/" + r.UID }

// RunsQuery chooses runs of the fleet. "" matches any value.
type RunsQuery struct {
	Host      string // its name or its database
	Owner     string
	Principal string
	Agent     string
	Status    string
	Before    string // the cursor of the previous page
	Limit     int

	For *Asker // nil for a caller who may see everything
}

// Asker is a user who may see the runs of the user's principal.
type Asker struct{ Principal string }

// After returns the run after which the page begins, "" for the first page.
func (q *RunsQuery) After() (updatedAt, uid string, ok bool) {
	if q.Before == "" {
		return "", "", true
	}
	updatedAt, uid, ok = strings.Cut(q.Before, "/")
	return updatedAt, uid, ok && updatedAt != "" && uid != ""
}

// KeyShown is a key of a key file, without its secret bytes.
type KeyShown struct {
	ID    string `json:"id"`
	Seals bool   `json:"seals"` // false: the key opens what it has sealed
}

// Keys are the keys of a key file.
type Keys struct {
	File string     `json:"file"`
	Keys []KeyShown `json:"keys"`
}
