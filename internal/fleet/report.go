package fleet

import (
	"strings"
	"time"
)

// Host is a host of the fleet, as it registers with the engine.
type Host struct {
	DB      string // the id of its database
	Name    string
	Version string
	Schema  int
}

// Report is what a check of an engine has found.
type Report struct {
	Engine     string   `json:"engine"`  // what the engine calls itself
	Profile    string   `json:"profile"` // postgres, cockroach or yugabyte
	Schema     int      `json:"schema"`  // of the fleet's tables; 0 if there are none
	EngineID   string   `json:"engine_id"`
	Replicated bool     `json:"replicated"`  // a commit waits for another machine
	How        string   `json:"replication"` // in words
	Isolation  string   `json:"isolation"`
	ClockAhead float64  `json:"clock_ahead_seconds"` // the engine's clock, compared with this machine's
	Rights     []string `json:"missing_rights"`
	Problems   []string `json:"problems"`
	Notes      []string `json:"notes"`
}

// Good reports whether a daemon may ship to the engine.
func (r *Report) Good() bool { return len(r.Problems) == 0 }

// Durable reports whether the engine is safe enough for `durability: fleet`, and why or
// why not.
func (r *Report) Durable(assume bool) (bool, string) {
	switch {
	case !r.Good():
		return false, "the engine has problems: " + strings.Join(r.Problems, "; ")
	case r.Replicated:
		return true, ""
	case assume:
		return true, "the engine does not say that it replicates; fleet.assume_durable takes its place"
	}
	return false, "a commit of the engine waits for no other machine: " + r.How
}

// Profiles of engines.
const (
	ProfilePostgres  = "postgres"
	ProfileCockroach = "cockroach"
	ProfileYugabyte  = "yugabyte"
)

// ProfileOf reads a profile from what an engine calls itself.
func ProfileOf(version string) string {
	switch lower := strings.ToLower(version); {
	case strings.Contains(lower, "cockroach"):
		return ProfileCockroach
	case strings.Contains(lower, "-yb-"), strings.Contains(lower, "yugabyte"):
		return ProfileYugabyte
	}
	return ProfilePostgres
}

// Pace says how long a shipper waits before its next batch.
type Pace struct {
	Floor time.Duration // the pause between two batches
	Most  time.Duration // the longest pause after many failures
	fails int
}

// Done returns the pause after a batch that was shipped.
func (p *Pace) Done() time.Duration {
	p.fails = 0
	return p.Floor
}

// Failed returns the pause after a failure. It doubles with each failure.
func (p *Pace) Failed() time.Duration {
	if p.fails < 20 {
		p.fails++
	}
	return min(p.Most, p.Floor<<p.fails)
}
