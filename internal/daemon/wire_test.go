package daemon

import (
	"bufio"
	"context"
	"io"
	"net"
	"net/http"
	"strings"

	"github.com/ckptsidecar/ckptsidecar/internal/ipc/endpoint"
)

func (r *running) dial() net.Conn {
	r.t.Helper()
	c, err := endpoint.Dial(context.Background(), r.config.Socket)
	if err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(func() { _ = c.Close() })
	return c
}

// get requests a path as curl does.
func (r *running) get(path string) string {
	r.t.Helper()
	c := http.Client{Transport: &http.Transport{
		DisableKeepAlives: true,
		DialContext:       func(context.Context, string, string) (net.Conn, error) { return r.dial(), nil },
	}}
	resp, err := c.Get("http://daemon" + path)
	if err != nil {
		r.t.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		r.t.Fatal(err)
	}
	return string(body)
}

// halfASave sends a save without its last byte. finish sends that byte, and
// then the channel gets the status of the answer.
func (r *running) halfASave() (finish func(), answer <-chan int) {
	r.t.Helper()
	c, status := r.dial(), make(chan int, 1)
	const head = "POST /v1/agents/slow/checkpoints?kind=routine HTTP/1.1\r\nHost: daemon\r\nContent-Type: text/plain\r\nContent-Length: 4\r\n\r\n"
	if _, err := io.WriteString(c, head+"abc"); err != nil {
		r.t.Fatal(err)
	}
	waitInWork(r)
	go func() {
		resp, err := http.ReadResponse(bufio.NewReader(c), nil)
		if err != nil {
			status <- 0
			return
		}
		resp.Body.Close()
		status <- resp.StatusCode
	}()
	return func() { _, _ = io.WriteString(c, "d") }, status
}

// waitInWork waits until the server has begun the half request. The metrics
// count it in addition to the request that reads them.
func waitInWork(r *running) {
	r.t.Helper()
	for range 1000 {
		if strings.Contains(r.get("/metrics"), "ckptsidecar_requests_in_work 2") {
			return
		}
	}
	r.t.Fatal("the request does not begin")
}
