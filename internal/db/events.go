package db

import (
	"context"

	ckpt "github.com/ckptsidecar/ckptsidecar"
	"github.com/ckptsidecar/ckptsidecar/internal/db/driftlog"
	"github.com/ckptsidecar/ckptsidecar/internal/db/ledger"
	"github.com/ckptsidecar/ckptsidecar/internal/db/sqlite"
	"github.com/ckptsidecar/ckptsidecar/internal/db/usage"
	"github.com/ckptsidecar/ckptsidecar/internal/wellformed"
)

// Changed is closed when the next transaction with events is on disk.
func (s *Store) Changed() <-chan struct{} { return s.events.Wait() }

// Append adds a batch to a run's journal: all of it or nothing, in order,
// without gaps. Beyond the policy's max_events the oldest go.
func (s *Store) Append(_ context.Context, sc ckpt.Scope, ref ckpt.RunRef, events []ckpt.NewEvent, key string) (*ckpt.Appended, bool, error) {
	if err := ref.Check(); err != nil {
		return nil, false, err
	}
	if err := wellformed.Events(events); err != nil {
		return nil, false, err
	}
	c := s.Screen(sc, ref.Agent, "event")
	if events = c.Events(events); c.Err != nil {
		return nil, false, c.Err
	}
	e := ledger.Entry(sc, "append_events", ref.Agent)
	e.Run = ledger.RunName(ref.Run)
	return driftlog.Keyed(s.Drifts, sc, driftlog.KeyedRequest{Agent: ref.Agent, Key: key, Print: events, Size: eventBytes(events), Entry: e, Make: true, Secrets: c.Found}, func(tx *ledger.Tx, _ *ledger.AgentRow) (*ckpt.Appended, error) {
		agent, run, err := s.OpenRun(tx, sc, ref)
		if err != nil {
			return nil, err
		}
		a, err := s.appendEvents(tx, agent, run, events)
		if err != nil {
			return nil, err
		}
		if err := s.UpdateGoal(tx, agent, run, events, e); err != nil {
			return nil, err
		}
		tx.OnCommit(s.events.Tell)
		e.Detail = map[string]any{"first": a.First, "last": a.Last}
		return a, tx.Audit(e)
	})
}

func eventBytes(events []ckpt.NewEvent) (n int64) {
	for i := range events {
		n += int64(len(events[i].Type) + len(events[i].Payload))
	}
	return n
}

func (s *Store) appendEvents(tx *ledger.Tx, agent *ledger.AgentRow, run *ledger.RunRow, events []ckpt.NewEvent) (*ckpt.Appended, error) {
	a := &ckpt.Appended{First: run.LastEvent + 1}
	for i := range events {
		payload := events[i].Payload
		if len(payload) == 0 {
			payload = ckpt.JSON("{}")
		}
		run.LastEvent++
		err := tx.Exec(`INSERT INTO events (run_id, seq, at, type, payload) VALUES (?, ?, ?, ?, ?)`, run.ID, run.LastEvent, tx.Now, events[i].Type, payload)
		if err != nil {
			return nil, err
		}
	}
	a.Last = run.LastEvent
	var gone []int64
	err := tx.List(&gone, deleteEvents, run.ID, run.LastEvent-int64(agent.Settings.MaxEvents))
	if err != nil {
		return nil, err
	}
	for _, bytes := range gone {
		tx.Tally.Add(agent.Owner, -bytes)
	}
	if err := tx.Exec(ledger.UpdateLastEvent, run.LastEvent, run.ID); err != nil {
		return nil, err
	}
	return a, tx.SignOfLife(run)
}

// deleteEvents deletes a run's events up to a number, and answers what each took.
var deleteEvents = `DELETE FROM events WHERE run_id = ? AND seq <= ? RETURNING ` + usage.OfRuns["events"]

// Events reads events after a sequence number, oldest first.
func (s *Store) Events(ctx context.Context, sc ckpt.Scope, ref ckpt.RunRef, after int64, limit int) (*ckpt.EventPage, error) {
	limit, err := ledger.PageSizeOf(limit)
	if err != nil {
		return nil, err
	}
	run, err := s.FindRun(ctx, sc, ref)
	if err != nil {
		return nil, err
	}
	s.AuditFollowing(sc, "read_events", ref.Agent)
	page := &ckpt.EventPage{Events: []ckpt.Event{}}
	err = s.RO.SelectContext(ctx, &page.Events, `SELECT seq, at, type, payload FROM
		(SELECT seq, at, type, payload, sum(length(payload)) OVER (ORDER BY seq) - length(payload) AS before FROM events WHERE run_id = ? AND seq > ? ORDER BY seq LIMIT ?)
		WHERE before < ? ORDER BY seq`, run.ID, after, limit+1, ledger.PageBytes)
	if n := min(len(page.Events), limit); n > 0 && page.Events[n-1].Seq < run.LastEvent {
		page.Events = page.Events[:n]
		page.Next = &page.Events[n-1].Seq
	}
	return page, sqlite.ReadError(err)
}
