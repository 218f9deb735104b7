package db

import (
	"context"
	"maps"
	"slices"

	"github.com/jmoiron/sqlx"

	ckpt "github.com/ckptsidecar/ckptsidecar"
	"github.com/ckptsidecar/ckptsidecar/internal/db/ledger"
	"github.com/ckptsidecar/ckptsidecar/internal/db/sqlite"
)

// Beat takes a heartbeat. It makes no audit row: the next write, or the lack of one, says as much.
// But a heartbeat that an administrator sends for another owner makes a row once a minute, because
// the reply shows the run.
//
// A heartbeat of a run that is known to run stays in memory, and is on disk within Options.BeatsKept. A heartbeat that changes more, because
// the run was found dead or because its progress changed, is on disk before the answer.
func (s *Store) Beat(ctx context.Context, sc ckpt.Scope, ref ckpt.RunRef, b ckpt.Heartbeat) (*ckpt.Run, error) {
	if err := ref.Check(); err != nil {
		return nil, err
	}
	if err := b.Check(); err != nil {
		return nil, err
	}
	ref.Epoch = b.Epoch
	s.AuditRead(sc, "beat", ref.Agent, "")
	if shown, done, err := s.keepBeat(ctx, sc, ref, b); done || err != nil {
		return shown, err
	}
	return s.writeBeat(sc, ref, b)
}

// keepBeat keeps a heartbeat in memory. It returns false if the heartbeat changes more than the sign of life of a run.
func (s *Store) keepBeat(ctx context.Context, sc ckpt.Scope, ref ckpt.RunRef, b ckpt.Heartbeat) (shown *ckpt.Run, done bool, err error) {
	if s.Opt.BeatsKept < 0 || s.Ready(ctx) != nil {
		return nil, false, nil
	}
	row, err := s.FindRun(ctx, sc, ref)
	if ckpt.CodeOf(err) == ckpt.CodeNotFound {
		return nil, false, nil
	}
	if err != nil {
		return nil, false, err
	}
	now := ckpt.At(s.Opt.Now())
	err = s.Reading(ctx, func(q *sqlx.Tx) error {
		var run ledger.RunRow
		err := q.GetContext(ctx, &run, `SELECT `+ledger.RunColumns+` FROM runs WHERE id = ?`, row.ID)
		if ledger.IsNoRows(err) || err == nil && (run.Status != ckpt.RunRunning || b.Progress != nil && (run.Progress == nil || *b.Progress != *run.Progress)) {
			return nil
		}
		if err == nil {
			err = s.MayWrite(&run, sc, ref.Epoch)
		}
		if err != nil {
			return err
		}
		s.Beats.Note(run.ID, &ledger.Beat{Epoch: run.Epoch, At: now, Disk: run.HeartbeatAt})
		shown, done = s.Shown(row, now), true
		shown.Drift, err = s.ReadVerdict(ctx, q, run.ID)
		return err
	})
	return shown, done, err
}

// writeBeat takes a heartbeat in a transaction.
func (s *Store) writeBeat(sc ckpt.Scope, ref ckpt.RunRef, b ckpt.Heartbeat) (shown *ckpt.Run, err error) {
	past := s.ReadAheadFor(sc, ref)
	err = s.Submit(&ledger.Op{Owner: sc.Caller.Owner, Claim: sqlite.GoesOn, Do: func(tx *ledger.Tx) error {
		tx.Touches()
		agent, run, err := s.knownRun(tx, sc, ref)
		if err == nil {
			err = s.MayWrite(run, sc, ref.Epoch)
		}
		if err != nil {
			return err
		}
		w, err := s.WatchRun(tx, agent, run, past)
		if err != nil {
			return err
		}
		stuck := isStuck(run, tx.Now.Time)
		if err := noteProgress(tx, run, b.Progress); err != nil {
			return err
		}
		if !stuck || !isStuck(run, tx.Now.Time) { // a heartbeat is not progress
			if err := s.reviveFor(tx, run, sc, b.PID); err != nil {
				return err
			}
		}
		if err := tx.Exec(ledger.UpdateBeat, tx.Now, run.ID); err != nil {
			return err
		}
		if err := s.WatchBeat(tx, agent, run, w, b.Progress); err != nil {
			return err
		}
		if shown, err = tx.ShownRun(run.ID); err != nil {
			return err
		}
		shown.Drift, err = s.Verdict(tx, run, w)
		return err
	}})
	return shown, err
}

// beatsAtOnce bounds the heartbeats of one transaction.
const beatsAtOnce = 500

// KeepBeats writes the heartbeats that are in memory, if the oldest has waited for Options.BeatsKept. all writes them now.
func (s *Store) KeepBeats(ctx context.Context, all bool) error {
	wait := s.Opt.BeatsKept
	if all {
		wait = 0
	}
	due := s.Beats.Due(wait)
	for some := range slices.Chunk(slices.Sorted(maps.Keys(due)), beatsAtOnce) {
		if err := ctx.Err(); err != nil {
			return err
		}
		err := s.Submit(&ledger.Op{Owner: ledger.Daemon, Claim: sqlite.GoesOn, Do: func(tx *ledger.Tx) error {
			tx.Touches()
			for _, id := range some {
				if err := s.storeBeat(tx, id, due[id]); err != nil {
					return err
				}
				tx.GotOn()
			}
			return nil
		}})
		if err != nil {
			return err
		}
	}
	s.Beats.Done(due)
	return nil
}

// Close writes the heartbeats that are in memory, and closes the database after the operations in its queue.
func (s *Store) Close() error {
	if s.Ready(context.Background()) == nil {
		if err := s.KeepBeats(context.Background(), true); err != nil {
			s.Log.Warn("the newest heartbeats could not be saved: the next start gives each run its whole time", "error", err)
		}
	}
	return s.Core.Close()
}

// storeBeat writes a heartbeat, unless its run has been written to since, and tells the watch of the run.
func (s *Store) storeBeat(tx *ledger.Tx, id int64, beat *ledger.Beat) error {
	run, agent, err := s.RunWithAgent(tx, id)
	if err != nil || run == nil || run.Status != ckpt.RunRunning || !run.HeartbeatAt.Equal(beat.At.Time) {
		return err
	}
	w, err := s.WatchRun(tx, agent, run, nil)
	if err != nil {
		return err
	}
	if err := tx.Exec(ledger.UpdateBeat, beat.At, id); err != nil {
		return err
	}
	return s.WatchBeat(tx, agent, run, w, nil)
}
