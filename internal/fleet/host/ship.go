package host

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/ckptsidecar/ckptsidecar/internal/db/journal"
	"github.com/ckptsidecar/ckptsidecar/internal/fleet"
	"github.com/ckptsidecar/ckptsidecar/internal/fleet/pg"
	"github.com/ckptsidecar/ckptsidecar/internal/fleet/seal"
	"github.com/ckptsidecar/ckptsidecar/internal/periodic"
)

// What a shipper does by itself.
const (
	batchRows   = 4000             // of the audit log in a batch
	pauseMost   = 30 * time.Second // the longest pause after failures
	beatEvery   = 10 * time.Second // how often the engine hears of a host that has nothing to ship
	knownMost   = 1 << 20          // segments that are remembered as shipped
	pauseWaited = time.Second      // the longest pause after failures while somebody waits
	backTold    = time.Hour        // how long status tells that the engine went back
	awayTold    = time.Minute      // how long the engine may be away before status tells
)

// shipper brings to the engine what this host has committed. It only reads the
// database. Requests of agents with durability fleet wait for it, and no others.
type shipper struct {
	url    func() (string, error)
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

	engine *pg.Engine // nil while there is no connection
	mark   fleet.Mark
	word   fleet.Mark // the last mark that the engine has acknowledged
	known  map[string]map[int64]bool
	beat   time.Time
	strays bool // the engine may have other runs than it should
	gap    bool // rows after its mark were archived

	engineID string
	wordFile string // keeps word beyond this process, "" for nowhere
	kept     kept   // what is in that file
	keptAt   time.Time

	healer    *healer // nil for a host that does not look whether the engine went back
	keeper    *keeper // nil for a host that holds no lease
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

// Run ships until ctx ends.
func (s *shipper) Run(ctx context.Context) error {
	defer s.hangUp()
	defer func() { s.keepWord(true) }()
	return periodic.RunWoken(ctx, s.waiters.wake, func(ctx context.Context) time.Duration {
		err := s.once(ctx)
		if ctx.Err() != nil {
			return 0
		}
		s.note(err)
		s.keepWord(false)
		if err == nil {
			return s.pace.Done()
		}
		s.hangUp()
		s.waiters.lost(final(err))
		pause := s.pace.Failed()
		if s.waiters.any() {
			pause = min(pause, pauseWaited)
		}
		return pause
	})
}

// final is why the engine will have nothing of this host until a person has settled it,
// "" for what may pass.
func final(err error) string {
	switch {
	case errors.Is(err, errSplit):
		return "the engine has another past of this host's database"
	case errors.Is(err, pg.ErrRestored):
		return "another host has been restored from what this one shipped"
	}
	return ""
}

// refusal is why a batch that the engine has confirmed counts for nothing, "" where it
// counts.
func (s *shipper) refusal() string {
	if s.report.Profile == fleet.ProfilePostgres {
		if s.report.Replicated = !s.engine.Alone(); !s.report.Replicated {
			s.report.How = "it names no synchronous standby"
		}
	}
	if may, why := s.report.Durable(s.assume); !may {
		return why
	}
	return ""
}

func (s *shipper) hangUp() {
	if s.engine != nil {
		s.engine.Close()
		s.engine = nil
	}
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

// errSplit is what a person must settle.
var errSplit = errors.New("the engine has another past of this database than the database itself: an older copy was put back here, or two daemons have copies of one database; nothing is shipped; `ckptsidecar fleet rejoin` settles it")

// once ships one batch, or as many as lie behind.
func (s *shipper) once(ctx context.Context) error {
	if s.engine == nil {
		if err := s.register(ctx); err != nil {
			return err
		}
	}
	if s.renamed.Swap(false) {
		if err := s.loadKeys(); err != nil {
			s.renamed.Store(true)
			return err
		}
		if err := s.nameOwners(ctx); err != nil {
			return err
		}
	}
	if err := s.learnErasures(ctx); err != nil {
		return err
	}
	for ctx.Err() == nil {
		c, err := s.read(ctx)
		if err != nil {
			return err
		}
		if c.Empty() {
			return errors.Join(s.settle(ctx), s.sayHello(ctx))
		}
		if err := s.send(ctx, c); err != nil {
			return err
		}
		if c.To.N >= c.Head {
			return s.settle(ctx)
		}
	}
	return ctx.Err()
}

// read reads the next batch, with some that no row names.
func (s *shipper) read(ctx context.Context, also ...fleet.Name) (*fleet.Changes, error) {
	choice := s.choice
	choice.Also = also
	return s.reader.Since(ctx, s.mark, fleet.Limits{Rows: batchRows, Bytes: s.bytes}, choice, func(uid string, id int64) bool { return s.known[uid][id] })
}

// send sends a batch, and tells those who wait for it.
func (s *shipper) send(ctx context.Context, c *fleet.Changes) error {
	if err := s.prepare(c); err != nil {
		return err
	}
	began := time.Now()
	fenced, err := s.engine.Ship(ctx, s.host.DB, c)
	if err != nil {
		return err
	}
	s.shipped(c, fenced)
	took := time.Since(began)
	if len(fenced) > 0 {
		if _, err := s.learnTaken(ctx); err != nil {
			return err
		}
	}
	s.waiters.confirmed(c.To.N, runsOf(c), fenced, s.refusal())
	s.tell(c.To, took) // after that: who sees the mark must see the fence
	return nil
}

// shippedTo waits until the engine has a row of this host's audit log, replicated or not.
func (s *shipper) shippedTo(ctx context.Context, n int64) error {
	for s.told().mark.N < n {
		select {
		case s.waiters.wake <- struct{}{}:
		default:
		}
		if err := periodic.Wait(ctx, 10*time.Millisecond); err != nil {
			return err
		}
	}
	return nil
}

// register connects, and compares the engine's mark with the audit log.
func (s *shipper) register(ctx context.Context) error {
	url, err := s.url()
	if err != nil {
		return err
	}
	if s.engine, err = pg.Dial(ctx, url); err != nil {
		return err
	}
	id, mark, err := s.engine.Register(ctx, s.host)
	if errors.Is(err, pg.ErrRestored) {
		_, learned := s.learnTaken(ctx)
		return errors.Join(err, learned)
	}
	if err != nil {
		return err
	}
	if err := s.healer.registered(ctx, s.engine, id, s.host.DB); err != nil {
		return err
	}
	if s.engineID != id {
		s.engineID, s.word = id, fleet.Mark{}
		s.recall()
	}
	head, here, err := s.reader.Where(ctx, mark.N)
	if err != nil {
		return err
	}
	if s.report, err = s.engine.Check(ctx); err != nil { // it may be shipped to, and confirms nothing
		s.report = &fleet.Report{Profile: s.engine.Profile(), Problems: []string{"it cannot be checked"}}
	}
	switch fleet.Compare(mark, s.word, head, here) {
	case fleet.Split:
		return fmt.Errorf("%w (it has row %d, here the last one is %d)", errSplit, mark.N, head.N)
	case fleet.WentBack:
		s.log.Error("the fleet's engine went back: it has lost what it had acknowledged; this host ships it again", "had", s.word.N, "has", mark.N)
		s.noteBack(s.word.N, mark.N)
	}
	archived, err := s.reader.Archived(ctx)
	if err != nil {
		return err
	}
	s.strays, s.gap = true, archived > mark.N
	s.mark, s.word, s.known, s.beat = mark, mark, map[string]map[int64]bool{}, time.Now()
	s.tell(mark, 0)
	s.met()
	s.renamed.Store(true)
	s.learned = time.Time{}
	s.keepWord(true)
	fenced, err := s.learnTaken(ctx)
	if err != nil {
		return err
	}
	s.waiters.confirmed(mark.N, nil, fenced, s.refusal())
	return nil
}

// shipped notes what the engine has now.
func (s *shipper) shipped(c *fleet.Changes, fenced []string) {
	for _, run := range fenced {
		s.log.Warn("another host owns this run in the fleet: it is not shipped", "run", run)
	}
	if len(s.known) > knownMost/16 {
		clear(s.known)
	}
	for i := range c.Runs {
		r := &c.Runs[i]
		has := s.known[r.UID]
		if has == nil || len(has) > knownMost {
			has = map[int64]bool{}
			s.known[r.UID] = has
		}
		for _, p := range r.Pieces {
			has[p.ID] = true
		}
		if r.Trim {
			s.known[r.UID] = left(has, r.Segments)
		}
	}
	s.mark, s.word, s.beat = c.To, c.To, time.Now()
	s.healer.acknowledged()
	s.keepWord(false)
}

// runsOf names the runs of a batch as Ship names those that another host owns.
func runsOf(c *fleet.Changes) (list []string) {
	for i := range c.Runs {
		r := &c.Runs[i]
		list = append(list, fleet.RunName(r.Owner, r.Agent, r.Name))
	}
	return list
}

// left are those of has that are still there.
func left(has map[int64]bool, there []int64) map[int64]bool {
	m := map[int64]bool{}
	for _, id := range there {
		if has[id] {
			m[id] = true
		}
	}
	return m
}

// sayHello lets the engine know now and then that this host is there.
func (s *shipper) sayHello(ctx context.Context) error {
	waited := s.waiters.any() // for what the engine has: it is asked again whether that is replicated
	if time.Since(s.beat) < beatEvery && !waited {
		return nil
	}
	s.beat = time.Now()
	if err := s.engine.Beat(ctx, s.host.DB); err != nil {
		return err
	}
	s.healer.acknowledged()
	fenced, err := s.learnTaken(ctx)
	if err != nil {
		return err
	}
	s.waiters.confirmed(s.mark.N, nil, fenced, s.refusal())
	return nil
}
