package receiver

import (
	"bytes"
	"context"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	ckpt "github.com/ckptsidecar/ckptsidecar"
	"github.com/ckptsidecar/ckptsidecar/internal/expect"
)

// wantAllBack waits until the receiver holds no connection, and no memory of an owner or of all.
func (w *world) wantAllBack(after string) {
	w.t.Helper()
	r := w.receiver
	soon(w.t, after+": connections are still counted", func() bool {
		r.strangers.mu.Lock()
		defer r.strangers.mu.Unlock()
		return r.connections.Load() == 0 && len(r.strangers.conns) == 0
	})
	r.mu.Lock()
	defer r.mu.Unlock()
	for name, o := range r.owners {
		if n := o.connections.Load(); n != 0 {
			w.t.Errorf("%s: %s has %d connections", after, name, n)
		}
		if !o.sent.TryAcquire(sentBytes) || !o.bytes.TryAcquire(ownerBytes) {
			w.t.Fatalf("%s: memory of %s was not given back", after, name)
		}
		o.sent.Release(sentBytes)
		o.bytes.Release(ownerBytes)
	}
	if !r.all.TryAcquire(allBytes) {
		w.t.Fatalf("%s: the memory of all was not given back", after)
	}
	r.all.Release(allBytes)
}

// soon is expect.Soon for half a minute: a planted mistake must not look as if the test hung.
func soon(t *testing.T, what string, happened func() bool) {
	t.Helper()
	for range 3000 {
		if happened() {
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
	t.Fatal(what)
}

// TestEverythingIsGivenBack: whatever becomes of a request, its connection and its memory are given back.
func TestEverythingIsGivenBack(t *testing.T) {
	w := serve(t)
	token := []string{"Authorization", "Bearer " + goodToken}
	json, grpc := with(asJSON, token...), with(asGRPC, token...)
	zip := with(grpc, "Grpc-Encoding", "gzip")
	big := bytes.Repeat([]byte(" "), 5<<20)
	requests := map[string]struct {
		h2     bool
		path   string
		body   []byte
		header map[string]string
		fails  error
	}{
		"good":                      {false, pathHTTP, golden(t), json, nil},
		"good and large":            {false, pathHTTP, append(golden(t), big...), json, nil},
		"good, gzip":                {false, pathHTTP, packed(t, append(golden(t), big...)), with(json, "Content-Encoding", "gzip"), nil},
		"no token":                  {false, pathHTTP, golden(t), asJSON, nil},
		"a wrong token":             {false, pathHTTP, golden(t), with(asJSON, "Authorization", "Bearer x"), nil},
		"no path":                   {false, "/v1/metrics", nil, json, nil},
		"no JSON":                   {false, pathHTTP, []byte("{"), json, nil},
		"no gzip":                   {false, pathHTTP, []byte("{"), with(json, "Content-Encoding", "gzip"), nil},
		"gzip that ends early":      {false, pathHTTP, packed(t, golden(t))[:200], with(json, "Content-Encoding", "gzip"), nil},
		"an unknown encoding":       {false, pathHTTP, golden(t), with(json, "Content-Encoding", "br"), nil},
		"gzip that is too large":    {false, pathHTTP, packed(t, bytes.Repeat(big, 4)), with(json, "Content-Encoding", "gzip"), nil},
		"gRPC":                      {true, pathGRPC, framed(nil, false), grpc, nil},
		"gRPC, gzip":                {true, pathGRPC, framed(packed(t, nil), true), zip, nil},
		"gRPC, half a head":         {true, pathGRPC, []byte{0, 0}, grpc, nil},
		"gRPC, half a body":         {true, pathGRPC, framed(golden(t), false)[:500], grpc, nil},
		"gRPC, too large":           {true, pathGRPC, []byte{0, 0xff, 0xff, 0xff, 0xff}, grpc, nil},
		"gRPC, no protobuf":         {true, pathGRPC, framed([]byte("\xff\xff\xff"), false), grpc, nil},
		"gRPC, a wrong token":       {true, pathGRPC, framed(nil, false), with(asGRPC, "Authorization", "Bearer x"), nil},
		"gRPC, not gzip":            {true, pathGRPC, framed([]byte("x"), true), zip, nil},
		"a database that is denied": {false, pathHTTP, golden(t), json, ckpt.Errorf(ckpt.CodeDenied, "no")},
		"a quota":                   {false, pathHTTP, golden(t), json, ckpt.Errorf(ckpt.CodeQuota, "no")},
		"an internal error":         {true, pathGRPC, framed(emptySpans(3), false), grpc, ckpt.Errorf(ckpt.CodeInternal, "no")},
	}
	for name, r := range requests {
		if r.fails != nil {
			w.store.mu.Lock()
			w.store.fails = []error{r.fails}
			w.store.mu.Unlock()
		}
		client := w.client(false, r.h2)
		w.ask(client, r.path, r.body, r.header)
		client.CloseIdleConnections()
		w.wantAllBack(name)
	}
	for name, text := range map[string]string{
		"a body that ends early": "POST /v1/traces HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer good\r\nContent-Type: application/json\r\nContent-Length: 5000000\r\n\r\n{",
		"half a header":          "POST /v1/traces HTTP/1.1\r\nHost: loc",
		"no HTTP":                "\x16\x03\x01",
		"nothing":                "",
		"half a chunk":           "POST /v1/traces HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer good\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\nffff\r\n{",
	} {
		conn := w.dial()
		_, _ = io.WriteString(conn, text)
		_ = conn.Close()
		w.wantAllBack(name)
	}
}

func (w *world) dial() net.Conn {
	w.t.Helper()
	conn, err := new(net.Dialer).DialContext(w.t.Context(), "tcp", w.port)
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(func() { _ = conn.Close() })
	return conn
}

const preface = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\x00\x00\x00\x04\x00\x00\x00\x00\x00"

// TestStrangersDoNotShutThePort: a program without a token opens many connections and keeps them. Exporters with a token go on, over
// the connections that they have and over new ones, and the refusals are counted.
func TestStrangersDoNotShutThePort(t *testing.T) {
	const most = 100
	w := serve(t, func(o *Options) { o.Connections, o.Strangers = 8, most })
	good := with(asJSON, "Authorization", "Bearer "+goodToken)
	old := w.client(false, false)
	if got := w.ask(old, pathHTTP, golden(t), good); got.status != http.StatusOK {
		t.Fatalf("%d %s", got.status, got.body)
	}
	for i := range 1200 {
		if _, err := io.WriteString(w.dial(), preface); err != nil && i < most {
			t.Fatal(i, err)
		}
	}
	for range 20 {
		client := w.client(false, false)
		if got := w.ask(client, pathHTTP, golden(t), good); got.status != http.StatusOK {
			t.Fatalf("a new connection: %d %s", got.status, got.body)
		}
		client.CloseIdleConnections()
	}
	if got := w.ask(old, pathHTTP, golden(t), good); got.status != http.StatusOK {
		t.Errorf("a connection from before: %d %s", got.status, got.body)
	}
	w.receiver.strangers.mu.Lock()
	n := len(w.receiver.strangers.conns)
	w.receiver.strangers.mu.Unlock()
	if n > most || w.receiver.Closed() < 1200-most {
		t.Errorf("%d strangers are connected, %d were turned away", n, w.receiver.Closed())
	}
}

// TestATokenInTime: a connection that shows no token in time is closed, also one that shows wrong tokens. One that has shown a token
// stays.
func TestATokenInTime(t *testing.T) {
	w := serve(t)
	client := w.client(false, false)
	if got := w.ask(client, pathHTTP, golden(t), with(asJSON, "Authorization", "Bearer "+goodToken)); got.status != http.StatusOK {
		t.Fatal(got.status)
	}
	wrong := w.dial()
	_, _ = io.WriteString(wrong, "POST /v1/traces HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer x\r\nContent-Type: application/json\r\nContent-Length: 0\r\n\r\n")
	silent := w.dial()
	expect.Soon(t, "the connections were not accepted", func() bool {
		w.receiver.strangers.mu.Lock()
		defer w.receiver.strangers.mu.Unlock()
		return len(w.receiver.strangers.conns) == 2
	})
	if w.receiver.connections.Load() != 1 || w.receiver.owner("uid:777").connections.Load() != 1 {
		t.Error("the connection with a token does not count to its owner")
	}
	first := make([]byte, len("HTTP/1.1 401"))
	if _, err := io.ReadFull(wrong, first); err != nil || string(first) != "HTTP/1.1 401" {
		t.Fatalf("the answer to a wrong token: %q, %v", first, err)
	}
	w.receiver.strangers.mu.Lock()
	for _, one := range w.receiver.strangers.conns {
		one.timer.Reset(0) // the time is over
	}
	w.receiver.strangers.mu.Unlock()
	soon(t, "the connections without a token stay", func() bool { return w.receiver.Closed() == 2 })
	for _, conn := range []net.Conn{wrong, silent} {
		if _, err := io.ReadAll(conn); err != nil && !strings.Contains(err.Error(), "reset") {
			t.Error(err)
		}
	}
	if got := w.ask(client, pathHTTP, golden(t), with(asJSON, "Authorization", "Bearer "+goodToken)); got.status != http.StatusOK {
		t.Errorf("the connection with a token: %d", got.status)
	}
}

// TestConnectionsOfAnOwner: an owner has a limit, and gets a place again when another connection has ended. Its refusal takes no place.
func TestConnectionsOfAnOwner(t *testing.T) {
	needSocket(t)
	for _, socket := range []bool{false, true} {
		w := serve(t, func(o *Options) { o.Connections = 1 })
		good := with(asJSON, "Authorization", "Bearer "+goodToken)
		first, second := w.client(socket, false), w.client(socket, false)
		if got := w.ask(first, pathHTTP, golden(t), good); got.status != http.StatusOK {
			t.Fatal(got.status)
		}
		for range 5 {
			if w.accepted(second, golden(t), good) {
				t.Error("a second connection was accepted")
			}
			second.CloseIdleConnections()
		}
		if n := w.receiver.connections.Load(); n != 1 {
			t.Fatalf("%d connections are counted, one is open", n)
		}
		if w.receiver.Closed() < 5 {
			t.Errorf("%d refusals were counted", w.receiver.Closed())
		}
		first.CloseIdleConnections()
		w.wantAllBack("refused connections")
		if !w.accepted(second, golden(t), good) {
			t.Error("there is no place again")
		}
	}
}

// accepted sends spans and says whether they were taken.
func (w *world) accepted(client *http.Client, body []byte, header map[string]string) bool {
	w.t.Helper()
	r, err := http.NewRequestWithContext(context.Background(), http.MethodPost, "http://localhost"+pathHTTP, bytes.NewReader(body))
	if err != nil {
		w.t.Fatal(err)
	}
	for name, value := range header {
		r.Header.Set(name, value)
	}
	answer, err := client.Do(r)
	if err != nil {
		return false
	}
	_ = answer.Body.Close()
	return answer.StatusCode == http.StatusOK
}

// TestAPercentEncodedTokenIsTaken: the headers in the environment of exporters are encoded so, and Claude Code sends them as they stand.
func TestAPercentEncodedTokenIsTaken(t *testing.T) {
	w := serve(t, func(*Options) {})
	for _, value := range []string{"Bearer " + goodToken, "Bearer%20" + goodToken} {
		if got := w.ask(w.client(false, false), pathHTTP, golden(t), with(asJSON, "Authorization", value)); got.status != http.StatusOK {
			t.Errorf("%s: %d %s", value, got.status, got.body)
		}
	}
}
