package pg

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/ckptsidecar/ckptsidecar/internal/fleet"
)

// Hosts lists all hosts of the fleet. this is the database of the host that asks.
func (e *Engine) Hosts(ctx context.Context, this string) (*fleet.Hosts, error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	rows, err := e.conn.Query(ctx, listHosts)
	if err != nil {
		return nil, told(err)
	}
	all := &fleet.Hosts{Hosts: []fleet.HostShown{}}
	var h fleet.HostShown
	var seen, now time.Time
	var until *time.Time
	_, err = pgx.ForEachRow(rows, []any{&h.DB, &h.Name, &h.Version, &h.MarkN, &seen, &now, &until, &h.Forgotten, &h.Runs}, func() error {
		h.Lease = secondsFrom(now, until)
		h.SeenAt, h.SeenAgo, h.This = seen.UTC().Format("2006-01-02T15:04:05.000Z"), now.Sub(seen).Round(time.Millisecond).Seconds(), h.DB == this
		all.Hosts = append(all.Hosts, h)
		return nil
	})
	return all, told(err)
}

// secondsFrom returns the seconds from now until a moment, nil if there is no moment.
func secondsFrom(now time.Time, until *time.Time) *float64 {
	if until == nil {
		return nil
	}
	left := until.Sub(now).Round(time.Millisecond).Seconds()
	return &left
}

// Runs lists one page of the runs of all hosts, the most recently changed first.
func (e *Engine) Runs(ctx context.Context, q fleet.RunsQuery) (*fleet.Runs, error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	updated, uid, ok := q.After()
	if !ok {
		return nil, fmt.Errorf("%q is no cursor of a page of runs", q.Before)
	}
	asker := q.For
	if asker == nil {
		asker = &fleet.Asker{}
	}
	rows, err := e.conn.Query(ctx, listRuns, q.Host, q.Owner, q.Principal, q.Agent, q.Status, updated, uid, q.Limit+1,
		bit(q.For == nil), asker.Principal)
	if err != nil {
		return nil, told(err)
	}
	all := &fleet.Runs{Runs: []fleet.RunShown{}}
	var r fleet.RunShown
	_, err = pgx.ForEachRow(rows, []any{&r.UID, &r.DB, &r.Host, &r.Owner, &r.Principal, &r.Agent, &r.Run, &r.Status, &r.Term, &r.Seq, &r.UpdatedAt, &r.AsOf}, func() error {
		all.Runs = append(all.Runs, r)
		return nil
	})
	if len(all.Runs) > q.Limit {
		all.Runs = all.Runs[:q.Limit]
		next := all.Runs[q.Limit-1].Cursor()
		all.Next = &next
	}
	return all, told(err)
}
