package receiver

import (
	"context"
	"errors"
	"mime"
	"net/http"
	"strconv"
	"time"

	ckpt "github.com/ckptsidecar/ckptsidecar"
	"github.com/ckptsidecar/ckptsidecar/internal/otlp"
	"github.com/ckptsidecar/ckptsidecar/internal/otlp/observed"
)

// formOf returns the form of the body of an HTTP request; -1 for an unknown form.
func formOf(r *http.Request) otlp.Form {
	kind, _, err := mime.ParseMediaType(r.Header.Get("Content-Type"))
	switch {
	case err == nil && kind == "application/x-protobuf":
		return otlp.Binary
	case err == nil && kind == "application/json":
		return otlp.JSON
	}
	return -1
}

// take reads, translates and stores the spans of a request.
func (c *call) take(form otlp.Form) ([]byte, error) {
	ctx, cancel := context.WithTimeout(c.r.Context(), readTime+patience)
	defer cancel()
	if err := c.mayAsk(form); err != nil {
		return nil, err
	}
	c.form = form
	who, err := c.identify(ctx)
	if err != nil {
		return nil, err
	}
	c.owner = c.receiver.owner(who.Owner)
	body, release, err := c.read(ctx)
	if err != nil {
		return nil, err
	}
	defer release()
	batch, err := otlp.Read(body, otlp.Options{Form: form, Content: c.receiver.opt.Content, Now: c.receiver.opt.Now()})
	if err != nil {
		return nil, err
	}
	return c.store(ctx, who, batch)
}

// mayAsk refuses requests that no exporter sends.
func (c *call) mayAsk(form otlp.Form) error {
	h := c.r.Header
	switch {
	case c.r.Method != http.MethodPost:
		c.w.Header().Set("Allow", http.MethodPost)
		return &refusal{http.StatusMethodNotAllowed, ckpt.Errorf(ckpt.CodeInvalid, "send traces with POST")}
	case h.Get("Origin") != "" || h.Get("Referer") != "":
		return &refusal{http.StatusForbidden, ckpt.Errorf(ckpt.CodeDenied, "requests from browsers are refused here")}
	case form < 0:
		return unsupported("application/x-protobuf or application/json")
	}
	return nil
}

// store stores a batch. It waits for the owner's rate limit and for a busy database, and
// refuses the batch only when the time is over.
func (c *call) store(ctx context.Context, who ckpt.Caller, batch *otlp.Batch) ([]byte, error) {
	r := c.receiver
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	if len(batch.Spans) > 0 && c.owner.writes.Wait(ctx) != nil {
		return nil, busy("you send more requests a second than are allowed: send larger batches")
	}
	done, err := r.observe(ctx, who, batch.Spans)
	switch {
	case ckpt.CodeOf(err) == ckpt.CodeQuota: // another attempt would have the same result
		batch.Refused = batch.All - batch.Ignored
		batch.Why = "The owner's quota is reached: none of this was stored."
		done = &observed.Counts{}
	case err != nil:
		return nil, err
	}
	r.step.Add(int64(done.Steps))
	r.usage.Add(int64(done.Usage))
	r.duplicate.Add(int64(done.Duplicates))
	r.ignored.Add(int64(done.Ignored + batch.Ignored))
	r.refused.Add(int64(batch.Refused))
	return otlp.Response(c.form, batch.Refused, batch.Why), nil
}

// observe tries again while the database is busy and there is time left.
func (r *Receiver) observe(ctx context.Context, who ckpt.Caller, spans []observed.Span) (*observed.Counts, error) {
	for pause := 20 * time.Millisecond; ; pause = min(2*pause, time.Second) {
		done, err := r.opt.Store.Observe(ctx, ckpt.Scope{Caller: who}, spans, r.opt.Content)
		if ckpt.CodeOf(err) != ckpt.CodeBusy {
			return done, err
		}
		select {
		case <-ctx.Done():
			return nil, err
		case <-time.After(pause):
		}
	}
}

// statusOf returns the HTTP status of an error. Exporters send again after 429, 502, 503
// and 504.
func statusOf(err error) int {
	var own *refusal
	if errors.As(err, &own) {
		return own.status
	}
	switch ckpt.CodeOf(err) {
	case ckpt.CodeInvalid:
		return http.StatusBadRequest
	case ckpt.CodeTooLarge:
		return http.StatusRequestEntityTooLarge
	case ckpt.CodeDenied:
		return http.StatusForbidden
	case ckpt.CodeBusy, ckpt.CodeStorageFull:
		return http.StatusServiceUnavailable
	}
	return http.StatusInternalServerError
}

// answer answers an HTTP request.
func (c *call) answer(reply []byte, err error) {
	h := c.w.Header()
	h.Set("Content-Type", "application/x-protobuf")
	if c.form == otlp.JSON {
		h.Set("Content-Type", "application/json")
	}
	status := http.StatusOK
	if err != nil {
		status = statusOf(err)
		reply = otlp.Status(c.form, c.message(err))
		if status == http.StatusServiceUnavailable {
			h.Set("Retry-After", "1")
		}
		if status == http.StatusUnauthorized {
			h.Set("WWW-Authenticate", "Bearer")
		}
	}
	h.Set("Content-Length", strconv.Itoa(len(reply)))
	c.w.WriteHeader(status)
	_, _ = c.w.Write(reply) // a client that has gone cannot be told
}

// message returns the text for the client. Internal errors go to the log.
func (c *call) message(err error) string {
	var known *ckpt.Error
	if errors.As(err, &known) && known.Code != ckpt.CodeInternal {
		return known.Message
	}
	c.receiver.log.Error("spans could not be taken", "error", err)
	return "the daemon had an internal error: read the daemon's log"
}
