package server

import (
	"bufio"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"

	"github.com/ckptsidecar/ckptsidecar/internal/expect"
)

// begin sends the beginning of a request whose headers have this many bytes.
func begin(t *testing.T, w *world, size int) net.Conn {
	t.Helper()
	c := w.dial()
	_, err := io.WriteString(c, "GET /healthz HTTP/1.1\r\nHost: x\r\nCkpt-Metadata: "+strings.Repeat("m", size))
	expect.OK(t, err)
	return c
}

// TestUnfinishedHeadersAreBounded: each owner has a share of the memory for
// unfinished headers. An owner who has used up his share gets an error. Other
// owners and small requests are not affected. The share is released when the
// connection ends, and when the request is answered.
func TestUnfinishedHeadersAreBounded(t *testing.T) {
	w := newWorld(t, limits(Limits{MaxHeader: 64 << 10, HeadBytes: 1})) // a quarter of the minimum: 80 KiB
	w.as("uid:1", false)
	held := func() int64 {
		o, n := w.server.owners.of("uid:1"), int64(0)
		for o.heads.own.TryAcquire(headPart) {
			n += headPart
		}
		o.heads.own.Release(n)
		return w.server.limits.HeadBytes/4 - n
	}
	first := begin(t, w, 60<<10)
	waitFor(t, func() bool { return held() >= 64<<10 })
	second := begin(t, w, 60<<10)
	resp, err := http.ReadResponse(bufio.NewReader(second), nil)
	expect.OK(t, err)
	body, err := io.ReadAll(resp.Body)
	expect.OK(t, err)
	if resp.StatusCode != http.StatusTooManyRequests || !strings.Contains(string(body), `"code":"quota"`) || resp.Header.Get("Retry-After") != "1" || !resp.Close {
		t.Errorf("%d %v %s", resp.StatusCode, resp.Header, body)
	}
	expect.Equal(t, "a small request", w.send("GET", "/healthz", "").status, 200)
	other := w.as("uid:4711", false)
	if _, err := other.Version(t.Context()); err != nil {
		t.Errorf("another owner: %v", err)
	}

	_, err = io.WriteString(first, "\r\n\r\n")
	expect.OK(t, err)
	answers := bufio.NewReader(first)
	resp, err = http.ReadResponse(answers, nil)
	expect.OK(t, err)
	_, _ = io.Copy(io.Discard, resp.Body)
	expect.Equal(t, "the first, once it is whole", resp.StatusCode, 200)
	waitFor(t, func() bool { return held() == 0 })
	for range 3 { // further requests on the same connection are also counted, each by itself
		_, err = io.WriteString(first, "GET /healthz HTTP/1.1\r\nHost: x\r\nCkpt-Metadata: "+strings.Repeat("m", 60<<10))
		expect.OK(t, err)
		waitFor(t, func() bool { return held() >= 64<<10 })
		_, err = io.WriteString(first, "\r\n\r\n")
		expect.OK(t, err)
		resp, err = http.ReadResponse(answers, nil)
		expect.OK(t, err)
		_, _ = io.Copy(io.Discard, resp.Body)
		expect.Equal(t, "on the same connection", resp.StatusCode, 200)
		waitFor(t, func() bool { return held() == 0 })
	}
	_, err = io.WriteString(first, "GET /healthz HTTP/1.1\r\nHost: x\r\nCkpt-Metadata: "+strings.Repeat("m", 60<<10))
	expect.OK(t, err)
	waitFor(t, func() bool { return held() > 0 })
	first.Close()
	waitFor(t, func() bool { return held() == 0 })
}

// TestBodiesAreNoHeads: a body is not counted as a head, in whatever form it is
// sent.
func TestBodiesAreNoHeads(t *testing.T) {
	w := newWorld(t, limits(Limits{MaxHeader: 16 << 10}))
	big := strings.Repeat("x", 4<<20)
	for range 3 {
		expect.Equal(t, "a large body", w.send("POST", saves+"?kind=routine", big).status, 201)
	}
	resp := w.send("POST", "/v1/nothing", big) // no route reads this body
	expect.Equal(t, "no such path", resp.status, 404)
}
