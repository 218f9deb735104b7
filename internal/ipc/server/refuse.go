package server

import (
	"encoding/json"
	"net/http"
	"strconv"
	"time"

	ckpt "github.com/ckptsidecar/ckptsidecar"

	"github.com/ckptsidecar/ckptsidecar/internal/ipc"
)

// writeProblem answers with a problem.
func writeProblem(w http.ResponseWriter, p *ipc.Problem) {
	body, err := json.Marshal(p)
	if err != nil { // a Problem consists of strings, so this cannot happen
		body = nil
	}
	h := w.Header()
	h.Set("Content-Type", ipc.ProblemType)
	h.Set("Content-Length", strconv.Itoa(len(body)+1))
	if p.RetryAfter > 0 {
		h.Set("Retry-After", strconv.Itoa(int(p.RetryAfter/time.Second)))
	}
	w.WriteHeader(p.Status)
	_, _ = w.Write(append(body, '\n')) // a client that has gone cannot be told
}

func noSuchPath() error {
	return ckpt.Errorf(ckpt.CodeNotFound, "there is no such path: all paths begin with /v1/, and GET /v1/version identifies the daemon")
}

// statusError is an error with its own HTTP status.
type statusError struct {
	status int
	err    *ckpt.Error
}

func (e *statusError) Error() string { return e.err.Error() }

// Unwrap returns the product's error.
func (e *statusError) Unwrap() error { return e.err }
