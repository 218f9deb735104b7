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
	"github.com/ckptsidecar/ckptsidecar/internal/fleet/pg"
	"github.com/ckptsidecar/ckptsidecar/internal/fleet/seal"
)

// What a shipper does by itself.
const (
	batchRows   = 4000             // of the audit log in a batch
	pauseMost   = 30 * time.Second // the longest pause after failures
	beatEvery   = 10 * time.Second // how often the engine hears of a host that has nothing to ship
	pauseWaited = time.Second      // the longest pause after failures while somebody waits
	backTold    = time.Hour        // how long status tells that the engine went back
	awayTold    = time.Minute      // how long the engine may be away before status tells
)

// shipper brings to the engine what this host has committed. It only reads the
// database. Requests of agents with durability fleet wait for it, and no others.
type shipper struct {
	line
	reader *journal.Journal
	host   fleet.Host
	bytes  int64
	choice journal.Choice
	pace   fleet.Pace
	log    *slog.Logger

	who     atomic.Pointer[fleet.Identities] // who the users of this host are in the fleet
	renamed atomic.Bool                      // and that has changed, or the keys have
	keys    func() (*seal.Ring, error)       // nil to ship in the clear
	sealer  *seal.Sealer                     // nil for the same
	erase   eraser
	inAudit func(had, has int64) error // notes that the engine went back, nil for nowhere
	learned time.Time                  // when the erasures of other hosts were asked for

	waiters *waiters
	assume  bool          // the engine replicates, whatever it says
	report  *fleet.Report // of the engine, at the last connecting

	mark   fleet.Mark
	word   fleet.Mark // the last mark that the engine has acknowledged
	known  known
	beat   time.Time
	strays bool // the engine may have other runs than it should
	gap    bool // rows after its mark were archived

	engineID string
	wordFile string // keeps word beyond this process, "" for nowhere
	kept     kept   // what is in that file
	keptAt   time.Time

	janitor   *janitor // nil for a host that never is the janitor
	quota     *quota   // nil for a host that limits no principal
	healer    *healer  // nil for a host that does not look whether the engine went back
	keeper    *keeper  // nil for a host that holds no lease
	grace     time.Duration
	questions atomic.Int64
	heeding   sync.Mutex
	fenced    atomic.Int64 // runs that other hosts were found to have claimed
	heeded    int64        // the newest question of which runs are taken that was answered

	mu       sync.Mutex
	problem  string
	failure  error // what the problem is of
	critical bool
	since    time.Time // of the problem
	tally    shipped
	taken    []fleet.Taken // runs that other hosts have claimed
}

// errSplit is what a person must settle.
var errSplit = errors.New("the engine has another past of this database than the database itself: an older copy was put back here, or two daemons have copies of one database; nothing is shipped; `ckptsidecar fleet rejoin` settles it")

// What becomes known of shipping after each batch.
type shipped struct {
	mark    fleet.Mark
	took    time.Duration // the last batch
	batches int64
	failing bool

	met              bool // the engine was reached
	engine, engineID string
	sealing          []string // the names of the keys that seal what is shipped
	wentBack         int64
	backAt           time.Time            // the last time
	erasures         []fleet.ErasureShown // that some host has not confirmed
	others           []fleet.HostNamed    // other hosts of the fleet
	failure          error
}

// kept is what the file says.
type kept struct {
	mark  fleet.Mark
	taken []fleet.Taken
}

// eraser erases an agent of this host.
type eraser func(ctx context.Context, sc ckpt.Scope, agent string) (*ckpt.Erased, error)

// told answers what is known of shipping.
func (s *shipper) told() shipped {
	s.mu.Lock()
	defer s.mu.Unlock()
	t := s.tally
	t.failing, t.failure = s.problem != "", s.failure
	return t
}

// tell notes where the engine is, and a batch with the time that it took.
func (s *shipper) tell(m fleet.Mark, took time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.tally.mark = m
	if took > 0 {
		s.tally.took = took
		s.tally.batches++
	}
}

// met notes what the engine is, once it was registered with.
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

// takenRuns are the uids of takenNow.
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

// note keeps what is wrong, for status, and logs what is new.
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
	s.problem, s.critical, s.failure = what, errors.Is(err, errSplit) || errors.Is(err, pg.ErrRestored), err
}

// Problem is what an operator should know, "" for nothing. An engine may be away for a
// while; what a person must settle is told at once.
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
