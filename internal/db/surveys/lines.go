package surveys

import (
	"context"
	"encoding/json"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/jmoiron/sqlx"

	ckpt "github.com/ckptsidecar/ckptsidecar"
	"github.com/ckptsidecar/ckptsidecar/internal/db/ledger"
	"github.com/ckptsidecar/ckptsidecar/internal/survey"
)

// lines reads the runs of an overview.
type lines struct {
	ctx   context.Context
	q     *sqlx.Tx
	owner string
	axis  axis
	now   ckpt.Time
	limit int
	waits func(waiting ckpt.Ref) int // finds the process that waits for an answer

	list []survey.RunLine
	ids  string        // the ids of the runs, as a JSON array
	at   map[int64]int // their indexes in the list
}

// lineRow is a run as the query returns it.
type lineRow struct {
	ID int64 `db:"id"`
	survey.RunLine
	Labels  ledger.Lenient[ckpt.Labels] `db:"labels"`
	Waiting ckpt.Ref                    `db:"waiting"`
	Saved   string                      `db:"saved"` // time and seq of its newest checkpoint
}

// The runs that an overview shows: those that have not ended, and those that ended on the axis.
// Each part has an index.
const (
	selectLines = `SELECT r.id FROM runs r INDEXED BY runs_by_status CROSS JOIN agents a ON a.id = r.agent_id
			WHERE r.status IN ('running', 'suspended', 'awaiting_continuation', 'interrupted', 'timed_out') AND (a.owner = ?1 OR ?1 = '*')
		UNION ALL SELECT r.id FROM runs r INDEXED BY runs_at_rest CROSS JOIN agents a ON a.id = r.agent_id
			WHERE r.status <> 'running' AND r.updated_at >= ?2 AND r.ended_at >= ?2 AND (a.owner = ?1 OR ?1 = '*')`
	newestLines = `SELECT count(*) OVER () AS runs, id FROM runs WHERE id IN (` + selectLines + `) ORDER BY updated_at DESC, id DESC LIMIT 0 + ?3`

	// The newest checkpoint of each kind is at the end of an index.
	savedOfKind = `(SELECT c.created_at || ' ' || c.seq FROM checkpoints c WHERE c.run_id = r.id AND c.kind = '`
	newestKind  = `' ORDER BY c.seq DESC LIMIT 1)`
	readLines   = `SELECT r.id, a.owner, a.name AS agent, r.name AS run, r.workflow, coalesce(substr(r.goal, 1, ?2), '') AS goal, r.labels,
		CASE WHEN r.status = 'running' AND r.last_seq = 0 AND r.source IS NULL THEN 'starting' ELSE r.status END AS status,
		r.epoch, r.attempt, r.forked_from, r.source, r.waiting, r.started_at, r.updated_at, r.ended_at, r.segment_at,
		r.accumulated_ms, r.progress, r.steps_ended, r.input_tokens, r.output_tokens, r.cost_usd, r.stored_bytes,
		coalesce(max(coalesce(` + savedOfKind + `routine` + newestKind + `, ''), coalesce(` + savedOfKind + `pre_operation` + newestKind + `, ''),
			coalesce(` + savedOfKind + `recovery` + newestKind + `, '')), '') AS saved
		FROM json_each(?1) j CROSS JOIN runs r ON r.id = j.value CROSS JOIN agents a ON a.id = r.agent_id ORDER BY r.updated_at DESC, r.id DESC`

	ofTheRuns = `run_id IN (SELECT value FROM json_each(?1))`

	lineFindings = `SELECT run_id, severity AS word, count(*) AS count FROM findings INDEXED BY findings_open
		WHERE closed IS NULL AND rule <> 'secret' AND ` + ofTheRuns + ` GROUP BY run_id, severity`
	lineUncertain = `SELECT run_id, '' AS word, count(*) AS count FROM operations WHERE status = 'uncertain' AND ` + ofTheRuns + ` GROUP BY run_id`
	linePrompts   = `SELECT run_id, '' AS word, count(*) AS count FROM prompts
		WHERE answered_at IS NULL AND (expires_at IS NULL OR expires_at > ?2) AND ` + ofTheRuns + ` GROUP BY run_id`

	// At most the newest 20 of a run.
	lineSegments = `SELECT run_id, attempt, began_at, ended_at, coalesce(how, '') AS how, coalesce(pid, 0) AS pid FROM run_segments s
		WHERE ` + ofTheRuns + ` AND (ended_at IS NULL OR ended_at >= ?2) AND n > (SELECT max(n) - 20 FROM run_segments m
			WHERE m.run_id = s.run_id) ORDER BY run_id, n`

	binSteps  = `SELECT run_id, started_at AS at, '' AS word FROM steps WHERE started_at >= ?2 AND ` + ofTheRuns
	binFailed = `SELECT run_id, started_at AS at, '' AS word FROM steps
		WHERE started_at >= ?2 AND status IN ('failed', 'interrupted') AND ` + ofTheRuns
	binOperations = `SELECT run_id, started_at AS at, '' AS word FROM operations WHERE started_at >= ?2 AND ` + ofTheRuns
	binFindings   = `SELECT run_id, at, CASE WHEN closed IS NULL THEN severity ELSE '-' || severity END AS word FROM findings
		WHERE at >= ?2 AND ` + ofTheRuns
)

func (l *lines) read() ([]survey.RunLine, int64, error) {
	l.list = []survey.RunLine{}
	total, err := l.choose()
	if err != nil || len(l.at) == 0 {
		return l.list, total, err
	}
	for _, part := range []func() error{l.readRuns, l.count, l.readSegments, l.readBins} {
		if err := part(); err != nil {
			return nil, 0, err
		}
	}
	return l.list, total - int64(len(l.list)), nil
}

// choose finds the runs, and says how many match in all.
func (l *lines) choose() (int64, error) {
	limit := l.limit
	if limit == 0 {
		limit = survey.DefaultRuns
	}
	var rows []struct {
		Runs int64 `db:"runs"`
		ID   int64 `db:"id"`
	}
	if err := l.q.SelectContext(l.ctx, &rows, newestLines, l.owner, l.axis.start(0), limit); err != nil || len(rows) == 0 {
		return 0, err
	}
	ids := make([]int64, len(rows))
	l.at = make(map[int64]int, len(rows))
	for i, row := range rows {
		ids[i], l.at[row.ID] = row.ID, i
	}
	l.ids = arrayOf(ids)
	return rows[0].Runs, nil
}

// arrayOf encodes numbers as a JSON array.
func arrayOf(ids []int64) string {
	text, _ := json.Marshal(ids) // numbers can always be encoded
	return string(text)
}

func (l *lines) readRuns() error {
	var rows []lineRow
	if err := l.q.SelectContext(l.ctx, &rows, readLines, l.ids, survey.GoalLength); err != nil {
		return err
	}
	for i := range rows {
		row := &rows[i]
		line := row.RunLine
		line.Labels, line.WaitingPID = row.Labels.Value, l.waits(row.Waiting)
		if at, seq, found := strings.Cut(row.Saved, " "); found {
			line.SavedAt, _ = ckpt.ParseTime(at) // a damaged time shows as none
			line.SavedSeq, _ = strconv.ParseInt(seq, 10, 64)
		}
		line.Segments, line.Bins = []survey.Segment{}, []survey.RunBin{}
		l.list, l.at[row.ID] = append(l.list, line), i
	}
	return nil
}

// count adds the numbers of open items of each run.
func (l *lines) count() error {
	for _, of := range []struct {
		query string
		args  []any
		to    func(line *survey.RunLine, word string, count int64)
	}{
		{lineFindings, nil, func(line *survey.RunLine, word string, count int64) {
			line.Findings += count
			line.Worst = worse(line.Worst, ckpt.Severity(word))
		}},
		{lineUncertain, nil, func(line *survey.RunLine, _ string, count int64) { line.Uncertain = count }},
		{linePrompts, []any{l.now}, func(line *survey.RunLine, _ string, count int64) { line.Prompts = count }},
	} {
		var rows []struct {
			RunID int64  `db:"run_id"`
			Word  string `db:"word"`
			Count int64  `db:"count"`
		}
		if err := l.q.SelectContext(l.ctx, &rows, of.query, append([]any{l.ids}, of.args...)...); err != nil {
			return err
		}
		for _, row := range rows {
			of.to(&l.list[l.at[row.RunID]], row.Word, row.Count)
		}
	}
	return nil
}

// readSegments adds the segments of the runs that reach onto the axis, with their owners.
func (l *lines) readSegments() error {
	var rows []segmentRow
	if err := l.q.SelectContext(l.ctx, &rows, lineSegments, l.ids, l.axis.start(0)); err != nil {
		return err
	}
	for i := range rows {
		line := &l.list[l.at[rows[i].RunID]]
		line.Segments = append(line.Segments, rows[i].segment())
	}
	return nil
}

// readBins counts events in the bins of the runs.
func (l *lines) readBins() error {
	bins := make([]map[int]*survey.RunBin, len(l.list))
	for _, of := range []struct {
		query string
		add   func(bin *survey.RunBin, word string)
	}{
		{binSteps, func(bin *survey.RunBin, _ string) { bin.Steps++ }},
		{binFailed, func(bin *survey.RunBin, _ string) { bin.Failed++ }},
		{binOperations, func(bin *survey.RunBin, _ string) { bin.Operations++ }},
		{binFindings, func(bin *survey.RunBin, word string) {
			word, closed := strings.CutPrefix(word, "-")
			bin.Findings++
			bin.Worst = worse(bin.Worst, ckpt.Severity(word))
			if !closed {
				bin.Open++
			}
		}},
	} {
		err := each(l.ctx, l.q, func(id int64, at, word string) {
			t, err := ckpt.ParseTime(at)
			i, on := l.axis.at(t.Time)
			if err != nil || !on {
				return
			}
			place := l.at[id]
			if bins[place] == nil {
				bins[place] = map[int]*survey.RunBin{}
			}
			if bins[place][i] == nil {
				bins[place][i] = &survey.RunBin{I: i}
			}
			of.add(bins[place][i], word)
		}, of.query, l.ids, l.axis.start(0))
		if err != nil {
			return err
		}
	}
	for place, of := range bins {
		for _, i := range slices.Sorted(maps.Keys(of)) {
			l.list[place].Bins = append(l.list[place].Bins, *of[i])
		}
	}
	return nil
}

// each calls f with the run, the time and the word of each row of a query.
func each(ctx context.Context, q *sqlx.Tx, f func(run int64, at, word string), query string, args ...any) error {
	rows, err := q.QueryContext(ctx, query, args...)
	if err != nil {
		return err
	}
	defer rows.Close()
	for rows.Next() {
		var run int64
		var at, word string
		if err := rows.Scan(&run, &at, &word); err != nil {
			return err
		}
		f(run, at, word)
	}
	return rows.Err()
}
