package fleet

// HostNamed is a host of the fleet.
type HostNamed struct {
	DB   string `json:"db"`
	Name string `json:"name"`
}

// ErasureShown is an agent that was erased on one host, while other hosts may still
// have copies of it.
type ErasureShown struct {
	DB    string      `json:"db"` // the database where it was erased, and the row of its audit log
	N     int64       `json:"n"`
	Host  string      `json:"host"`
	Owner string      `json:"owner"`
	Agent string      `json:"agent"`
	At    string      `json:"at"`
	Waits []HostNamed `json:"waiting_for"` // hosts that have not confirmed that they have no copy
}

// WaitsFor reports whether a host has not confirmed an erasure yet.
func (x *ErasureShown) WaitsFor(db string) bool {
	for _, h := range x.Waits {
		if h.DB == db {
			return true
		}
	}
	return false
}
