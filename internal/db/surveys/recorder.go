package surveys

import (
	"context"
	"database/sql"
	"encoding/json"
	"time"

	"github.com/jmoiron/sqlx"

	ckpt "github.com/ckptsidecar/ckptsidecar"
	"github.com/ckptsidecar/ckptsidecar/internal/survey"
)

// Recorder returns the flight recorder of a run.
func (s *Surveys) Recorder(ctx context.Context, sc ckpt.Scope, ref ckpt.RunRef, f survey.RecorderQuery) (*survey.Recorder, error) {
	if err := f.Check(); err != nil {
		return nil, err
	}
	run, err := s.core.FindRun(ctx, sc, ref)
	if err != nil {
		return nil, err
	}
	s.core.AuditRead(sc, "read_recorder", ref.Agent, "")
	r := recorder{ctx: ctx, run: run.ID, query: f}
	r.v = &survey.Recorder{Owner: run.Owner, Agent: run.Agent, Run: run.Run.Run, At: ckpt.At(s.core.Opt.Now())}
	err = s.core.Reading(ctx, func(q *sqlx.Tx) error {
		r.q = q
		for _, part := range []func() error{
			r.readRun, r.readSegments, r.readEnds, r.view, r.whole, r.steps, r.operations, r.checkpoints, r.findings,
		} {
			if err := part(); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return r.v, nil
}

// recorder assembles the parts of a flight recorder.
type recorder struct {
	ctx   context.Context
	q     *sqlx.Tx
	run   int64
	query survey.RecorderQuery
	v     *survey.Recorder

	row  recordedRun
	axis axis      // the axis of the view
	past ckpt.Time // the first instant after the view
}

// recordedRun has the columns of a run's row that a recorder needs.
type recordedRun struct {
	Status       ckpt.RunStatus `db:"status"`
	Epoch        int64          `db:"epoch"`
	Attempt      int64          `db:"attempt"`
	PID          int            `db:"pid"`
	StartedAt    ckpt.Time      `db:"started_at"`
	UpdatedAt    ckpt.Time      `db:"updated_at"`
	EndedAt      ckpt.Time      `db:"ended_at"`
	SegmentAt    ckpt.Time      `db:"segment_at"`
	StepsEnded   int64          `db:"steps_ended"`
	Saves        int64          `db:"last_seq"`
	Kept         int64          `db:"kept"`
	InputTokens  int64          `db:"input_tokens"`
	OutputTokens int64          `db:"output_tokens"`
	CostUSD      float64        `db:"cost_usd"`
	WorkedMS     int64          `db:"accumulated_ms"`
	StoredBytes  int64          `db:"stored_bytes"`
}

const (
	selectRecorded = `SELECT CASE WHEN r.status = 'running' AND r.last_seq = 0 AND r.source IS NULL
			THEN 'starting' ELSE r.status END AS status,
		r.epoch, r.attempt, coalesce(r.pid, 0) AS pid, r.started_at, r.updated_at, r.ended_at, r.segment_at, r.steps_ended, r.last_seq,
		r.last_seq - r.removed AS kept,
		r.input_tokens, r.output_tokens, r.cost_usd, r.accumulated_ms, r.stored_bytes FROM runs r WHERE r.id = ?1`
	selectSegments = `SELECT attempt, began_at, ended_at, coalesce(how, '') AS how, coalesce(pid, 0) AS pid FROM run_segments
		WHERE run_id = ?1 ORDER BY n DESC LIMIT 0 + ?2`

	// The rows of a run's checkpoints are next to one another.
	ofRunsSlots = `slot > ?1 << 32 AND slot <= (?1 + 1) << 32`

	selectFirst = `SELECT coalesce(min(at), '') FROM (SELECT min(started_at) AS at FROM steps WHERE run_id = ?1
		UNION ALL SELECT min(at) FROM findings WHERE run_id = ?1
		UNION ALL SELECT created_at FROM (SELECT created_at FROM checkpoints WHERE ` + ofRunsSlots + ` ORDER BY slot LIMIT 1))`
	selectLast = `SELECT coalesce(max(at), '') FROM (SELECT max(started_at) AS at FROM steps WHERE run_id = ?1
		UNION ALL SELECT max(at) FROM findings WHERE run_id = ?1
		UNION ALL SELECT created_at FROM (SELECT created_at FROM checkpoints WHERE ` + ofRunsSlots + ` ORDER BY slot DESC LIMIT 1))`

	countSteps  = `SELECT count(*) FROM steps WHERE run_id = ?1 AND started_at >= ?2 AND started_at < ?3`
	selectSteps = `SELECT key, name, status, attempt, started_at, ended_at, coalesce(substr(error, 1, 200), '') AS error, outcome,
		duration_ms, input_tokens, output_tokens, cost_usd, progress
		FROM steps WHERE run_id = ?1 AND started_at >= ?2 AND started_at < ?3 ORDER BY started_at, id`
	selectStepBins = `SELECT b.key AS i, (SELECT count(*) FROM steps s
		WHERE s.run_id = ?1 AND s.started_at >= json_extract(b.value, '$[0]') AND s.started_at < json_extract(b.value, '$[1]')) AS count,
		(SELECT count(*) FROM steps s WHERE s.run_id = ?1 AND s.started_at >= json_extract(b.value, '$[0]')
			AND s.started_at < json_extract(b.value, '$[1]')
			AND s.status IN ('failed', 'interrupted')) AS failed FROM json_each(?2) b`

	selectOperations = `SELECT key, name, attempt, status, checkpoint, started_at, ended_at FROM operations WHERE run_id = ?1 AND started_at < ?3
		AND (started_at >= ?2 OR status IN ('open', 'uncertain')) ORDER BY started_at, id`

	selectCheckpoints = `SELECT id, seq, kind, parent, created_at, size, stored_size, step, operation, pinned, suspect FROM checkpoints
		WHERE ` + ofRunsSlots + ` AND created_at >= ?2 AND created_at < ?3 ORDER BY seq`
	selectPlaces = `SELECT seq, kind, created_at, size, pinned + 2 * suspect AS marks FROM checkpoints
		WHERE ` + ofRunsSlots + ` AND created_at >= ?2 AND created_at < ?3`

	selectRunFindings = `SELECT id, at, rule, severity, message, checkpoint, closed FROM findings
		WHERE run_id = ?1 AND at >= ?2 AND at < ?3 ORDER BY at, id`

	countRunFindings   = `SELECT count(*) FROM findings WHERE run_id = ?1`
	countRunOperations = `SELECT count(*) FROM operations WHERE run_id = ?1`
)

func (r *recorder) readRun() error {
	if err := r.q.GetContext(r.ctx, &r.row, selectRecorded, r.run); err != nil {
		return err
	}
	row, v := &r.row, r.v
	v.Status, v.Epoch, v.Attempt = row.Status, row.Epoch, row.Attempt
	v.Sums = survey.Sums{StepsEnded: row.StepsEnded, Checkpoints: row.Kept, Saves: row.Saves,
		InputTokens: row.InputTokens, OutputTokens: row.OutputTokens,
		CostUSD: row.CostUSD, WorkedMS: row.WorkedMS, StoredBytes: row.StoredBytes}
	if !row.SegmentAt.IsZero() {
		v.Sums.WorkedMS += max(0, v.At.Sub(row.SegmentAt.Time).Milliseconds())
	}
	if err := r.q.GetContext(r.ctx, &v.Sums.Operations, countRunOperations, r.run); err != nil {
		return err
	}
	return r.q.GetContext(r.ctx, &v.Sums.Findings, countRunFindings, r.run)
}

// readSegments reads who owned the run at what time. A run without stored segments, because it is
// older or was imported, gets at least one segment.
func (r *recorder) readSegments() error {
	var rows []segmentRow
	if err := r.q.SelectContext(r.ctx, &rows, selectSegments, r.run, survey.MaxSegments); err != nil {
		return err
	}
	r.v.Segments = make([]survey.Segment, len(rows), len(rows)+1)
	for i := range rows {
		r.v.Segments[len(rows)-1-i] = rows[i].segment()
	}
	if len(rows) == 0 {
		only := survey.Segment{Attempt: r.row.Attempt, From: r.row.StartedAt, PID: r.row.PID}
		if r.row.SegmentAt.IsZero() {
			only.To, only.How = r.row.EndedAt, string(r.row.Status)
			if only.To.IsZero() {
				only.To = r.row.UpdatedAt
			}
		}
		r.v.Segments = append(r.v.Segments, only)
	}
	return nil
}

// segmentRow is a segment as the query returns it.
type segmentRow struct {
	RunID   int64     `db:"run_id"`
	Attempt int64     `db:"attempt"`
	From    ckpt.Time `db:"began_at"`
	To      ckpt.Time `db:"ended_at"`
	How     string    `db:"how"`
	PID     int       `db:"pid"`
}

func (row *segmentRow) segment() survey.Segment {
	return survey.Segment{Attempt: row.Attempt, From: row.From, To: row.To, How: row.How, PID: row.PID}
}

// readEnds finds when the run began and ended, from all data that shows it.
func (r *recorder) readEnds() error {
	v := r.v
	v.Began, v.Ended = r.row.StartedAt, r.row.EndedAt
	first, last := v.Segments[0], v.Segments[len(v.Segments)-1]
	v.Began, v.Ended = earlier(v.Began, first.From), later(v.Ended, last.To)
	if !r.row.SegmentAt.IsZero() {
		v.Ended = v.At
	}
	for query, to := range map[string]func(ckpt.Time){
		selectFirst: func(t ckpt.Time) { v.Began = earlier(v.Began, t) },
		selectLast:  func(t ckpt.Time) { v.Ended = later(v.Ended, t) },
	} {
		var text string
		if err := r.q.GetContext(r.ctx, &text, query, r.run); err != nil {
			return err
		}
		if t, err := ckpt.ParseTime(text); err == nil {
			to(t)
		}
	}
	return nil
}

func earlier(a, b ckpt.Time) ckpt.Time {
	if !b.IsZero() && (a.IsZero() || b.Before(a.Time)) {
		return b
	}
	return a
}

func later(a, b ckpt.Time) ckpt.Time {
	if b.After(a.Time) {
		return b
	}
	return a
}

// view divides the visible time into bins.
func (r *recorder) view() error {
	v := r.v
	v.From, v.To, v.Bins = r.query.From, r.query.To, r.query.Bins
	if v.From.IsZero() {
		v.From = v.Began
	}
	if v.To.IsZero() {
		v.To = v.Ended
	}
	if v.To.Before(v.From.Time) {
		if !r.query.From.IsZero() && !r.query.To.IsZero() {
			return ckpt.Errorf(ckpt.CodeInvalid, "from is %s and to is %s: from must be before to", v.From, v.To)
		}
		v.To = v.From
	}
	if v.Bins == 0 {
		v.Bins = survey.DefaultBins
	}
	r.past = ckpt.At(v.To.Add(time.Millisecond))
	r.axis = divide(v.From.Time, r.past.Time, v.Bins)
	v.BinMS = r.axis.bin.Milliseconds()
	return nil
}

// divide cuts a time into bins of whole milliseconds.
func divide(from, past time.Time, bins int) axis {
	whole := past.Sub(from).Milliseconds()
	bin := max(1, (whole+int64(bins)-1)/int64(bins))
	return axis{from, time.Duration(bin) * time.Millisecond, bins}
}

// limitsOf returns the limits of the bins of an axis, as JSON, up to an instant.
func limitsOf(x axis, past ckpt.Time) (string, error) {
	list := make([][2]ckpt.Time, x.bins)
	for i := range list {
		list[i] = [2]ckpt.Time{x.start(i), x.start(i + 1)}
		if past.Before(list[i][1].Time) {
			list[i][1] = past
		}
	}
	text, err := json.Marshal(list)
	return string(text), err
}

// stepBins counts the steps in the bins of an axis by an index alone.
func (r *recorder) stepBins(x axis, past ckpt.Time) ([]survey.StepBin, error) {
	limits, err := limitsOf(x, past)
	if err != nil {
		return nil, err
	}
	rows, err := r.q.QueryContext(r.ctx, selectStepBins, r.run, limits)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	bins := []survey.StepBin{}
	for rows.Next() {
		var b survey.StepBin
		if err := rows.Scan(&b.I, &b.Count, &b.Failed); err != nil {
			return nil, err
		}
		if b.Count > 0 {
			bins = append(bins, b)
		}
	}
	return bins, rows.Err()
}

func (r *recorder) steps() (err error) {
	lane := &r.v.Steps
	lane.Marks, lane.Bins = []survey.StepMark{}, []survey.StepBin{}
	lane.Count = r.v.Sums.Steps
	if !r.v.From.Equal(r.v.Began.Time) || !r.v.To.Equal(r.v.Ended.Time) { // the view is a part of the run
		if err := r.q.GetContext(r.ctx, &lane.Count, countSteps, r.run, r.v.From, r.past); err != nil {
			return err
		}
	}
	if lane.Count > int64(r.v.Bins) {
		lane.Bins, err = r.stepBins(r.axis, r.past)
		return err
	}
	return r.q.SelectContext(r.ctx, &lane.Marks, selectSteps, r.run, r.v.From, r.past)
}

func (r *recorder) operations() error {
	lane := &r.v.Operations
	lane.Marks, lane.Bins = []survey.OperationMark{}, []survey.OperationBin{}
	if err := r.q.SelectContext(r.ctx, &lane.Marks, selectOperations, r.run, r.v.From, r.past); err != nil {
		return err
	}
	if lane.Count = int64(len(lane.Marks)); lane.Count <= int64(r.v.Bins) {
		return nil
	}
	bins := gather(r.axis, func(i int) survey.OperationBin { return survey.OperationBin{I: i} })
	for i := range lane.Marks {
		m := &lane.Marks[i]
		at := m.StartedAt
		if at.Before(r.v.From.Time) {
			at = r.v.From // it is still open, or uncertain
		}
		bin := bins.at(at)
		bin.Count++
		switch m.Status {
		case ckpt.OperationFailed:
			bin.Failed++
		case ckpt.OperationUncertain:
			bin.Uncertain++
		}
	}
	lane.Marks, lane.Bins = []survey.OperationMark{}, bins.list()
	return nil
}

// checkpoints returns the marks if they are few, and otherwise the bins.
func (r *recorder) checkpoints() error {
	lane := &r.v.Checkpoints
	lane.Marks, lane.Bins = []survey.CheckpointMark{}, []survey.CheckpointBin{}
	bins := gather(r.axis, func(i int) survey.CheckpointBin { return survey.CheckpointBin{I: i} })
	rows, err := r.q.QueryContext(r.ctx, selectPlaces, r.run, r.v.From, r.past)
	if err != nil {
		return err
	}
	defer rows.Close()
	var bin *survey.CheckpointBin
	var first, past string // limits of that bin; checkpoints come in order, so that few times are parsed
	for rows.Next() {
		var seq, size, marks int64
		var kind, created sql.RawBytes
		if err := rows.Scan(&seq, &kind, &created, &size, &marks); err != nil {
			return err
		}
		lane.Count++
		if bin == nil || string(created) < first || string(created) >= past {
			at, err := ckpt.ParseTime(string(created))
			if err != nil {
				continue
			}
			bin = bins.at(at)
			first, past = r.axis.start(bin.I).String(), r.axis.start(bin.I+1).String()
		}
		addCheckpoint(bin, ckpt.Kind(kind), seq, size, marks&1 != 0, marks&2 != 0)
	}
	if err := rows.Err(); err != nil {
		return err
	}
	if lane.Count > int64(r.v.Bins) {
		lane.Bins = bins.list()
		return nil
	}
	return r.q.SelectContext(r.ctx, &lane.Marks, selectCheckpoints, r.run, r.v.From, r.past)
}

func addCheckpoint(bin *survey.CheckpointBin, kind ckpt.Kind, seq, size int64, pinned, suspect bool) {
	switch kind {
	case ckpt.KindRoutine:
		bin.Routine++
	case ckpt.KindPreOperation:
		bin.PreOperation++
	case ckpt.KindRecovery:
		bin.Recovery++
	}
	if pinned {
		bin.Pinned++
	}
	if suspect {
		bin.Suspect++
	}
	bin.Largest = max(bin.Largest, size)
	if bin.FirstSeq == 0 || seq < bin.FirstSeq {
		bin.FirstSeq = seq
	}
	bin.LastSeq = max(bin.LastSeq, seq)
}

func (r *recorder) findings() error {
	lane := &r.v.Findings
	lane.Marks, lane.Bins = []survey.FindingMark{}, []survey.FindingBin{}
	if err := r.q.SelectContext(r.ctx, &lane.Marks, selectRunFindings, r.run, r.v.From, r.past); err != nil {
		return err
	}
	if lane.Count = int64(len(lane.Marks)); lane.Count <= int64(r.v.Bins) {
		return nil
	}
	bins := gather(r.axis, func(i int) survey.FindingBin { return survey.FindingBin{I: i} })
	for i := range lane.Marks {
		m := &lane.Marks[i]
		bin := bins.at(m.At)
		bin.Count++
		bin.Worst = worse(bin.Worst, m.Severity)
		if m.Closed == "" {
			bin.Open++
		}
	}
	lane.Marks, lane.Bins = []survey.FindingMark{}, bins.list()
	return nil
}

// whole counts the steps of the whole run for the brush, and in all.
func (r *recorder) whole() (err error) {
	past := ckpt.At(r.v.Ended.Add(time.Millisecond))
	x := divide(r.v.Began.Time, past.Time, survey.WholeBins)
	r.v.Whole.BinMS = x.bin.Milliseconds()
	r.v.Whole.Steps, err = r.stepBins(x, past)
	for _, b := range r.v.Whole.Steps {
		r.v.Sums.Steps, r.v.Sums.Failed = r.v.Sums.Steps+b.Count, r.v.Sums.Failed+b.Failed
	}
	return err
}

// gathered are the bins of a lane. A bin is made when something falls into it.
type gathered[B any] struct {
	axis  axis
	empty func(i int) B
	bins  []*B
}

func gather[B any](x axis, empty func(i int) B) *gathered[B] {
	return &gathered[B]{x, empty, make([]*B, x.bins)}
}

// at is the bin of an instant; an instant outside the axis falls into the bin at that end.
func (g *gathered[B]) at(t ckpt.Time) *B {
	i, on := g.axis.at(t.Time)
	if !on && i > 0 {
		i = g.axis.bins - 1
	}
	if g.bins[i] == nil {
		b := g.empty(i)
		g.bins[i] = &b
	}
	return g.bins[i]
}

func (g *gathered[B]) list() []B {
	list := []B{}
	for _, b := range g.bins {
		if b != nil {
			list = append(list, *b)
		}
	}
	return list
}
