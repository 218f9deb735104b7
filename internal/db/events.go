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

// Append adds a batch to a run's journal: all of it or nothing, in order, without gaps. Beyond the
// policy's max_events, the oldest events are removed.
func (s *Store) Append(_ context.Context, sc ckpt.Scope, ref ckpt.RunRef, events []ckpt.NewEvent, key string) (*ckpt.Appended, bool, error) {
	if err := ref.Check(); err != nil {
		return nil, false, err
	}
	if err := wellformed.Events(events); err != nil {
		return nil, false, err
	}
	c := s.Screen(sc, ref.Agent, "event")
	events = c.Events(events)
	if c.Again(func() error { return wellformed.Events(events) }); c.Err != nil {
		return nil, false, c.Err
	}
	e := ledger.Entry(sc, "append_events", ref.Agent)
	e.Run = ledger.RunName(ref.Run)
	return driftlog.Keyed(s.Drifts, sc, driftlog.KeyedRequest{
		Agent: ref.Agent, Key: key, Print: events, Size: eventBytes(events), Entry: e, Make: true, Secrets: c.Found,
	}, func(tx *ledger.Tx, _ *ledger.AgentRow) (*ckpt.Appended, error) {
		tx.Touches()
		agent, run, err := s.OpenRun(tx, sc, ref)
		if err != nil {
			return nil, err
		}
		if err := s.Enter(tx, agent, run, events, e); err != nil {
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
	batch := tx.Head.N + 1 // the number of the audit row that this transaction writes for the events, or of one before it
	for i := range events {
		payload := events[i].Payload
		if len(payload) == 0 {
			payload = ckpt.JSON("{}")
		}
		run.LastEvent++
		err := tx.Insert(`INSERT INTO events (run_id, seq, at, type, payload, batch)
			VALUES (?, ?, ?, ?, ?, ?)`, run.ID, run.LastEvent, tx.Now, events[i].Type, payload, batch)
		if err != nil {
			return nil, err
		}
	}
	a.Last = run.LastEvent
	err := tx.Insert(`INSERT INTO event_batches (owner, n, run_id, first, last) VALUES (?, ?, ?, ?, ?)`, agent.Owner, batch, run.ID, a.First, a.Last)
	if err != nil {
		return nil, err
	}
	over := run.LastEvent - int64(agent.Settings.MaxEvents)
	if over > 0 {
		if err := tx.Exec(`DELETE FROM event_batches WHERE owner = ?1 AND last <= ?3 AND n IN (SELECT batch FROM events
			WHERE run_id = ?2 AND seq <= ?3)`, agent.Owner, run.ID, over); err != nil {
			return nil, err
		}
	}
	var gone []int64
	if err := tx.Changes(&gone, deleteEvents, run.ID, over); err != nil {
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

// deleteEvents deletes a run's events up to a number, and returns the bytes that each used.
var deleteEvents = `DELETE FROM events WHERE run_id = ? AND seq <= ? RETURNING ` + usage.OfRuns["events"]

// Events reads events after a sequence number, oldest first. Numbers count on from life to life:
// whoever reads on from the number of an event also gets those of the life in which it was.
func (s *Store) Events(ctx context.Context, sc ckpt.Scope, ref ckpt.RunRef, after int64, limit int) (*ckpt.EventPage, error) {
	limit, err := ledger.PageSizeOf(limit)
	if err != nil {
		return nil, err
	}
	run, err := s.FindRun(ctx, sc, ref)
	if err != nil {
		return nil, err
	}
	s.AuditRead(sc, "read_events", ref.Agent, "")
	page := &ckpt.EventPage{Events: []ckpt.Event{}}
	err = s.RO.SelectContext(ctx, &page.Events, `SELECT seq, at, type, payload FROM
		(SELECT seq, at, type, payload, sum(length(payload)) OVER (ORDER BY seq) - length(payload) AS before FROM events
		WHERE (run_id = ?1 OR ?2 > 0 AND run_id IN (SELECT id FROM runs WHERE agent_id = (SELECT agent_id FROM runs WHERE id = ?1)
			AND name > ?5 || '~' AND name < ?5 || char(127))) AND seq > ?2 ORDER BY seq LIMIT 0 + ?3)
		WHERE before < ?4 ORDER BY seq`, run.ID, after, limit+1, ledger.PageBytes, run.Run.Run)
	if n := min(len(page.Events), limit); n > 0 && page.Events[n-1].Seq < run.LastEvent {
		page.Events = page.Events[:n]
		page.Next = &page.Events[n-1].Seq
	}
	return page, sqlite.ReadError(err)
}

// EventsOf reads events of all runs of an owner, in the order in which they were appended, after a
// given one. Their numbers belong to that owner alone, and reveal nothing about others.
func (s *Store) EventsOf(ctx context.Context, sc ckpt.Scope, after int64, limit int) (*ckpt.OwnerEventPage, error) {
	limit, err := ledger.PageSizeOf(limit)
	if err != nil {
		return nil, err
	}
	owner := sc.Whose()
	if owner == ckpt.AllOwners {
		return nil, ckpt.Errorf(ckpt.CodeInvalid, "name one owner: each owner has its own order of events")
	}
	place, ok := s.EventPlace(owner, after)
	if !ok {
		return nil, ckpt.Errorf(ckpt.CodeInvalid, "after does not name an event of %s: "+
			"if an older database was put back, begin again at 0, or at the n of an event that it has", owner)
	}
	if owner != sc.Caller.Owner {
		s.AuditRead(sc, "read_events", "", "")
	}
	var rows []struct {
		ckpt.OwnerEvent
		Batch int64 `db:"batch"`
		Index int64 `db:"place"`
	}
	err = s.RO.SelectContext(ctx, &rows, `SELECT agent, run, seq, at, type, payload, batch, place
		FROM (SELECT *, sum(length(payload)) OVER (ORDER BY batch, seq) - length(payload) AS before FROM (
		SELECT a.name AS agent, r.name AS run, e.seq, e.at, e.type, e.payload, b.n AS batch, e.seq - b.first AS place
		FROM event_batches b CROSS JOIN events e ON e.run_id = b.run_id AND e.seq BETWEEN b.first AND b.last AND e.batch = b.n
		CROSS JOIN runs r ON r.id = b.run_id CROSS JOIN agents a ON a.id = r.agent_id
		WHERE b.owner = ?1 AND b.n >= ?2 AND (b.n > ?2 OR e.seq - b.first > ?3) ORDER BY b.n, e.seq LIMIT 0 + ?4))
		WHERE before < ?5 ORDER BY batch, seq`,
		owner, place.Batch, place.Index, limit+1, ledger.PageBytes)
	if err != nil {
		return nil, sqlite.ReadError(err)
	}
	page := &ckpt.OwnerEventPage{Events: make([]ckpt.OwnerEvent, 0, len(rows))}
	for i := range rows {
		rows[i].N = s.EventNumber(owner, ledger.EventPlace{Batch: rows[i].Batch, Index: rows[i].Index})
		page.Events = append(page.Events, rows[i].OwnerEvent)
	}
	// A full page, by events or by bytes, may have another page after it. One more request costs little.
	if n := min(len(rows), limit); n > 0 && (len(rows) > limit || pageIsFull(page.Events)) {
		page.Events = page.Events[:n]
		page.Next = &page.Events[n-1].N
	}
	return page, nil
}

// pageIsFull says whether a page has the most bytes that a page can have.
func pageIsFull(events []ckpt.OwnerEvent) bool {
	bytes := 0
	for i := range events {
		bytes += len(events[i].Payload)
	}
	return bytes >= ledger.PageBytes
}
