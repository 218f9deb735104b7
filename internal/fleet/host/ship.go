package host

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/ckptsidecar/ckptsidecar/internal/fleet"
	"github.com/ckptsidecar/ckptsidecar/internal/fleet/lease"
	"github.com/ckptsidecar/ckptsidecar/internal/periodic"
)

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

// final returns why the engine will take nothing from this host until a person has
// settled it, "" for an error that may pass.
func final(err error) string {
	switch {
	case errors.Is(err, errSplit):
		return "the engine has another past of this host's database"
	}
	return ""
}

// once ships one batch, or as many as it takes to catch up.
func (s *shipper) once(ctx context.Context) error {
	if !s.connected() {
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
		s.waiters.gather(ctx, s.told().took)
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
		if len(c.Erased) > 0 { // tell at once which hosts have not erased it
			s.learned = time.Time{}
			if err := s.learnErasures(ctx); err != nil {
				return err
			}
		}
		if c.To.N >= c.Head {
			return s.settle(ctx)
		}
	}
	return ctx.Err()
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

// register connects to the engine, and compares the engine's mark with the audit log.
func (s *shipper) register(ctx context.Context) error {
	if err := s.dial(ctx); err != nil {
		return err
	}
	id, mark, err := s.healer.register(ctx, s.engine, s.host)
	if err != nil {
		return err
	}
	if s.engineID != id {
		s.engineID, s.word, s.gap, s.whole = id, fleet.Mark{}, false, whole{}
		s.recall()
	}
	head, here, err := s.reader.Where(ctx, mark.N)
	if err != nil {
		return err
	}
	if s.report, err = s.engine.Check(ctx); err != nil { // the shipper still ships to it, but it confirms nothing
		s.report = &fleet.Report{Profile: s.engine.Profile(), Problems: []string{"it cannot be checked"}}
	}
	switch fleet.Compare(mark, s.word, head, here) {
	case fleet.Split:
		return fmt.Errorf("%w (it has row %d, here the last one is %d)", errSplit, mark.N, head.N)
	case fleet.WentBack:
		s.log.Error("the fleet's engine went back: it has lost what it had acknowledged; this host ships it again", "had", s.word.N, "has", mark.N)
		s.noteBack(s.word.N, mark.N)
		s.whole = whole{}
	}
	archived, err := s.reader.Archived(ctx)
	if err != nil {
		return err
	}
	backs := s.healer.wentBack()
	if archived > mark.N || backs != s.backs {
		s.whole = whole{}
	}
	s.strays, s.gap, s.backs = true, s.gap || archived > mark.N, backs
	s.mark, s.word, s.known, s.beat = mark, mark, known{}, time.Now()
	s.tell(mark, 0)
	s.met()
	s.renamed.Store(true)
	s.learned = time.Time{}
	s.keepWord(true)
	if err := s.learnTaken(ctx); err != nil {
		return err
	}
	s.waiters.confirmed(mark.N, nil, nil, s.refusal())
	return nil
}

// sayHello tells the engine from time to time that this host is alive.
func (s *shipper) sayHello(ctx context.Context) error {
	waited := s.waiters.any() // for rows that the engine has already: ask again whether they are replicated
	if time.Since(s.beat) < beatEvery && !waited {
		return nil
	}
	s.beat = time.Now()
	if err := s.engine.Beat(ctx, s.host.DB); err != nil {
		return err
	}
	s.healer.acknowledged(s.engineID, s.engine.Heard())
	if err := s.learnTaken(ctx); err != nil {
		return err
	}
	s.waiters.confirmed(s.mark.N, nil, nil, s.refusal())
	return nil
}

// keepLease gives the shipper a keeper of this host's lease.
func (s *shipper) keepLease(l *lease.Lease, grace time.Duration) {
	s.keeper = &keeper{asked: make(chan struct{}), healer: s.healer, line: line{url: s.url}, host: s.host, lease: l, grace: grace, log: s.log, heed: s.heedTaken,
		renewed: s.waiters.renewed, hindered: s.hindered}
	s.waiters.lease, s.grace = l, grace
}

// hindered returns why this host must not hold a lease, nil if it may: its database is
// not the one that the engine knows.
func (s *shipper) hindered() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.critical {
		return s.failure
	}
	return nil
}
