package fleet

import "time"

// QuietHost is a host whose lease is over and that the engine has not heard of for long.
type QuietHost struct {
	DB, Name string
	MarkN    int64         // its newest row that the engine has
	At       time.Time     // when that row was written, by the host's own clock
	Silent   time.Duration // how long the engine has not heard of it, by the engine's clock
}

// Now is the time by the host's clock, or earlier: when it wrote the last row that the
// engine has, and for how long it has been silent since. The ages of its checkpoints are
// judged by it, because they have the times of the same clock. So nothing goes earlier
// than the host itself would have removed it.
func (h *QuietHost) Now() time.Time { return h.At.Add(h.Silent) }

// Cleaning is what goes of one run of a quiet host, and why.
type Cleaning struct {
	ID    string
	Host  QuietHost
	Run   LostRun // with all of its checkpoints
	Owner string
	Agent string

	Gone []Cleaned
	Drop bool // the whole run goes; Gone are then its checkpoints
	Why  string
}

// Cleaned is a checkpoint that goes.
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

// Janitor is who holds the row of the janitor, as a host asks for it.
type Janitor struct {
	DB          string // of the host that asks
	Incarnation int64  // under which that host holds its lease
	Span        time.Duration
	After       time.Duration // how long a host must be silent, and its lease over
}
