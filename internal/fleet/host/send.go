package host

import (
	"context"
	"time"

	"github.com/ckptsidecar/ckptsidecar/internal/fleet"
)

// read reads the next batch. also are agents and runs to include although no row names
// them.
func (s *shipper) read(ctx context.Context, also ...fleet.Name) (*fleet.Changes, error) {
	choice := s.choice
	choice.Also = also
	return s.reader.Since(ctx, s.mark, fleet.Limits{Rows: batchRows, Bytes: s.bytes}, choice, s.known)
}

// send sends a batch, and tells the requests that wait for it.
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
	if err := s.heedRefused(ctx, c, fenced); err != nil {
		return err
	}
	s.waiters.confirmed(c.To.N, runsOf(c), fenced, s.refusal())
	s.tell(c.To, took) // after the fences: a caller that sees the mark must see the fences too
	return nil
}

// refusal returns why a batch that the engine has committed does not count as
// confirmed, "" if it counts.
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

// shipped notes what the engine has now.
func (s *shipper) shipped(c *fleet.Changes, fenced []string) {
	for _, run := range fenced {
		s.log.Warn("another host owns this run in the fleet: it is not shipped", "run", run)
	}
	s.known.note(c)
	s.mark, s.word, s.beat = c.To, c.To, time.Now()
	s.healer.acknowledged(s.engineID, s.engine.Heard())
	s.keepWord(false)
}

// runsOf returns the names of the runs of a batch, and of those that it removes, in the form
// in which Ship names runs that another host owns.
func runsOf(c *fleet.Changes) (list []string) {
	for _, n := range c.Names {
		if n.Run != "" && n.UID == "" {
			list = append(list, fleet.RunName(n.Owner, n.Agent, n.Run))
		}
	}
	for i := range c.Runs {
		r := &c.Runs[i]
		list = append(list, fleet.RunName(r.Owner, r.Agent, r.Name))
	}
	return list
}
