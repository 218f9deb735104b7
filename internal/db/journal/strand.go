package journal

import (
	"context"
	"database/sql"
	"errors"

	"github.com/jmoiron/sqlx"

	ckpt "github.com/ckptsidecar/ckptsidecar"
	"github.com/ckptsidecar/ckptsidecar/internal/db/ledger"
	"github.com/ckptsidecar/ckptsidecar/internal/fleet"
)

// Fence makes this host refuse, from now on, writes to runs that other hosts have claimed, and
// returns these hosts by the names of the runs. It skips runs that are not stored here.
func (j *Journal) Fence(ctx context.Context, taken []fleet.Taken) (hosts map[string]string, err error) {
	runs := map[int64]ledger.Elsewhere{}
	hosts = map[string]string{}
	err = j.core.Reading(ctx, func(q *sqlx.Tx) error {
		for i := range taken {
			var id int64
			var owner, agent, run string
			err := q.QueryRowxContext(ctx, `SELECT r.id, a.owner, a.name, r.name FROM runs r JOIN agents a ON a.id = r.agent_id WHERE r.uid = ?`,
				taken[i].UID).Scan(&id, &owner, &agent, &run)
			if errors.Is(err, sql.ErrNoRows) {
				continue
			}
			if err != nil {
				return err
			}
			hosts[fleet.RunName(owner, agent, run)] = taken[i].Host
			runs[id] = ledger.Elsewhere{Host: taken[i].Host, Term: taken[i].Term}
		}
		return nil
	})
	if err == nil {
		j.core.SetElsewhere(runs)
	}
	return hosts, err
}

// Strand returns what this host has of a run after the row of its audit log up to which the
// claimant got everything. It returns nil if the run is not stored here.
func (j *Journal) Strand(ctx context.Context, t *fleet.Taken) (*fleet.Strand, error) {
	s := &fleet.Strand{Taken: *t}
	err := j.core.Reading(ctx, func(q *sqlx.Tx) error {
		row := q.QueryRowxContext(ctx, `SELECT a.owner, a.name, r.name, r.status FROM runs r JOIN agents a ON a.id = r.agent_id WHERE r.uid = ?`, t.UID)
		if err := row.Scan(&s.Owner, &s.Agent, &s.Run, &s.Status); err != nil {
			return err
		}
		err := q.GetContext(ctx, &s.Checkpoints, `SELECT count(*) FROM checkpoints c JOIN runs r ON r.id = c.run_id
			WHERE r.uid = ? AND c.n > ?`, t.UID, t.From)
		if err != nil {
			return err
		}
		err = q.GetContext(ctx, &s.Rows, `SELECT count(*) FROM audit_log WHERE n > ? AND owner = ? AND agent = ? AND run = ? AND outcome = 'done'`,
			t.From, s.Owner, s.Agent, s.Run)
		if err != nil {
			return err
		}
		return q.GetContext(ctx, &s.Changed, `SELECT EXISTS (SELECT 1 FROM audit_log WHERE n > (SELECT min(n) FROM audit_log
			WHERE n > ? AND owner = ? AND agent = ? AND run = ?) AND owner IN (?2, ?5) AND (agent = ?3 OR agent IS NULL) AND action LIKE '%set!_%policy' ESCAPE '!')`,
			t.From, s.Owner, s.Agent, s.Run, ckpt.AllOwners)
	})
	if errors.Is(err, sql.ErrNoRows) {
		return nil, nil
	}
	return s, err
}

// Terms returns the runs of this host with their terms: the terms of claims and restores that gave
// runs to this host, and zero for runs that began here.
func (j *Journal) Terms(ctx context.Context) (all []fleet.RunTerm, err error) {
	err = j.core.Reading(ctx, func(q *sqlx.Tx) error {
		return q.SelectContext(ctx, &all, `SELECT uid, epoch >> ? AS term FROM runs WHERE ago = 0`, fleet.EpochBits)
	})
	return all, err
}

// RunUID is the identity of a run in the fleet.
func (j *Journal) RunUID(ctx context.Context, owner, agent, run string) (uid string, err error) {
	err = j.core.Reading(ctx, func(q *sqlx.Tx) error {
		return q.GetContext(ctx, &uid, `SELECT r.uid FROM runs r JOIN agents a ON a.id = r.agent_id
			WHERE a.owner = ? AND a.name = ? AND r.name = ?`, owner, agent, run)
	})
	return uid, err
}

// OtherOwner is the host that owns a run that is also stored here, and false if this host owns it.
// The error is sql.ErrNoRows if the run is not here.
func (j *Journal) OtherOwner(ctx context.Context, owner, agent, run string) (host ledger.Elsewhere, is bool, err error) {
	var id int64
	err = j.core.Reading(ctx, func(q *sqlx.Tx) error {
		return q.GetContext(ctx, &id, `SELECT r.id FROM runs r JOIN agents a ON a.id = r.agent_id
			WHERE a.owner = ? AND a.name = ? AND r.name = ?`, owner, agent, run)
	})
	if err == nil {
		host, is = j.core.OtherOwner(id)
	}
	return host, is, err
}

// Standing says how far a run has come here: its status, its term, and its newest checkpoint. The
// error is sql.ErrNoRows if the run is not here.
func (j *Journal) Standing(ctx context.Context, owner, agent, run string) (status string, term, seq int64, err error) {
	err = j.core.Reading(ctx, func(q *sqlx.Tx) error {
		return q.QueryRowxContext(ctx, `SELECT r.status, r.epoch >> ?, r.last_seq FROM runs r JOIN agents a ON a.id = r.agent_id
			WHERE a.owner = ? AND a.name = ? AND r.name = ?`, fleet.EpochBits, owner, agent, run).Scan(&status, &term, &seq)
	})
	return status, term, seq, err
}

// HasRun says whether a run is stored here: same by its identity, and named by its name.
func (j *Journal) HasRun(ctx context.Context, owner, agent, run, uid string) (same, named bool, err error) {
	err = j.core.Reading(ctx, func(q *sqlx.Tx) error {
		if err := q.GetContext(ctx, &same, `SELECT EXISTS (SELECT 1 FROM runs WHERE uid = ?)`, uid); err != nil {
			return err
		}
		return q.GetContext(ctx, &named, `SELECT EXISTS (SELECT 1 FROM runs r JOIN agents a ON a.id = r.agent_id
			WHERE a.owner = ? AND a.name = ? AND r.name = ?)`, owner, agent, run)
	})
	return same, named, err
}
