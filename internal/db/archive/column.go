package archive

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	ckpt "github.com/ckptsidecar/ckptsidecar"
	"github.com/ckptsidecar/ckptsidecar/internal/db/ledger"
	"github.com/ckptsidecar/ckptsidecar/internal/jsontext"
)

// form says what a column holds.
type form int

const (
	whole  form = iota // a whole number
	number             // any number
	truth              // 0 or 1, true or false in an export
	moment             // a time
	text               // any text
	value              // a JSON value, stored as text
	object             // a JSON object
	labels             // a JSON object of short texts
	bytea              // bytes, base64 in an export
)

// column is one member of a line of an export, and its column in the database.
type column struct {
	name  string
	form  form
	need  bool               // it is never null
	least int64              // the least value of a whole number
	rises bool               // it is a whole number that the daemon adds to
	most  int                // the most bytes of a text; 0 for ckpt.MaxText, or ckpt.MaxValue if it is JSON
	words []string           // the only texts that are allowed
	check func(string) error // checks a text
	ref   bool               // it is the id of a checkpoint
	own   bool               // it is the id of the row itself
	def   any                // the value if a line does not have it
}

// asText is the suffix of a member that holds a JSON column as text, because the JSON would break
// the line.
const asText = "_text"

// appendMember writes a stored value as a member. It leaves out a null.
func (c *column) appendMember(b []byte, v any) ([]byte, error) {
	if v == nil {
		return b, nil
	}
	if err := c.valid(v); err != nil {
		return b, err
	}
	if b[len(b)-1] != '{' {
		b = append(b, ',')
	}
	name := c.name
	s, isText := v.(string)
	if c.isJSON() && !oneLine(s) {
		name += asText
	}
	b = append(append(append(b, '"'), name...), `":`...)
	switch v := v.(type) {
	case int64:
		if c.form == truth {
			return strconv.AppendBool(b, v != 0), nil
		}
		return strconv.AppendInt(b, v, 10), nil
	case float64:
		return appendJSON(b, v)
	case []byte:
		return append(base64.StdEncoding.AppendEncode(append(b, '"'), v), '"'), nil
	}
	if isText && c.isJSON() && oneLine(s) {
		return append(b, s...), nil
	}
	return appendJSON(b, s)
}

func appendJSON(b []byte, v any) ([]byte, error) {
	j, err := json.Marshal(v)
	return append(b, j...), err
}

// oneLine says that a JSON text can be written into a line unchanged and reads back as the same
// bytes.
func oneLine(s string) bool {
	return s != "" && !strings.ContainsAny(s, "\r\n") && strings.TrimSpace(s) == s
}

func (c *column) isJSON() bool { return c.form == value || c.form == object || c.form == labels }

// parse reads a member and returns the value to store. name is the member's name, which may end in
// asText.
func (c *column) parse(name string, raw []byte) (any, error) {
	v, err := c.read(name, raw)
	if err != nil || v == nil {
		return v, err
	}
	return v, c.valid(v)
}

func (c *column) read(name string, raw []byte) (any, error) {
	if c.isJSON() && name == c.name {
		return string(raw), nil // null is a value here, in its stored form
	}
	if bytes.Equal(raw, []byte("null")) {
		return nil, nil
	}
	switch c.form {
	case whole:
		n, err := strconv.ParseInt(string(raw), 10, 64)
		if c.rises && n > maxRising {
			return nil, fmt.Errorf("is %d", n)
		}
		return n, wrong(err, "is not a whole number")
	case number:
		f, err := strconv.ParseFloat(string(raw), 64)
		return f, wrong(err, "is not a number")
	case truth:
		is, err := strconv.ParseBool(string(raw))
		if err != nil || raw[0] == '0' || raw[0] == '1' {
			return nil, errors.New("is neither true nor false")
		}
		if is {
			return int64(1), nil
		}
		return int64(0), nil
	}
	var s string
	if err := json.Unmarshal(raw, &s); err != nil {
		return nil, errors.New("is not a text")
	}
	if c.form == bytea {
		data, err := base64.StdEncoding.DecodeString(s)
		if data == nil {
			data = []byte{}
		}
		return data, wrong(err, "is not base64")
	}
	return s, nil
}

// maxRising is the most that a number may be to which the daemon adds. No run gets beyond it.
const maxRising = 1 << 62

func wrong(err error, what string) error {
	if err != nil {
		return errors.New(what)
	}
	return nil
}

// valid refuses values that no request could have stored.
func (c *column) valid(v any) error {
	switch v := v.(type) {
	case int64:
		if c.form != whole && c.form != truth || v < c.least || c.form == truth && v > 1 {
			return fmt.Errorf("is %d", v)
		}
		return nil
	case float64:
		if c.form != number || math.IsInf(v, 0) || math.IsNaN(v) {
			return errors.New("is not a number")
		}
		return nil
	case []byte:
		return wrongForm(c.form == bytea)
	case string:
		return c.validText(v)
	}
	return errors.New("has an unknown form")
}

func wrongForm(right bool) error {
	if !right {
		return errors.New("has another form")
	}
	return nil
}

func (c *column) validText(s string) error {
	most := c.most
	if most == 0 {
		if most = ckpt.MaxText; c.isJSON() {
			most = ckpt.MaxValue
		}
	}
	switch {
	case len(s) > most:
		return fmt.Errorf("is %d bytes long, at most %d are allowed", len(s), most)
	case !utf8.ValidString(s):
		return errors.New("is not UTF-8")
	case c.words != nil && !slices.Contains(c.words, s):
		return fmt.Errorf("must be one of %q", c.words)
	case c.check != nil:
		return c.check(s)
	}
	switch c.form {
	case text:
		return nil
	case moment:
		t, err := ckpt.ParseTime(s)
		if err != nil || t.IsZero() || t.String() != s {
			return errors.New("is not a time as it is stored, such as 2026-03-01T12:00:00.000Z")
		}
		return nil
	case value, object, labels:
		return c.validJSON(s)
	}
	return errors.New("has another form")
}

func (c *column) validJSON(s string) error {
	if err := jsontext.Check([]byte(s)); err != nil {
		return fmt.Errorf("is not JSON: %w", err)
	}
	if c.form == value {
		return nil
	}
	if strings.TrimLeft(s, " \t\r\n")[0] != '{' {
		return errors.New("is not an object")
	}
	if c.form == labels {
		var l map[string]string
		if err := json.Unmarshal([]byte(s), &l); err != nil {
			return errors.New("are not labels")
		}
		return ckpt.CheckLabels(l)
	}
	return nil
}

// table describes one kind of row of a run.
type table struct {
	kind    string // of its lines
	order   string
	columns []column
	query   string                     // reads a run's rows
	insert  string                     // writes one
	read    func([]any) ([]any, error) // converts what query reads to the columns; nil if they are the same
	write   func([]any) []any          // the same for insert
}

// prepare completes insert, which begins with the table's name, and sets query.
func (t *table) prepare() *table {
	list := t.list()
	t.query = `SELECT ` + list + ` FROM ` + strings.TrimPrefix(t.insert, `INSERT INTO `) + ` WHERE run_id = ? ORDER BY ` + t.order
	t.insert += ` (run_id, ` + list + `) VALUES (?` + strings.Repeat(", ?", len(t.columns)) + `)`
	return t
}

// prepareRuns is prepare for the runs themselves, which belong to an agent. The first four
// arguments of insert are the agent, the name, the number of checkpoints that are not here yet, and
// the uid, nil for a new one.
func (t *table) prepareRuns() *table {
	list := t.list()
	t.query = `SELECT ` + list + ` FROM runs WHERE id = ?`
	t.insert += ` (id, agent_id, name, removed, uid, ` + list + `) VALUES (` + ledger.NextRun + `, ?, ?, ?, ?` +
		strings.Repeat(", ?", len(t.columns)) + `) RETURNING id`
	return t
}

func (t *table) list() string {
	names := make([]string, len(t.columns))
	for i := range t.columns {
		names[i] = t.columns[i].name
	}
	return strings.Join(names, ", ")
}

// listOf lists the columns of a table for a query that calls the table alias.
func (t *table) listOf(alias string) string {
	return alias + "." + strings.ReplaceAll(t.list(), ", ", ", "+alias+".")
}

// appendRow writes a row as a JSON object.
func (t *table) appendRow(b []byte, values []any) ([]byte, error) {
	b = append(b, '{')
	for i := range t.columns {
		c := &t.columns[i]
		var err error
		if values[i] == nil && c.need {
			err = errors.New("is missing")
		} else {
			b, err = c.appendMember(b, values[i])
		}
		if err != nil {
			return b, fmt.Errorf("its %s %w", c.name, err)
		}
	}
	return append(b, '}'), nil
}

// parseRow reads a row, which is checked JSON. It returns a value for each column.
func (t *table) parseRow(row []byte) ([]any, error) {
	values := make([]any, len(t.columns))
	var failed error
	is := jsontext.Members(row, func(name string, raw []byte) bool {
		i := slices.IndexFunc(t.columns, func(c column) bool { return c.name == name || c.isJSON() && c.name+asText == name })
		if i < 0 {
			failed = fmt.Errorf("unknown field %q", name)
		} else if values[i], failed = t.columns[i].parse(name, raw); failed != nil {
			failed = fmt.Errorf("its %s %w", name, failed)
		}
		return failed == nil
	})
	if !is && failed == nil {
		failed = errors.New("it has no row")
	}
	for i := range t.columns {
		if values[i] == nil {
			values[i] = t.columns[i].def
		}
		if failed == nil && values[i] == nil && t.columns[i].need {
			failed = fmt.Errorf("its %s is missing", t.columns[i].name)
		}
	}
	return values, failed
}

// place is the index of a column in a row.
func (t *table) place(name string) int {
	return slices.IndexFunc(t.columns, func(c column) bool { return c.name == name })
}

// at is the value of a column in a parsed row.
func (t *table) at(values []any, name string) any {
	return values[t.place(name)]
}

func (t *table) whole(values []any, name string) int64 {
	n, _ := t.at(values, name).(int64)
	return n
}

func (t *table) text(values []any, name string) string {
	s, _ := t.at(values, name).(string)
	return s
}
