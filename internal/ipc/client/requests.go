package client

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net"
	"net/http"
	"net/url"

	ckpt "github.com/ckptsidecar/ckptsidecar"
	"github.com/ckptsidecar/ckptsidecar/internal/ipc"
	"github.com/ckptsidecar/ckptsidecar/internal/ipc/endpoint"
)

// transport dials the endpoint, whatever the host says. It never looks at the
// environment for a proxy.
func (c *Client) transport() *http.Transport {
	return &http.Transport{
		DialContext:        func(ctx context.Context, _, _ string) (net.Conn, error) { return c.dial(ctx) },
		DisableCompression: true,
		WriteBufferSize:    bufferSize,
		ReadBufferSize:     bufferSize,
	}
}

// values is a query that keeps its order.
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

// request makes the HTTP request of an ask.
func (c *Client) request(ctx context.Context, a *ask, body io.Reader) *http.Request {
	query := a.query
	query.add(ipc.OwnerParameter, c.Owner)
	u := &url.URL{Scheme: "http", Host: "ckptsidecar", RawPath: a.path, RawQuery: query.encode()}
	u.Path, _ = url.PathUnescape(a.path) // ours, and escaped by segment
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

// broken is what an error of the connection means. A failed dial says best
// itself what to do, unless something was sent before: what broke off is tried
// once more, and then the dial that failed is the second.
func broken(err error, sent bool) error {
	var nobody *endpoint.DialError
	if errors.As(err, &nobody) && !sent {
		return nobody
	}
	e := ckpt.Wrap(ckpt.CodeBusy, err, "the connection to the daemon broke before the answer came")
	if errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		e.Message = "the answer of the daemon was not waited for"
	}
	if sent {
		if nobody != nil {
			e.Err = errors.New(err.Error()) // without the failed dial, which says that nothing was sent
		}
		e.Outcome = ckpt.OutcomeUnknown
		e.Message += ", so it is not known whether this was done"
	}
	return e
}

// stream makes a call once, over a connection of its own, and hands out the
// reply's body.
func (c *Client) stream(ctx context.Context, a *ask, body io.Reader) (io.ReadCloser, error) {
	c.init()
	resp, err := c.streams.RoundTrip(c.request(ctx, a, body))
	if err != nil {
		var nobody *endpoint.DialError
		return nil, broken(err, a.write && !errors.As(err, &nobody)) // never repeated by net/http
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

// fetch makes a call whose answer is v's JSON.
func (c *Client) fetch(ctx context.Context, a *ask, v any) (*answer, error) {
	ans, err := c.do(ctx, a)
	if err != nil {
		return nil, err
	}
	return ans, readAnswer(ans.body, v, a.write)
}

// readAnswer ignores members that it does not know: a newer daemon may send more.
func readAnswer(body []byte, v any, write bool) error {
	if err := json.Unmarshal(body, v); err != nil {
		return misunderstood(err, write)
	}
	return nil
}

func misunderstood(err error, write bool) error {
	e := ckpt.Wrap(ckpt.CodeInternal, err, "the answer of the daemon cannot be understood: are both of the same version?")
	if write {
		e.Outcome = ckpt.OutcomeUnknown
	}
	return e
}

// jsonAsk is a call with a JSON body.
func jsonAsk(method, path string, v any) (*ask, error) {
	body, err := json.Marshal(v)
	if err != nil {
		return nil, ckpt.Wrap(ckpt.CodeInvalid, err, "the request cannot be written as JSON")
	}
	return &ask{method: method, path: path, body: body, contentType: ckpt.ContentTypeJSON, write: true}, nil
}
