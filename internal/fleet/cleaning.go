package fleet

import "time"

// QuietHost is a host whose lease is over and from which the engine has not heard for a
// long time.
type QuietHost struct {
	DB, Name string
	MarkN    int64         // its newest row that the engine has
	At       time.Time     // when that row was written, by the host's own clock
	Silent   time.Duration // how long the engine has not heard from it, by the engine's clock
}

// Now returns the time by the host's own clock, or an earlier time: the time of the last
// row that the engine has, plus how long the host has been silent since. The ages of its
// checkpoints are judged by this time, because their times come from the same clock. So
// nothing is removed earlier than the host itself would have removed it.
func (h *QuietHost) Now() time.Time { return h.At.Add(h.Silent) }

// Cleaning is what the janitor removes of one run of a quiet host, and why.
type Cleaning struct {
	ID    string
	Host  QuietHost
	Run   LostRun // with all of its checkpoints
	Owner string
	Agent string

	Gone []Cleaned
	Drop bool // the whole run is removed; Gone are then its checkpoints
	Why  string
}

// Cleaned is a checkpoint that the janitor removes.
type Cleaned struct {
	ID     string `json:"id"`
	N      int64  `json:"-"`
	Reason string `json:"reason"`
}

// CleaningNoted is a cleaning as the engine remembers it.
type CleaningNoted struct {
	ID    string
	Host  string // its database
	Name  string
	Owner string
	Agent string
	Run   string
	UID   string
	Drop  bool
	Doc   string // the list of Cleaned, as JSON
	Why   string
}

// Janitor is the claim of a host to be the fleet's janitor: it asks for the janitor's
// row in the engine.
type Janitor struct {
	DB          string // of the host that asks
	Incarnation int64  // under which that host holds its lease
	Span        time.Duration
	After       time.Duration // how long a host must have been silent with its lease over
}
