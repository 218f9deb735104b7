package copy

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"

	"github.com/jmoiron/sqlx"

	ckpt "github.com/ckptsidecar/ckptsidecar"
)

// This file gives single rows as lines of JSON, and reads such lines, for callers that keep a copy of a run elsewhere.

// The kinds of rows of a run.
const (
	KindStep      = lineStep
	KindOperation = lineOperation
	KindEvent     = lineEvent
	KindPrompt    = linePrompt
)

// Row is a row of a run as JSON. Key distinguishes it from other rows of its kind.
type Row struct {
	Kind, Key string
	Order     int64
	Text      string
}

// Agent is the stored row of an agent.
type Agent struct {
	Owner, Name, CreatedAt, PolicyAt, Policy string
}

// Line is the line of an agent.
func (a *Agent) Line() (string, error) {
	created, err := ckpt.ParseTime(a.CreatedAt)
	if err != nil {
		return "", err
	}
	changed, err := ckpt.ParseTime(a.PolicyAt)
	if err != nil {
		return "", err
	}
	text, err := json.Marshal(&exportLine{Type: lineAgent, Agent: a.Name, Owner: a.Owner, CreatedAt: &created,
		PolicyAt: &changed, Policy: json.RawMessage(a.Policy)})
	return string(text), err
}

// RunColumns are, in SQL, the columns of a run r that ScanRuns reads. CheckpointColumns are those
// of a checkpoint c that ScanCheckpoints reads.
var (
	RunColumns        = runs.list("r.", inLine)
	CheckpointColumns = checkpoints.list("c.", inLine)
)

// Scanner reads rows that end with the columns of a table, and makes a line from these columns.
type Scanner struct {
	of   *table
	dest []any // destinations of the columns, those of the table last
	line []any // the values of the table's columns
	text []byte
}

// ScanRuns reads rows that begin with other columns and end with RunColumns.
func ScanRuns(first ...any) *Scanner { return scanner(runs, first) }

// ScanCheckpoints does the same with CheckpointColumns. Its lines do not have the states.
func ScanCheckpoints(first ...any) *Scanner { return scanner(checkpoints, first) }

func scanner(of *table, first []any) *Scanner {
	s := &Scanner{of: of, dest: first, line: of.lineValues(make([]any, len(of.columns)))}
	for i := range s.line {
		s.dest = append(s.dest, &s.line[i])
	}
	return s
}

// Scan reads the current row of rows. The first columns go to the destinations that ScanRuns or
// ScanCheckpoints got, the others make the line.
func (s *Scanner) Scan(rows *sqlx.Rows) (line string, err error) {
	if err := rows.Scan(s.dest...); err != nil {
		return "", err
	}
	s.text, err = s.of.appendRow(s.text[:0], s.line)
	return string(s.text), err
}

// RowsOf returns the rows of a run: all of them, or only those with the kinds and keys in some.
func RowsOf(ctx context.Context, q *sqlx.Tx, run int64, some map[string][]string) (list []Row, err error) {
	for _, t := range children {
		query, args := t.query(), []any{0, run}
		if keys, is := some[t.kind]; some != nil && !is {
			continue
		} else if keys != nil {
			column := "key"
			if t == events {
				column = "seq"
			}
			query = strings.Replace(query, ofRun, ofRun+` AND `+column+` IN (SELECT value FROM json_each(?3))`, 1)
			args = append(args, jsonList(keys))
		}
		rows, err := q.QueryxContext(ctx, query, args...)
		if err != nil {
			return nil, err
		}
		for rows.Next() {
			values, err := rows.SliceScan()
			if err == nil {
				var row Row
				row, err = t.rowOf(values)
				list = append(list, row)
			}
			if err != nil {
				_ = rows.Close()
				return nil, err
			}
		}
		if err := rows.Err(); err != nil {
			return nil, err
		}
		_ = rows.Close()
	}
	return list, nil
}

// WriteKeys returns the keys of the graph writes of a run's LangGraph tasks.
func WriteKeys(ctx context.Context, q *sqlx.Tx, run int64) (list []string, err error) {
	return list, q.SelectContext(ctx, &list, `SELECT json_array(checkpoint, task, idx) FROM graph_writes WHERE run_id = ?`, run)
}

// rowOf makes a Row with its key and its text.
func (t *table) rowOf(values []any) (Row, error) {
	row := Row{Kind: t.kind}
	switch t {
	case operations:
		row.Key = fmt.Sprintf("%v %v", values[1], values[0])
	case events:
		row.Order, _ = values[0].(int64)
		row.Key = fmt.Sprintf("%019d", row.Order)
	case graphThreads:
	case graphWrites:
		key, err := json.Marshal(values[:3])
		if err != nil {
			return row, err
		}
		row.Key = string(key)
	default:
		row.Key, _ = values[0].(string)
	}
	err := sumOfWrite(t, values)
	if err != nil {
		return row, err
	}
	text, err := t.appendRow(nil, t.lineValues(values))
	row.Text = string(text)
	return row, err
}

// Kinds are the kinds of rows of a run, in the order of lines.
func Kinds() (list []string) {
	for _, t := range children {
		list = append(list, t.kind)
	}
	return list
}
