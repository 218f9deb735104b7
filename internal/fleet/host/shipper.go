package host

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	ckpt "github.com/ckptsidecar/ckptsidecar"
	"github.com/ckptsidecar/ckptsidecar/internal/db/journal"
	"github.com/ckptsidecar/ckptsidecar/internal/fleet"
	"github.com/ckptsidecar/ckptsidecar/internal/fleet/seal"
)

// Limits and times of a shipper.
const (
	batchRows   = 4000             // rows of the audit log in a batch
	pauseMost   = 30 * time.Second // the longest pause after failures
	beatEvery   = 10 * time.Second // how often a host that has nothing to ship sends a heartbeat to the engine
	pauseWaited = time.Second      // the longest pause after failures while a request waits
	backTold    = time.Hour        // for how long the status tells that the engine went back
	awayTold    = time.Minute      // for how long the engine may be away before the status tells
)

// shipper ships to the engine what this host has committed. It only reads the database.
// Only requests of agents with durability fleet wait for it.
type shipper struct {
	line
	reader *journal.Journal
	host   fleet.Host
	bytes  int64
	choice journal.Choice
	pace   fleet.Pace
	log    *slog.Logger

	who     atomic.Pointer[fleet.Identities] // who the users of this host are in the fleet
	renamed atomic.Bool                      // who has changed, or the keys have
	keys    func() (*seal.Ring, error)       // nil to ship in the clear
	sealer  *seal.Sealer                     // nil to ship in the clear
	erase   eraser
	policy  policyOf
	inAudit func(had, has int64) error // notes in the audit log that the engine went back, nil for no note
	learned time.Time                  // when the shipper last asked for the erasures of other hosts

	waiters *waiters
	assume  bool          // the engine replicates, whatever it says
	report  *fleet.Report // the check of the engine at the last connection

	mark   fleet.Mark
	word   fleet.Mark // the last mark that the engine has acknowledged
	known  known
	beat   time.Time
	strays bool // the engine may lack runs, or have runs that it should not have
	gap    bool // rows were archived before they were shipped, and not all runs were shipped whole since
	whole  whole
	backs  int64 // how often the engine had gone back at the last connection

	engineID string
	wordFile string // keeps word across restarts, "" for no file
	kept     kept   // what is in that file
	keptAt   time.Time

	brought   brought
	healer    *healer // nil for a host that does not check whether the engine went back
	keeper    *keeper // nil for a host that holds no lease
	grace     time.Duration
	questions atomic.Int64
	heeding   sync.Mutex
	fenced    atomic.Int64 // runs that other hosts were found to have claimed
	heeded    int64        // the newest question about taken runs whose answer was used

	mu       sync.Mutex
	problem  string
	failure  error // the error behind problem
	critical bool
	since    time.Time // when the problem began
	tally    shipped
	taken    []fleet.Taken // runs that other hosts have claimed
}

// errSplit means that the engine has another history of this database. A person must
// settle it.
var errSplit = errors.New("the engine has another past of this database than the database itself: an older copy was put back here, or two daemons have copies of one database; nothing is shipped; stop the daemon, move the database away, start the daemon with an empty one, and bring the runs back with `ckptsidecar fleet claim --host HOST --all`")

// shipped is what is known about shipping after each batch.
type shipped struct {
	mark    fleet.Mark
	took    time.Duration // how long the last batch took
	batches int64
	failing bool

	met              bool // the engine was reached
	engine, engineID string
	sealing          []string // the names of the keys that seal what is shipped
	wentBack         int64
	backAt           time.Time            // when the engine last went back
	erasures         []fleet.ErasureShown // erasures that some host has not confirmed
	others           []fleet.HostNamed    // other hosts of the fleet
	failure          error
}

// kept is what the word file says.
type kept struct {
	engine string
	mark   fleet.Mark
	taken  []fleet.Taken
	gap    bool
}

// eraser erases an agent of this host.
type eraser func(ctx context.Context, sc ckpt.Scope, agent string) (*ckpt.Erased, error)

// told returns what is known about shipping.
func (s *shipper) told() shipped {
	s.mu.Lock()
	defer s.mu.Unlock()
	t := s.tally
	t.failing, t.failure = s.problem != "", s.failure
	return t
}

// tell notes the engine's mark, and a batch with the time that it took.
func (s *shipper) tell(m fleet.Mark, took time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.tally.mark = m
	if took > 0 {
		s.tally.took = took
		s.tally.batches++
	}
}

// met notes what the engine is, after this host has registered with it.
func (s *shipper) met() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.tally.met, s.tally.engine, s.tally.engineID = true, s.engine.Version(), s.engineID
}

func (s *shipper) takenNow() []fleet.Taken {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.taken
}

// takenRuns returns the uids of the runs in takenNow.
func (s *shipper) takenRuns() map[string]bool {
	runs := map[string]bool{}
	for _, t := range s.takenNow() {
		runs[t.UID] = true
	}
	return runs
}

func (s *shipper) isTaken(uid string, term int64) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	for i := range s.taken {
		if s.taken[i].UID == uid && s.taken[i].Term == term {
			return true
		}
	}
	return false
}

// note keeps what is wrong, for the status, and logs it if it is new.
func (s *shipper) note(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	what := ""
	if err != nil {
		what = err.Error()
	}
	switch {
	case what == s.problem:
		return
	case what == "":
		s.log.Info("what this host commits is shipped to the fleet's engine again")
	default:
		s.log.Warn("nothing is shipped to the fleet's engine; it is tried again", "error", what)
	}
	if s.problem == "" || what == "" {
		s.since = time.Now()
	}
	s.problem, s.critical, s.failure = what, errors.Is(err, errSplit), err
}

// Problem returns what an operator should know, "" for nothing. It allows the engine to
// be away for a while. It tells at once what a person must settle.
func (s *shipper) Problem() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	if at := s.tally.backAt; !at.IsZero() && time.Since(at) < backTold {
		return "the fleet's engine went back at " + at.UTC().Format(time.RFC3339) + ": it had lost what it had acknowledged, and gets it again; find out " +
			"which copy of it was started"
	}
	if s.problem == "" || !s.critical && time.Since(s.since) < awayTold {
		return ""
	}
	return "nothing is shipped to the fleet's engine since " + s.since.UTC().Format(time.RFC3339) + ": " + s.problem
}
