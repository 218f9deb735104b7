package ipc

import (
	"encoding/json"
	"net/http"
	"strconv"
	"time"

	ckpt "github.com/ckptsidecar/ckptsidecar"
)

// Kinds is the only table of codes: the HTTP status of each, and its title for people.
var Kinds = map[ckpt.Code]struct {
	Status int
	title  string
}{
	ckpt.CodeInvalid:             {http.StatusBadRequest, "The request is wrong"},
	ckpt.CodeDenied:              {http.StatusForbidden, "Not allowed"},
	ckpt.CodeNotFound:            {http.StatusNotFound, "Not found"},
	ckpt.CodeConflict:            {http.StatusConflict, "It contradicts what is there"},
	ckpt.CodeUncertainOperation:  {http.StatusConflict, "Nobody knows whether an operation took effect"},
	ckpt.CodeFenced:              {http.StatusConflict, "A newer owner has taken the run over"},
	ckpt.CodeBaseMissing:         {http.StatusConflict, "The base of the change is not there: send the whole state"},
	ckpt.CodeFilesMissing:        {http.StatusConflict, "Contents or a tree of files are not there: store them"},
	ckpt.CodeTooLarge:            {http.StatusRequestEntityTooLarge, "Too large"},
	ckpt.CodeIdempotencyMismatch: {http.StatusUnprocessableEntity, "The key came before with another request"},
	ckpt.CodeSchemaMismatch:      {http.StatusUnprocessableEntity, "The state does not match the agent's schema"},
	ckpt.CodeQuota:               {http.StatusTooManyRequests, "Your share is used up"},
	ckpt.CodeBusy:                {http.StatusServiceUnavailable, "Busy: try again"},
	ckpt.CodeCorrupt:             {http.StatusInternalServerError, "The stored data is damaged"},
	ckpt.CodeStorageFull:         {http.StatusInsufficientStorage, "No room"},
	ckpt.CodeNotReplicated:       {http.StatusServiceUnavailable, "Safe on this host, and not yet in the fleet: try again"},
	ckpt.CodeInternal:            {http.StatusInternalServerError, "Our fault"},
}

const (
	ProblemType   = "application/problem+json"
	problemPrefix = "urn:ckptsidecar:problem:"
)

// Problem is an error on the wire: RFC 9457 with additional members.
type Problem struct {
	Type      string       `json:"type"`
	Title     string       `json:"title"`
	Status    int          `json:"status"`
	Detail    string       `json:"detail"`
	Code      ckpt.Code    `json:"code"`
	Retryable bool         `json:"retryable"`
	Outcome   ckpt.Outcome `json:"outcome"`
	Missing   []string     `json:"missing,omitempty"`
	Host      string       `json:"host,omitempty"`
	Term      int64        `json:"term,omitempty"`

	// RetryAfter is the header of that name, 0 for none.
	RetryAfter time.Duration `json:"-"`
}

// NewProblem returns the form of err that the caller gets. It leaves out causes.
func NewProblem(err error) *Problem {
	e := ckpt.AsError(err)
	kind, known := Kinds[e.Code]
	if !known {
		kind = Kinds[ckpt.CodeInternal]
	}
	return &Problem{
		Type:       problemPrefix + string(e.Code),
		Title:      kind.title,
		Status:     kind.Status,
		Detail:     e.Message,
		Code:       e.Code,
		Retryable:  e.Retryable(),
		Outcome:    e.OutcomeOrDefault(),
		Missing:    e.Missing,
		Host:       e.Host,
		Term:       e.Term,
		RetryAfter: retryAfter(e),
	}
}

// retryAfter returns whole seconds, as the header requires. It is never 0 if waiting
// helps.
func retryAfter(e *ckpt.Error) time.Duration {
	after := e.RetryAfter
	if after <= 0 && (e.Code == ckpt.CodeBusy || e.Code == ckpt.CodeQuota) {
		after = time.Second
	}
	return (after + time.Second - 1).Truncate(time.Second)
}

// Err returns the error that the problem describes: the inverse of NewProblem.
func (p *Problem) Err() *ckpt.Error {
	return &ckpt.Error{Code: p.Code, Message: p.Detail, Outcome: p.Outcome, Missing: p.Missing, Host: p.Host, Term: p.Term, RetryAfter: p.RetryAfter}
}

// ReadProblem returns the error of a reply. A reply that is no Problem comes from
// net/http itself, or from another program that answers there.
func ReadProblem(status int, h http.Header, body []byte, write bool) *ckpt.Error {
	var p Problem
	if err := json.Unmarshal(body, &p); err != nil || p.Code == "" {
		return foreignProblem(status, write)
	}
	if s, err := strconv.Atoi(h.Get("Retry-After")); err == nil && s > 0 {
		p.RetryAfter = time.Duration(s) * time.Second
	}
	return p.Err()
}

func foreignProblem(status int, write bool) *ckpt.Error {
	e := ckpt.Errorf(ckpt.CodeInvalid, "the daemon refused the request with HTTP status %d", status)
	if status >= 500 || status < 400 {
		e.Code = ckpt.CodeInternal
		if write {
			e.Outcome = ckpt.OutcomeUnknown
		}
	}
	return e
}
