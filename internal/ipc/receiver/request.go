package receiver

import (
	"net/http"
	"time"

	ckpt "github.com/ckptsidecar/ckptsidecar"
	"github.com/ckptsidecar/ckptsidecar/internal/otlp"
)

// refusal is an error with an HTTP status.
type refusal struct {
	status int
	err    *ckpt.Error
}

func (e *refusal) Error() string { return e.err.Error() }

// Unwrap returns the product's error.
func (e *refusal) Unwrap() error { return e.err }

func unsupported(want string) error {
	return &refusal{http.StatusUnsupportedMediaType, ckpt.Errorf(ckpt.CodeInvalid, "the Content-Type must be %s", want)}
}

func busy(message string) error {
	return &ckpt.Error{Code: ckpt.CodeBusy, RetryAfter: time.Second, Message: message}
}

// call is one request.
type call struct {
	receiver *Receiver
	w        http.ResponseWriter
	r        *http.Request
	form     otlp.Form
	owner    *owner

	reply []byte // of a gRPC call
	err   error
}
