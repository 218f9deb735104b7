package client

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/url"

	ckpt "github.com/ckptsidecar/ckptsidecar"
	"github.com/ckptsidecar/ckptsidecar/internal/ipc"
	"github.com/ckptsidecar/ckptsidecar/internal/ipc/endpoint"
)

// request creates the HTTP request of an ask.
func (c *Client) request(ctx context.Context, a *ask, body io.Reader) *http.Request {
	query := a.query
	query.add(ipc.OwnerParameter, c.Owner)
	u := &url.URL{Scheme: "http", Host: "ckptsidecar", RawPath: a.path, RawQuery: query.encode()}
	u.Path, _ = url.PathUnescape(a.path) // the client made the path and escaped its segments
	r := &http.Request{Method: a.method, URL: u, Host: u.Host, Header: http.Header{}, Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1}
	for name, v := range a.header {
		r.Header[name] = v
	}
	if a.contentType != "" {
		r.Header["Content-Type"] = []string{a.contentType}
	}
	if body != nil {
		r.Body = io.NopCloser(body)
	}
	return r.WithContext(ctx)
}

// stream makes a call once, over its own connection, and returns the body of the reply.
func (c *Client) stream(ctx context.Context, a *ask, body io.Reader) (io.ReadCloser, error) {
	c.init()
	resp, err := c.streams.RoundTrip(c.request(ctx, a, body))
	if err != nil {
		var nobody *endpoint.DialError
		return nil, broken(err, a.write && !errors.As(err, &nobody)) // net/http never repeats it
	}
	if resp.StatusCode/100 == 2 {
		return resp.Body, nil
	}
	defer resp.Body.Close()
	text, err := readAll(resp)
	if err != nil {
		return nil, broken(err, a.write)
	}
	return nil, ipc.ReadProblem(resp.StatusCode, resp.Header, text, a.write)
}

// fetch makes a call and decodes the JSON of its answer into v.
func (c *Client) fetch(ctx context.Context, a *ask, v any) (*answer, error) {
	ans, err := c.do(ctx, a)
	if err != nil {
		return nil, err
	}
	return ans, readAnswer(ans.body, v, a.write)
}

// readAnswer ignores members that it does not know: a newer daemon can send more.
func readAnswer(body []byte, v any, write bool) error {
	if err := json.Unmarshal(body, v); err != nil {
		return misunderstood(err, write)
	}
	return nil
}

func misunderstood(err error, write bool) error {
	e := ckpt.Wrap(ckpt.CodeInternal, err, "the daemon's answer cannot be read: install the same version of client and daemon")
	if write {
		e.Outcome = ckpt.OutcomeUnknown
	}
	return e
}
