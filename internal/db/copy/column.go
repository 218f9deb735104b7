package copy

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
	"github.com/ckptsidecar/ckptsidecar/internal/jsontext"
	"github.com/ckptsidecar/ckptsidecar/internal/wellformed"
)

// kind is how SQLite stores a value.
type kind int

const (
	whole kind = iota
	number
	text
	blobs
)

// numbering says how a number is made anew in a copy.
type numbering int

const (
	kept    numbering = iota // it is no number, or stays
	agentNo                  // the first time that a number comes, it gets the next one
	runNo
	segmentNo
	contentNo
	treeNo
	placeNo
	actNo // by the order of the acts that the copy has; NULL for another act
	slotNo
	rowNo           // a new number for each row
	segmentList     // pieces, with numbers of segments
	contentList     // pieces, with numbers of contents
	removedActs     // JSON with the acts of removed checkpoints
	made            // the copy makes the value itself
	leftOut         // NULL in a copy
	numberings      // how many there are
	nobody      = 0 // the number of nothing
)

// form says what a column holds.
type form struct {
	kind  kind
	least int64              // the least value of a whole number
	most  int                // the most bytes of a text; 0 for ckpt.MaxText, or ckpt.MaxValue if it is JSON
	rises bool               // a whole number that the daemon adds to
	truth bool               // 0 or 1; true or false in a line
	isRef bool               // the id of a checkpoint
	isOwn bool               // the id of the row itself
	json  bool               // a text of JSON
	check func(string) error // checks a text
	no    numbering
	row   bool // a line of JSON does not have it
}

// column is a column of a table.
type column struct {
	name string
	form
}

// maxRising is the most that a number may be to which the daemon adds. No run gets beyond it.
const maxRising = 1 << 62

var forms = map[string]form{
	"whole": {least: math.MinInt64}, "count": {}, "natural": {least: 1}, "rising": {least: 1, rises: true}, "rising0": {rises: true},
	"truth": {truth: true}, "number": {kind: number},
	"text": {kind: text}, "short": {kind: text, most: ckpt.MaxKey}, "name": {kind: text, most: ckpt.MaxGraphName},
	"long":         {kind: text, most: ckpt.MaxValue},
	"time":         {kind: text, check: checkMoment},
	"key":          {kind: text, check: func(s string) error { return ckpt.CheckKey("key", s) }},
	"id":           {kind: text, check: ckpt.CheckID},
	"own_id":       {kind: text, check: ckpt.CheckID, isOwn: true},
	"ref":          {kind: text, check: ckpt.CheckID, isRef: true},
	"uid":          {kind: text, check: ckpt.CheckID, row: true},
	"hash":         {kind: text, check: func(s string) error { return ckpt.CheckSHA256("hash", s) }},
	"owner":        {kind: text, check: checkOwner},
	"agent_name":   {kind: text, check: ckpt.CheckAgentName},
	"run_name":     {kind: text, check: ckpt.CheckRunName},
	"life_name":    {kind: text, check: ckpt.CheckLife, row: true},
	"thread":       {kind: text, check: ckpt.CheckGraphThread},
	"content_type": {kind: text, check: ckpt.CheckContentType},
	"policy":       {kind: text, json: true, check: checkPolicy},
	"json":         {kind: text, json: true},
	"object":       {kind: text, json: true, check: checkObject},
	"schema":       {kind: text, json: true, most: ckpt.MaxSchema, check: checkObject},
	"metadata":     {kind: text, json: true, most: ckpt.MaxMetadata, check: checkObject},
	"labels":       {kind: text, json: true, check: checkLabels},
	"choices":      {kind: text, json: true, check: ckpt.CheckChoices},
	"program":      {kind: text, json: true, most: math.MaxInt}, // as large as the body of its save
	"bytes":        {kind: blobs}, "state": {kind: blobs, row: true},
	"agent": {no: agentNo, row: true}, "run": {no: runNo, row: true}, "segment": {no: segmentNo, row: true}, "content": {no: contentNo, row: true},
	"tree": {no: treeNo, row: true}, "place": {no: placeNo, row: true},
	"act": {no: actNo, row: true}, "slot": {no: slotNo, row: true}, "row": {no: rowNo, row: true},
	"segments": {kind: text, no: segmentList, row: true, most: maxPieces}, "contents": {kind: text, no: contentList, row: true, most: maxPieces},
	"removed": {kind: text, no: removedActs, row: true, most: ckpt.MaxValue},
	"stored":  {row: true}, "counted": {no: made, row: true}, "first": {no: made, row: true}, "chained": {kind: blobs, no: made, row: true},
	"left": {no: leftOut, row: true},
}

// maxPieces is the most bytes of a list of pieces.
const maxPieces = 64 << 20

// inLine says whether a line of JSON has the column.
func inLine(c *column) bool { return !c.row }

func checkMoment(s string) error {
	t, err := ckpt.ParseTime(s)
	if err != nil || t.IsZero() || t.String() != s {
		return errors.New("is not a time as it is stored, such as 2026-03-01T12:00:00.000Z")
	}
	return nil
}

func checkOwner(s string) error { // the row of each checkpoint in the audit log names it
	if !ckpt.IsOwner(s) {
		return errors.New("is neither uid:NUMBER nor a SID")
	}
	return nil
}

func checkPolicy(s string) error {
	_, err := wellformed.ParsePolicy([]byte(s))
	return err
}

func checkObject(s string) error {
	if strings.TrimLeft(s, " \t\r\n")[0] != '{' {
		return errors.New("is not an object")
	}
	return nil
}

func checkLabels(s string) error {
	if err := checkObject(s); err != nil {
		return err
	}
	var l map[string]string
	if err := json.Unmarshal([]byte(s), &l); err != nil {
		return errors.New("are not labels")
	}
	return ckpt.CheckLabels(l)
}

// valid refuses a value that no request could have stored.
func (c *column) valid(v any) error {
	is := false
	switch v := v.(type) {
	case nil:
		return nil
	case int64:
		if v < c.least || c.truth && v > 1 || c.rises && v > maxRising {
			return fmt.Errorf("is %d", v)
		}
		is = c.kind == whole
	case float64:
		is = c.kind == number && !math.IsInf(v, 0) && !math.IsNaN(v)
	case []byte:
		is = c.kind == blobs
	case string:
		if c.kind == text {
			return c.validText(v)
		}
	}
	if !is {
		return errors.New("has another form")
	}
	return nil
}

func (c *column) validText(s string) error {
	most := c.most
	if most == 0 {
		if most = ckpt.MaxText; c.json {
			most = ckpt.MaxValue
		}
	}
	if len(s) > most {
		return fmt.Errorf("is %d bytes long, at most %d are allowed", len(s), most)
	}
	if !utf8.ValidString(s) {
		return errors.New("is not UTF-8")
	}
	if c.json {
		if err := jsontext.Check([]byte(s)); err != nil {
			return fmt.Errorf("is not JSON: %w", err)
		}
	}
	if c.check != nil {
		return c.check(s)
	}
	return nil
}

// valid refuses a row with a value that no request could have stored.
func (t *table) valid(values []any) error {
	for i := range t.columns {
		if t.columns[i].no == leftOut {
			continue
		}
		if err := t.columns[i].valid(values[i]); err != nil {
			return fmt.Errorf("its %s %w", t.columns[i].name, plain(err))
		}
	}
	return nil
}

// plain returns an error without its code.
func plain(err error) error {
	var e *ckpt.Error
	if errors.As(err, &e) {
		return errors.New(e.Message)
	}
	return err
}

// asText is the suffix of a member that holds JSON as a text, because the JSON would break the line.
const asText = "_text"

// appendRow writes the columns of a row that lines have as a JSON object. values has only these.
func (t *table) appendRow(b []byte, values []any) ([]byte, error) {
	b = append(b, '{')
	at := 0
	for i := range t.columns {
		c := &t.columns[i]
		if !inLine(c) {
			continue
		}
		v := values[at]
		at++
		if v == nil {
			continue
		}
		if err := c.valid(v); err != nil {
			return b, fmt.Errorf("its %s %w", c.name, plain(err))
		}
		if b[len(b)-1] != '{' {
			b = append(b, ',')
		}
		b = c.appendMember(b, v)
	}
	return append(b, '}'), nil
}

func (c *column) appendMember(b []byte, v any) []byte {
	b = append(append(b, '"'), c.name...)
	switch v := v.(type) {
	case int64:
		if b = append(b, `":`...); c.truth {
			return strconv.AppendBool(b, v != 0)
		}
		return strconv.AppendInt(b, v, 10)
	case []byte:
		return append(base64.StdEncoding.AppendEncode(append(b, `":"`...), v), '"')
	case string:
		if c.json && oneLine(v) {
			return append(append(b, `":`...), v...)
		}
		if c.json {
			b = append(b, asText...)
		}
	}
	return append(append(b, `":`...), asJSON(v)...)
}

// asJSON is a text or a number as JSON.
func asJSON(v any) []byte {
	j, err := json.Marshal(v)
	if err != nil {
		return []byte("null") // texts and finite numbers can always be encoded
	}
	return j
}

// oneLine says that a JSON text can be written into a line unchanged and reads back as the same bytes.
func oneLine(s string) bool {
	return s != "" && !strings.ContainsAny(s, "\r\n") && strings.TrimSpace(s) == s
}

// parseRow reads a row, which is checked JSON. It returns a value for each column, nil for one that
// the line does not have.
func (t *table) parseRow(row []byte) ([]any, error) {
	values := make([]any, len(t.columns))
	var failed error
	is := jsontext.Members(row, func(name string, raw []byte) bool {
		i := slices.IndexFunc(t.columns, func(c column) bool { return inLine(&c) && (c.name == name || c.json && c.name+asText == name) })
		if i < 0 {
			failed = fmt.Errorf("unknown field %q", name)
			return false
		}
		c := &t.columns[i]
		if values[i], failed = c.read(name, raw); failed == nil {
			failed = c.valid(values[i])
		}
		if failed != nil {
			failed = fmt.Errorf("its %s %w", name, plain(failed))
		}
		return failed == nil
	})
	if !is && failed == nil {
		failed = errors.New("it has no row")
	}
	return values, failed
}

func (c *column) read(name string, raw []byte) (any, error) {
	switch {
	case c.json && name == c.name:
		return string(raw), nil // null is a value here, in its stored form
	case bytes.Equal(raw, []byte("null")):
		return nil, nil
	case c.truth:
		if is := string(raw) == "true"; is || string(raw) == "false" {
			return bit(is), nil
		}
		return nil, errors.New("is neither true nor false")
	case c.kind == whole:
		n, err := strconv.ParseInt(string(raw), 10, 64)
		return n, wrong(err, "is not a whole number")
	case c.kind == number:
		f, err := strconv.ParseFloat(string(raw), 64)
		return f, wrong(err, "is not a number")
	}
	var s string
	if err := json.Unmarshal(raw, &s); err != nil {
		return nil, errors.New("is not a text")
	}
	if c.kind == blobs {
		data, err := base64.StdEncoding.DecodeString(s)
		if data == nil {
			data = []byte{}
		}
		return data, wrong(err, "is not base64")
	}
	return s, nil
}

func wrong(err error, what string) error {
	if err != nil {
		return errors.New(what)
	}
	return nil
}

func bit(is bool) int64 {
	if is {
		return 1
	}
	return 0
}
