package archive

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"

	ckpt "github.com/ckptsidecar/ckptsidecar"
	"github.com/jmoiron/sqlx"
)

// This file gives single rows in the form of an export, for callers that keep a copy of a run
// elsewhere.

// The kinds of rows of a run.
const (
	KindStep      = lineStep
	KindOperation = lineOperation
	KindEvent     = lineEvent
	KindPrompt    = linePrompt
)

// Row is a row of a run in the form of an export. Key distinguishes it from other rows of its kind.
type Row struct {
	Kind, Key string
	Order     int64
	Text      string
}

// Agent is the stored row of an agent.
type Agent struct {
	Owner, Name, CreatedAt, PolicyAt, Policy string
}

// Line is the export line of an agent.
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
	RunColumns        = runs.listOf("r")
	CheckpointColumns = checkpoints.listOf("c")
)

// IsHalf says, in SQL, whether the import of a run r has not ended.
var IsHalf = `EXISTS (SELECT 1 FROM operations h WHERE h.run_id = r.id AND h.key = ` + quoted(halfKey) +
	` AND h.name = ` + quoted(halfName) + ` AND h.status = 'uncertain')`

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
	s := &Scanner{of: of, dest: first, line: make([]any, len(of.columns))}
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
		query, args := t.query, []any{run}
		if some != nil {
			keys, is := some[t.kind]
			if !is {
				continue
			}
			if keys != nil {
				texts, err := json.Marshal(keys)
				if err != nil {
					return nil, err
				}
				query, args = t.named(), append(args, string(texts))
			}
		}
		err := eachRow(ctx, q, query, args, func(values []any) error {
			row, err := t.rowOf(values)
			list = append(list, row)
			return err
		})
		if err != nil {
			return nil, err
		}
	}
	return list, nil
}

// named is the query for the rows of a run, ?1, with one of the keys in ?2, a JSON array.
func (t *table) named() string {
	column := "key"
	if t.kind == lineEvent {
		column = "seq"
	}
	return strings.Replace(t.query, `WHERE run_id = ?`, `WHERE run_id = ?1 AND `+column+` IN (SELECT value FROM json_each(?2))`, 1)
}

// WriteKeys returns the keys of the graph writes of a run's LangGraph tasks.
func WriteKeys(ctx context.Context, q *sqlx.Tx, run int64) (list []string, err error) {
	err = eachRow(ctx, q, `SELECT checkpoint, task, idx FROM graph_writes WHERE run_id = ?`, []any{run}, func(values []any) error {
		key, err := json.Marshal(values)
		list = append(list, string(key))
		return err
	})
	return list, err
}

// quoted is a text as an SQL literal.
func quoted(s string) string { return `'` + strings.ReplaceAll(s, `'`, `''`) + `'` }

// rowOf makes a Row with its key and its text.
func (t *table) rowOf(values []any) (Row, error) {
	row := Row{Kind: t.kind}
	switch t.kind {
	case lineOperation:
		row.Key = fmt.Sprintf("%v %v", values[1], values[0])
	case lineEvent:
		row.Order, _ = values[0].(int64)
		row.Key = fmt.Sprintf("%019d", row.Order)
	case lineThread:
	case lineWrite:
		key, err := json.Marshal(values[:3])
		if err != nil {
			return row, err
		}
		row.Key = string(key)
	default:
		row.Key, _ = values[0].(string)
	}
	if t.read != nil {
		var err error
		if values, err = t.read(values); err != nil {
			return row, err
		}
	}
	text, err := t.appendRow(nil, values)
	row.Text = string(text)
	return row, err
}

// Kinds are the kinds of rows of a run, in the order of an export.
func Kinds() (list []string) {
	for _, t := range children {
		list = append(list, t.kind)
	}
	return list
}
