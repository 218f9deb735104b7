package archive

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"

	ckpt "github.com/ckptsidecar/ckptsidecar"
	"github.com/jmoiron/sqlx"
)

// What follows gives single rows in the form of an export, for who keeps a copy of a
// run elsewhere.

// The kinds of rows of a run.
const (
	KindStep      = lineStep
	KindOperation = lineOperation
	KindEvent     = lineEvent
)

// Row is a row of a run as an export has it. Key tells it from the others of its kind.
type Row struct {
	Kind, Key string
	Order     int64
	Text      string
}

// AgentText is the line of an agent.
func AgentText(ctx context.Context, q *sqlx.Tx, id int64) (string, error) {
	var a struct {
		Owner     string    `db:"owner"`
		Name      string    `db:"name"`
		CreatedAt ckpt.Time `db:"created_at"`
		PolicyAt  ckpt.Time `db:"policy_at"`
		Policy    string    `db:"policy"`
	}
	if err := q.GetContext(ctx, &a, `SELECT owner, name, created_at, policy_at, policy FROM agents WHERE id = ?`, id); err != nil {
		return "", err
	}
	text, err := json.Marshal(&exportLine{Type: lineAgent, Agent: a.Name, Owner: a.Owner, CreatedAt: &a.CreatedAt,
		PolicyAt: &a.PolicyAt, Policy: json.RawMessage(a.Policy)})
	return string(text), err
}

// RunText is the row of a run.
func RunText(ctx context.Context, q *sqlx.Tx, id int64) (text string, err error) {
	err = eachRow(ctx, q, runs.query, id, func(values []any) error {
		b, err := runs.appendRow(nil, values)
		text = string(b)
		return err
	})
	return text, err
}

// CheckpointText is the row of a checkpoint, without its state.
func CheckpointText(ctx context.Context, q *sqlx.Tx, slot int64) (text string, err error) {
	err = eachRow(ctx, q, `SELECT `+checkpoints.list()+` FROM checkpoints WHERE slot = ?`, slot, func(values []any) error {
		b, err := checkpoints.appendRow(nil, values)
		text = string(b)
		return err
	})
	return text, err
}

// Half says whether a run is being imported and is not whole yet.
func Half(ctx context.Context, q *sqlx.Tx, run int64) (half bool, err error) {
	err = q.GetContext(ctx, &half, `SELECT EXISTS (SELECT 1 FROM operations
		WHERE run_id = ? AND key = ? AND name = ? AND status = 'uncertain')`, run, halfKey, halfName)
	return half, err
}

// RowsOf are the rows of a run: all of them, or of the kinds and keys that some names.
func RowsOf(ctx context.Context, q *sqlx.Tx, run int64, some map[string][]string) (list []Row, err error) {
	for _, t := range children {
		query := t.query
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
				column := map[string]string{lineEvent: "seq"}[t.kind]
				if column == "" {
					column = "key"
				}
				query = strings.Replace(query, `WHERE run_id = ?`, `WHERE run_id = ?1 AND `+column+` IN (SELECT value
					FROM json_each(`+quoted(string(texts))+`))`, 1)
			}
		}
		err := eachRow(ctx, q, query, run, func(values []any) error {
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

// WriteKeys are the keys of what LangGraph's tasks have written for a run.
func WriteKeys(ctx context.Context, q *sqlx.Tx, run int64) (list []string, err error) {
	err = eachRow(ctx, q, `SELECT checkpoint, task, idx FROM graph_writes WHERE run_id = ?`, run, func(values []any) error {
		key, err := json.Marshal(values)
		list = append(list, string(key))
		return err
	})
	return list, err
}

// quoted is a text as a literal of SQL.
func quoted(s string) string { return `'` + strings.ReplaceAll(s, `'`, `''`) + `'` }

// rowOf gives a row its key, and its text.
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
