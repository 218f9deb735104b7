package server

import (
	"context"

	ckpt "github.com/ckptsidecar/ckptsidecar"
	"github.com/ckptsidecar/ckptsidecar/internal/fleet"
)

// fleetQuery reads which rows of the fleet the client wants.
func (c *call) fleetQuery() (q fleet.RunsQuery, err error) {
	q = fleet.RunsQuery{Host: c.query.get("host"), Principal: c.query.get("principal"), Agent: c.query.get("agent"),
		Status: c.query.get("status"), Before: c.query.get("before")}
	if q.Limit, err = c.query.limit(); err != nil {
		return q, err
	}
	if q.Limit == 0 {
		q.Limit = ckpt.DefaultLimit
	}
	f := ckpt.RunFilter{Agent: q.Agent, Status: ckpt.RunStatus(q.Status)}
	return q, f.Check()
}

// listFleetRuns lists the runs of all hosts that the caller may see.
func (c *call) listFleetRuns() error {
	q, err := c.fleetQuery()
	if err != nil {
		return err
	}
	if _, _, ok := q.After(); !ok {
		return ckpt.Errorf(ckpt.CodeInvalid, "before is no cursor of a page of the fleet's runs")
	}
	return read(c, true, func(ctx context.Context) (*fleet.Runs, error) { return c.server.fleet.FleetRuns(ctx, c.scope, q) })
}
