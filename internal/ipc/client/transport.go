package client

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"os"
	"strconv"
	"strings"
	"time"

	ckpt "github.com/ckptsidecar/ckptsidecar"
	"github.com/ckptsidecar/ckptsidecar/internal/ipc"
	"github.com/ckptsidecar/ckptsidecar/internal/ipc/endpoint"
)

const (
	idleMost   = 5 * time.Minute // less than the server's
	bufferSize = 16 << 10
	joinMost   = 64 << 10 // up to this size, body and head are written together

	// A body of at least expectContinue is sent only when the daemon agrees to take it,
	// or has not answered for expectMost. For a smaller body, asking first costs more
	// than sending it.
	expectContinue = 4 << 20
	expectMost     = 5 * time.Second

	// owedMost is how long an answer can be owed. The daemon answers a write within its
	// write_timeout, even if only to say that it is busy. After owedMost, the client
	// drops the connection, and makes a new one.
	owedMost = 30 * time.Second
)

// line is the one connection of a client. Requests use it in order. The calling goroutine
// itself writes and reads. The client of net/http has goroutines between the socket and
// the caller, and waking them costs 15 to 17 % of a save.
type line struct {
	dial func(context.Context) (net.Conn, error)
	lock chan struct{} // holds one element while a request is in progress

	conn net.Conn // nil for none; the holder of the lock also owns the fields below
	in   *bufio.Reader
	out  []byte
	used time.Time
	owed time.Time // since when the answer to a write is owed, because its caller gave up; zero for none
}

func newLine(dial func(context.Context) (net.Conn, error)) *line {
	return &line{dial: dial, lock: make(chan struct{}, 1), in: bufio.NewReaderSize(nil, bufferSize)}
}

// close closes the connection when no request is in progress.
func (l *line) close() {
	l.lock <- struct{}{}
	l.drop()
	<-l.lock
}

func (l *line) drop() {
	if l.conn != nil {
		_ = l.conn.Close()
		l.conn, l.owed = nil, time.Time{}
	}
}

// response is an answer whose body was read to the end.
type response struct {
	status int
	header http.Header
	body   []byte
}

// ask makes a request and reads the answer. sent reports whether the daemon may have
// received a part of it. If an idle connection breaks, the daemon may have restarted. In
// this case, ask tries once more over a new connection, if that can do no harm.
func (l *line) ask(ctx context.Context, a *ask, head []byte) (r *response, sent bool, err error) {
	select {
	case l.lock <- struct{}{}:
		defer func() { <-l.lock }()
	case <-ctx.Done():
		return nil, false, ctx.Err()
	}
	if l.conn != nil && time.Since(l.used) > idleMost {
		l.drop()
	}
	if err := l.awaitOwed(ctx); err != nil {
		return nil, false, err
	}
	if old := l.conn != nil; old {
		r, wrote, err := l.once(ctx, a, head)
		if err == nil || ctx.Err() != nil || wrote && !a.repeatable && a.write {
			return r, wrote, err
		}
		sent = wrote
	}
	if l.conn, err = l.dial(ctx); err != nil {
		l.conn = nil
		return nil, sent, err
	}
	r, wrote, err := l.once(ctx, a, head)
	return r, sent || wrote, err
}

// once makes a request over the existing connection. An error closes the connection,
// unless only the answer to a write is missing.
func (l *line) once(ctx context.Context, a *ask, head []byte) (r *response, wrote bool, err error) {
	l.in.Reset(l.conn)
	err = l.within(ctx, func() error {
		r, wrote, err = l.exchange(a, head)
		return err
	})
	return r, wrote, err
}

// awaitOwed waits for the answer that is owed. Therefore a write whose caller gave up is
// done or refused before the next request is sent. Only the end of ctx is an error.
func (l *line) awaitOwed(ctx context.Context) error {
	if l.owed.IsZero() {
		return nil
	}
	most, cancel := context.WithDeadline(ctx, l.owed.Add(owedMost))
	defer cancel()
	err := l.within(most, func() error {
		if err := l.await(); err != nil {
			return err
		}
		_, err := l.answer(nil)
		return err
	})
	if ctx.Err() != nil {
		return err
	}
	if err != nil {
		l.drop() // a closed connection owes no answer
	}
	return nil
}

// within runs do with the connection until ctx ends. An error closes the connection,
// unless only the answer to a write is missing.
func (l *line) within(ctx context.Context, do func() error) error {
	conn := l.conn
	_ = conn.SetDeadline(time.Time{})
	unhook := context.AfterFunc(ctx, func() { _ = conn.SetDeadline(time.Unix(1, 0)) })
	err := do()
	l.used = time.Now()
	if unhook() && err == nil {
		return nil
	}
	if l.owed.IsZero() {
		l.drop()
	}
	if ctx.Err() != nil && err != nil {
		return ctx.Err()
	}
	return err
}

// await waits for the first byte of the answer to a write. If the caller gives up, the
// answer is owed from then on.
func (l *line) await() error {
	_, err := l.in.Peek(1)
	switch {
	case !errors.Is(err, os.ErrDeadlineExceeded):
		l.owed = time.Time{}
	case l.owed.IsZero():
		l.owed = time.Now()
	}
	return err
}

func (l *line) exchange(a *ask, head []byte) (r *response, wrote bool, err error) {
	method := &http.Request{Method: a.method}
	if len(a.body) >= expectContinue {
		if wrote, err = l.write(head, nil); err != nil {
			return nil, wrote, err
		}
		resp, err := l.mayContinue(method)
		if err != nil {
			return nil, true, err
		}
		if resp != nil { // the daemon does not want the body
			r, err := l.read(resp)
			l.drop()
			return r, true, err
		}
		head = nil
	}
	wrote, err = l.write(head, a.body)
	if err != nil && !wrote {
		return nil, false, err
	}
	if err == nil && a.write {
		if err := l.await(); err != nil {
			return nil, true, err
		}
	}
	r, readErr := l.answer(method)
	if readErr != nil { // the daemon's last answer is worth more than the fact that it hung up
		return nil, true, errors.Join(err, readErr)
	}
	if err != nil {
		l.drop()
	}
	return r, true, nil
}

// answer reads an answer to its end, which can also be the end of the connection.
func (l *line) answer(method *http.Request) (*response, error) {
	resp, err := l.next(method)
	if err != nil {
		return nil, err
	}
	r, err := l.read(resp)
	if resp.Close {
		l.drop()
	}
	return r, err
}

// write sends the head and the body, and returns whether any of it was sent.
func (l *line) write(head, body []byte) (wrote bool, err error) {
	var n int64
	if len(body) <= joinMost {
		l.out = append(append(l.out[:0], head...), body...)
		m, err := l.conn.Write(l.out)
		return m > 0, err
	}
	parts := net.Buffers{head, body}
	n, err = parts.WriteTo(l.conn)
	return n > 0, err
}

// mayContinue waits until the daemon agrees to take the body. It returns nil if the body
// must be sent, even if the daemon has not answered.
func (l *line) mayContinue(method *http.Request) (*http.Response, error) {
	conn := l.conn
	late := time.AfterFunc(expectMost, func() { _ = conn.SetReadDeadline(time.Unix(1, 0)) })
	defer late.Stop()
	_, err := l.in.Peek(1)
	var timeout net.Error
	if errors.As(err, &timeout) && timeout.Timeout() && !late.Stop() {
		return nil, conn.SetReadDeadline(time.Time{})
	}
	if err != nil {
		return nil, err
	}
	resp, err := http.ReadResponse(l.in, method)
	if err == nil && resp.StatusCode == http.StatusContinue {
		return nil, nil
	}
	return resp, err
}

// next reads the head of the answer, and skips interim answers.
func (l *line) next(method *http.Request) (*http.Response, error) {
	for {
		resp, err := http.ReadResponse(l.in, method)
		if err != nil || resp.StatusCode >= 200 {
			return resp, err
		}
	}
}

func (l *line) read(resp *http.Response) (*response, error) {
	defer resp.Body.Close()
	body, err := readAll(resp)
	return &response{resp.StatusCode, resp.Header, body}, err
}

func readAll(resp *http.Response) ([]byte, error) {
	if resp.ContentLength < 0 {
		return io.ReadAll(resp.Body)
	}
	body := make([]byte, resp.ContentLength)
	_, err := io.ReadFull(resp.Body, body)
	return body, err
}

// head writes the head of a request.
func (c *Client) head(a *ask) ([]byte, error) {
	query := a.rawQuery
	if !a.asKept {
		parameters := a.query
		parameters.add(ipc.OwnerParameter, c.Owner)
		query = parameters.encode()
	}
	b := make([]byte, 0, 512)
	b = append(append(append(b, a.method...), ' '), a.path...)
	if query != "" {
		b = append(append(b, '?'), query...)
	}
	b = append(b, " HTTP/1.1\r\nHost: ckptsidecar\r\n"...)
	var err error
	if a.contentType != "" {
		b, err = appendHeader(b, "Content-Type", a.contentType)
	}
	for name, values := range a.header {
		for _, v := range values {
			if err == nil {
				b, err = appendHeader(b, name, v)
			}
		}
	}
	if len(a.body) > 0 || a.method != http.MethodGet {
		b = append(strconv.AppendInt(append(b, "Content-Length: "...), int64(len(a.body)), 10), "\r\n"...)
	}
	if len(a.body) >= expectContinue {
		b = append(b, "Expect: 100-continue\r\n"...)
	}
	return append(b, "\r\n"...), err
}

func appendHeader(b []byte, name, value string) ([]byte, error) {
	if strings.ContainsFunc(value, func(r rune) bool { return r < ' ' && r != '\t' || r == 0x7f }) {
		return nil, ckpt.Errorf(ckpt.CodeInvalid, "the header %s contains a control character", name)
	}
	return append(append(append(append(b, name...), ": "...), value...), "\r\n"...), nil
}

// try makes a call once.
func (c *Client) try(ctx context.Context, a *ask) (*answer, error) {
	c.init()
	head, err := c.head(a)
	if err != nil {
		return nil, err
	}
	r, sent, err := c.line.ask(ctx, a, head)
	if err != nil {
		return nil, broken(err, a.write && sent)
	}
	if r.status/100 != 2 && !(a.conditional && r.status == http.StatusNotModified) {
		return nil, ipc.ReadProblem(r.status, r.header, r.body, a.write)
	}
	return &answer{r.header, r.body}, nil
}

// dial connects. If no daemon answers, it calls Absent, and may try once more.
func (c *Client) dial(ctx context.Context) (net.Conn, error) {
	conn, err := endpoint.Dial(ctx, c.Socket)
	if err != nil && c.Absent != nil && c.Absent(ctx, err) {
		return endpoint.Dial(ctx, c.Socket)
	}
	return conn, err
}

// transport dials the endpoint, whatever the host in the URL is. It never reads a proxy
// from the environment.
func (c *Client) transport() *http.Transport {
	return &http.Transport{
		DialContext:        func(ctx context.Context, _, _ string) (net.Conn, error) { return c.dial(ctx) },
		DisableCompression: true,
		WriteBufferSize:    bufferSize,
		ReadBufferSize:     bufferSize,
	}
}
