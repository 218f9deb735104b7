package client

import (
	"context"
	"encoding/json"
	"errors"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strconv"

	ckpt "github.com/ckptsidecar/ckptsidecar"
	"github.com/ckptsidecar/ckptsidecar/internal/ipc"
	"github.com/ckptsidecar/ckptsidecar/internal/ipc/endpoint"
	"github.com/google/uuid"
)

// ask is a request that may be made more than once.
type ask struct {
	method, path string // the path is escaped
	query        values
	header       http.Header
	rawQuery     string // used instead of query if asKept is true
	body         []byte
	contentType  string
	write        bool
	repeatable   bool // repeating it changes nothing
	asKept       bool // it was written down earlier; its query has the owner, if any
	conditional  bool // the answer can be "not modified", which has no body

	agent, run string // whose it is, if an outbox may keep it; else ""
	direct     bool   // the outbox sends it in its order, and never keeps it
}

// answer is a reply with a good status. Its body was read to the end.
type answer struct {
	header http.Header
	body   []byte
}

func (a *answer) replayed() bool { return a.header.Get(ipc.HeaderReplayed) == "true" }

// values is a query that keeps the order of its parameters.
type values []ipc.Parameter

func (v *values) add(name, value string) {
	if value != "" {
		*v = append(*v, ipc.Parameter{Name: name, Value: value})
	}
}

func (v values) encode() string {
	var b []byte
	for i, p := range v {
		if i > 0 {
			b = append(b, '&')
		}
		b = append(append(append(b, p.Name...), '='), url.QueryEscape(p.Value)...)
	}
	return string(b)
}

// broken turns an error of the connection into an error of the API. It returns the error
// of a failed dial unchanged, because that error says best what to do, unless something
// was sent before: then a first connection broke, and the second dial failed.
func broken(err error, sent bool) error {
	var nobody *endpoint.DialError
	if errors.As(err, &nobody) && !sent {
		return nobody
	}
	e := ckpt.Wrap(ckpt.CodeBusy, err, "the connection to the daemon broke before the answer came")
	if errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		e.Message = "the wait for the daemon's answer ended before it came"
	}
	if sent {
		if nobody != nil {
			e.Err = errors.New(err.Error()) // without the failed dial, which means that nothing was sent
		}
		e.Outcome = ckpt.OutcomeUnknown
		e.Message += ", so it is not known whether this was done"
	}
	return e
}

// jsonAsk returns a call with a JSON body.
func jsonAsk(method, path string, v any) (*ask, error) {
	body, err := json.Marshal(v)
	if err != nil {
		return nil, ckpt.Wrap(ckpt.CodeInvalid, err, "the request cannot be written as JSON")
	}
	return &ask{method: method, path: path, body: body, contentType: ckpt.ContentTypeJSON, write: true}, nil
}

func (v *values) addLimit(limit int) {
	if limit != 0 {
		v.add("limit", strconv.Itoa(limit))
	}
}

// orNil returns nil after an error, so that no caller uses an incomplete answer.
func orNil[T any](v *T, err error) (*T, error) {
	if err != nil {
		return nil, err
	}
	return v, nil
}

// keyedAsk returns a POST with an idempotency key, so that it can be repeated. An empty
// key means a new one.
func keyedAsk(path string, body any, key string) (*ask, error) {
	a, err := jsonAsk(http.MethodPost, path, body)
	if err != nil {
		return nil, err
	}
	if key == "" {
		if key, err = newID(); err != nil {
			return nil, err
		}
	}
	a.header = http.Header{"Idempotency-Key": {key}}
	a.repeatable = true
	return a, nil
}

func newID() (string, error) {
	id, err := uuid.NewV7()
	if err != nil {
		return "", ckpt.Wrap(ckpt.CodeInternal, err, "no id could be generated")
	}
	return id.String(), nil
}

func agentPath(agent string) string { return "/v1/agents/" + agent }

func addLabels(q *values, labels ckpt.Labels) {
	for _, key := range slices.Sorted(maps.Keys(labels)) {
		q.add(ipc.LabelParameter, key+"="+labels[key])
	}
}
