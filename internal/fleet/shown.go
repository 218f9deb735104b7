package fleet

// Status is how a host's shipping goes.
type Status struct {
	On        bool     `json:"on"`
	Name      string   `json:"name"`
	State     string   `json:"state"` // off, connecting, shipping, or why nothing is shipped: split, unreachable, refused
	Engine    string   `json:"engine,omitempty"`
	EngineID  string   `json:"engine_id,omitempty"`
	Mark      Mark     `json:"mark"`
	Unshipped int64    `json:"unshipped_rows"`
	Lag       float64  `json:"lag_seconds"`
	Batches   int64    `json:"batches"`
	Rows      int64    `json:"rows"`
	Bytes     int64    `json:"bytes"`
	WentBack  int64    `json:"engine_went_back"`
	Fenced    []string `json:"fenced"` // runs that another host owns now
	ShippedAt string   `json:"shipped_at,omitempty"`
	Error     string   `json:"error,omitempty"`
	Clear     bool     `json:"stored_in_the_clear"`

	BatchSeconds float64 `json:"batch_seconds"` // the last one took
}

// States of a shipper.
const (
	StateOff         = "off"
	StateConnecting  = "connecting"
	StateShipping    = "shipping"
	StateUnreachable = "unreachable"
	StateRefused     = "refused"
	StateSplit       = "split"
)

// HostShown is a host as the engine knows it.
type HostShown struct {
	DB       string  `json:"db"`
	Name     string  `json:"name"`
	Version  string  `json:"version"`
	SeenAt   string  `json:"seen_at"`
	SeenAgo  float64 `json:"seen_seconds_ago"` // by the engine's clock
	MarkN    int64   `json:"mark"`
	Runs     int64   `json:"runs"`
	This     bool    `json:"this_host"`
	Restored string  `json:"restored_by,omitempty"` // the host that has its runs now
}

// Hosts are all hosts.
type Hosts struct {
	Hosts []HostShown `json:"hosts"`
}

// RunShown is a run as the engine knows it.
type RunShown struct {
	UID       string `json:"uid"`
	DB        string `json:"db"`
	Host      string `json:"host"`
	Owner     string `json:"owner"`
	Agent     string `json:"agent"`
	Run       string `json:"run"`
	Status    string `json:"status"`
	Term      int64  `json:"term"`
	Seq       int64  `json:"last_seq"`
	UpdatedAt string `json:"updated_at"`
	AsOf      int64  `json:"as_of_n"`
}

// Runs are runs of all hosts, the last changed first.
type Runs struct {
	Runs []RunShown `json:"runs"`
	More bool       `json:"more"`
}

// RunsQuery chooses runs of the fleet.
type RunsQuery struct {
	Host, Owner, Agent, Status string // "" for any
	Limit                      int
}
