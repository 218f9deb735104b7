package surveys

import (
	"context"
	"database/sql"
	"errors"
	"slices"

	"github.com/jmoiron/sqlx"

	ckpt "github.com/ckptsidecar/ckptsidecar"
	"github.com/ckptsidecar/ckptsidecar/internal/survey"
)

// The steps of a run by the time at which they began. ?2 and ?3 are the time and the id of the step beside the page.
const (
	stepTexts = `SELECT key, name, status, attempt, coalesce(substr(args, 1, ?5), '') AS args, coalesce(length(args), 0) AS args_size,
		coalesce(substr(result, 1, ?5), '') AS result, coalesce(length(result), 0) AS result_size,
		coalesce(substr(error, 1, ?5), '') AS error, coalesce(length(error), 0) AS error_size,
		started_at, ended_at, turn, outcome, duration_ms, input_tokens, output_tokens, cost_usd, progress FROM `
	anySteps    = `steps INDEXED BY steps_by_time WHERE run_id = ?1`
	failedSteps = `steps INDEXED BY steps_failed WHERE run_id = ?1 AND status IN ('failed', 'interrupted')`
	stepsFrom   = ` AND started_at >= ?2 AND (started_at > ?2 OR id >= ?3) ORDER BY started_at, id LIMIT 0 + ?4`
	stepsBefore = ` AND started_at <= ?2 AND (started_at < ?2 OR id < ?3) ORDER BY started_at DESC, id DESC LIMIT 0 + ?4`

	placeOfStep = `SELECT started_at AS at, id FROM steps WHERE run_id = ? AND key = ?`

	// Failures without a known cause have one if they have the same name and error.
	mostFailures = `2000`
	selectCauses = `SELECT count(*) AS count, name, error, key, max(at) AS at FROM (
		SELECT name, key, started_at AS at, coalesce(substr(error, 1, 200), '') AS error, cause FROM ` + failedSteps + ` ORDER BY started_at DESC LIMIT ` + mostFailures + `)
		GROUP BY coalesce(cause, name || ' ' || error) ORDER BY count DESC, key LIMIT 0 + ?2`

	selectHeard = `SELECT seq, at, type, substr(payload, 1, ?4) AS payload, length(payload) AS size FROM events
		WHERE run_id = ?1 AND seq >= ?2 AND seq < ?3 ORDER BY seq DESC LIMIT 0 + ?5`
)

// Transcript returns a page of a run's steps, with the beginnings of their texts.
func (s *Surveys) Transcript(ctx context.Context, sc ckpt.Scope, ref ckpt.RunRef, f survey.TranscriptQuery) (*survey.Transcript, error) {
	if err := f.Check(); err != nil {
		return nil, err
	}
	run, err := s.core.FindRun(ctx, sc, ref)
	if err != nil {
		return nil, err
	}
	s.core.AuditRead(sc, "read_transcript", ref.Agent, "")
	if f.Limit == 0 {
		f.Limit = survey.DefaultSteps
	}
	if f.Text == 0 {
		f.Text = survey.DefaultText
	}
	t := transcript{ctx: ctx, run: run.ID, query: f, from: anySteps, v: &survey.Transcript{Causes: []survey.StepCause{}, Events: []survey.HeardEvent{}}}
	if f.Failed {
		t.from = failedSteps
	}
	err = s.core.Reading(ctx, func(q *sqlx.Tx) error {
		t.q = q
		if err := t.steps(); err != nil {
			return err
		}
		if f.Failed {
			return q.SelectContext(ctx, &t.v.Causes, selectCauses, run.ID, survey.MaxCauses)
		}
		return t.events()
	})
	return t.v, err
}

// transcript reads a page.
type transcript struct {
	ctx   context.Context
	q     *sqlx.Tx
	run   int64
	query survey.TranscriptQuery
	from  string // the table with the steps that are asked for
	v     *survey.Transcript
	until ckpt.Time // when the first step after the page began; zero for none
}

// stepPlace is the place of a step in the order of the steps of its run.
type stepPlace struct {
	At string `db:"at"`
	ID int64  `db:"id"`
}

// after everything.
var lastPlace = stepPlace{"9999", 0}

func (t *transcript) steps() error {
	f := &t.query
	place, forward := lastPlace, false
	if key := f.At + f.Before + f.After; key != "" {
		err := t.q.GetContext(t.ctx, &place, placeOfStep, t.run, key)
		if errors.Is(err, sql.ErrNoRows) {
			return ckpt.Errorf(ckpt.CodeNotFound, "the run has no step %q", key)
		}
		if err != nil {
			return err
		}
		forward = f.Before == ""
		if f.After != "" {
			place.ID++ // ids grow, so this is the place behind the step
		}
	}
	if !f.From.IsZero() {
		place, forward = stepPlace{f.From.String(), 0}, true
	}
	t.v.Steps = []survey.TranscriptStep{}
	order := stepsBefore
	if forward {
		order = stepsFrom
	}
	if err := t.q.SelectContext(t.ctx, &t.v.Steps, stepTexts+t.from+order, t.run, place.At, place.ID, f.Limit+1, f.Text); err != nil {
		return err
	}
	more := len(t.v.Steps) > f.Limit
	if forward && more {
		t.until = t.v.Steps[f.Limit].StartedAt
	}
	t.v.Steps = t.v.Steps[:min(len(t.v.Steps), f.Limit)]
	if !forward {
		slices.Reverse(t.v.Steps)
		t.v.Earlier, t.v.Later = more, f.Before != ""
		if t.v.Later {
			t.until, _ = ckpt.ParseTime(place.At) // it was written by the store
		}
		return nil
	}
	t.v.Later = more
	return t.q.GetContext(t.ctx, &t.v.Earlier, `SELECT EXISTS (SELECT 1 FROM `+t.from+stepsBefore+`)`, t.run, place.At, place.ID, 1)
}

// events reads what the run reported while it did the steps of the page.
func (t *transcript) events() error {
	var oldest, newest sql.NullInt64 // older ones may be gone
	err := t.q.QueryRowContext(t.ctx, `SELECT (SELECT min(seq) FROM events WHERE run_id = ?1), (SELECT max(seq) FROM events WHERE run_id = ?1)`, t.run).
		Scan(&oldest, &newest)
	if err != nil || !newest.Valid {
		return err
	}
	first, end := oldest.Int64, newest.Int64+1
	if t.v.Earlier && len(t.v.Steps) > 0 {
		if first, err = t.firstEvent(first, end, t.v.Steps[0].StartedAt); err != nil {
			return err
		}
	}
	if t.v.Later {
		if end, err = t.firstEvent(oldest.Int64, end, t.until); err != nil {
			return err
		}
	}
	err = t.q.SelectContext(t.ctx, &t.v.Events, selectHeard, t.run, first, end, t.query.Text, survey.MaxHeard)
	slices.Reverse(t.v.Events)
	return err
}

// firstEvent finds the first event at a time or later by its seq. Events are numbered without gaps, in the order of time.
func (t *transcript) firstEvent(low, high int64, at ckpt.Time) (int64, error) {
	for low < high {
		middle := (low + high) / 2
		var then ckpt.Time
		if err := t.q.GetContext(t.ctx, &then, `SELECT at FROM events WHERE run_id = ? AND seq = ?`, t.run, middle); err != nil {
			return 0, err
		}
		if then.Before(at.Time) {
			low = middle + 1
		} else {
			high = middle
		}
	}
	return low, nil
}
