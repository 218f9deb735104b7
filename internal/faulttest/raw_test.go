//go:build unix

package faulttest

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	ckpt "github.com/ckptsidecar/ckptsidecar"
	"github.com/ckptsidecar/ckptsidecar/internal/ipc"
)

// rawReply is an answer to raw bytes.
type rawReply struct {
	*http.Response
	body []byte
}

// raw writes bytes to the daemon unchanged and reads every answer until the
// daemon closes the connection or has sent the given number of answers. half
// closes the writing end after the bytes.
func raw(socket, text string, answers int, half bool) ([]rawReply, error) {
	c, err := net.Dial("unix", socket)
	if err != nil {
		return nil, err
	}
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(20 * time.Second))
	wrote := make(chan error, 1)
	go func() {
		_, err := io.WriteString(c, text)
		if half && err == nil {
			err = c.(*net.UnixConn).CloseWrite()
		}
		wrote <- err
	}()
	replies, err := readReplies(bufio.NewReader(c), answers, strings.HasPrefix(text, "HEAD "))
	c.Close()
	<-wrote // a daemon that has replied does not need to read the rest
	return replies, err
}

func readReplies(r *bufio.Reader, most int, head bool) (replies []rawReply, err error) {
	request := &http.Request{Method: http.MethodGet}
	if head {
		request.Method = http.MethodHead
	}
	for len(replies) < most {
		resp, err := http.ReadResponse(r, request)
		var network net.Error
		switch {
		case errors.As(err, &network) && network.Timeout():
			return replies, errors.New("no answer and no end of the connection")
		case err != nil:
			return replies, nil // the connection has ended
		}
		body, err := io.ReadAll(resp.Body)
		if err != nil {
			return replies, fmt.Errorf("the answer %s is not whole: %w", resp.Status, err)
		}
		if resp.StatusCode != http.StatusContinue {
			replies = append(replies, rawReply{resp, body})
		}
	}
	return replies, nil
}

// problem checks what every refusal must be: 4xx, with a complete problem as
// its body.
func (r rawReply) problem() (p ipc.Problem, err error) {
	switch {
	case r.StatusCode < 400 || r.StatusCode >= 500:
		return p, fmt.Errorf("status %d: %s", r.StatusCode, tail(string(r.body), 300))
	case r.Header.Get("Content-Type") != "application/problem+json":
		return p, fmt.Errorf("status %d with Content-Type %q: %s", r.StatusCode, r.Header.Get("Content-Type"), tail(string(r.body), 300))
	case r.Request.Method == http.MethodHead:
		return p, nil
	}
	if err := json.Unmarshal(bytes.TrimSpace(r.body), &p); err != nil {
		return p, fmt.Errorf("status %d: %w: %s", r.StatusCode, err, r.body)
	}
	if p.Status != r.StatusCode || p.Code == "" || p.Detail == "" || p.Outcome != ckpt.OutcomeNotSaved {
		return p, fmt.Errorf("a problem with something missing: %s", r.body)
	}
	return p, nil
}

// mutate changes a few bytes. The result can be anything, even a valid request,
// but the answer must never blame the daemon.
func mutate(random *rand.Rand, text string) string {
	b := []byte(text)
	for range random.IntN(6) + 1 {
		switch at := random.IntN(len(b)); random.IntN(3) {
		case 0:
			b[at] = byte(random.Uint32())
		case 1:
			b = append(b[:at], b[min(len(b), at+random.IntN(8)):]...)
		default:
			b = append(b[:at], append([]byte{byte(random.Uint32())}, b[at:]...)...)
		}
		if len(b) == 0 {
			return "x"
		}
	}
	return string(b)
}

// pipelined checks that pipelined requests, including bad ones, are answered in
// order.
func pipelined(t *testing.T, d *Daemon) {
	t.Helper()
	var text strings.Builder
	for range 50 {
		text.WriteString(post("{") + request("GET", "/healthz", "", ""))
	}
	began := time.Now()
	replies, err := raw(d.Socket, text.String(), 100, false)
	if err != nil || len(replies) != 100 {
		t.Errorf("%d of 100 pipelined requests were answered: %v", len(replies), err)
	}
	for i, r := range replies {
		if want := []int{400, 200}[i%2]; r.StatusCode != want {
			t.Errorf("pipelined request %d: %s, not %d", i, r.Status, want)
		}
	}
	t.Logf("100 pipelined requests in %v", time.Since(began).Round(time.Millisecond))
}
