package server

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"
	"golang.org/x/sync/semaphore"

	"github.com/google/uuid"

	ckpt "github.com/ckptsidecar/ckptsidecar"
	"github.com/ckptsidecar/ckptsidecar/internal/expect"
	"github.com/ckptsidecar/ckptsidecar/internal/ipc"
	"github.com/ckptsidecar/ckptsidecar/internal/ipc/client"
	"github.com/ckptsidecar/ckptsidecar/internal/ipc/endpoint"
	"github.com/ckptsidecar/ckptsidecar/internal/jsontext"
	"github.com/ckptsidecar/ckptsidecar/internal/testenv"
)

// checked looks for goroutines that are left after all tests have run.
type checked struct{ m *testing.M }

func (c checked) Run() int { return testenv.Run(c.m.Run) }

func TestMain(m *testing.M) { goleak.VerifyTestMain(checked{m}) }

// world is a server on a real socket over a real store.
type world struct {
	t      *testing.T
	store  *scripted
	server *Server
	client *client.Client
	path   string
	log    *syncBuffer
	cut    bool // Serve is expected to end before its requests end

	mu   sync.Mutex
	peer *endpoint.Peer // the identity of the next connection; nil means what the kernel says
}

type syncBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (b *syncBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.Write(p)
}

func (b *syncBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.String()
}

func newWorld(t *testing.T, change ...func(*Options)) *world {
	t.Helper()
	w := &world{t: t, store: &scripted{Store: openStore(t)}, log: new(syncBuffer)}
	o := Options{Store: StoreOf(w.store), Log: slog.New(slog.NewTextHandler(w.log, &slog.HandlerOptions{Level: slog.LevelDebug})), Version: "v-test", peerOf: w.peerOf}
	for _, f := range change {
		f(&o)
	}
	w.server = NewServer(o)
	dir, err := os.MkdirTemp("", "ipc") // t.TempDir is too long for the path of a socket
	expect.OK(t, err)
	t.Cleanup(func() { os.RemoveAll(dir) })
	w.path = filepath.Join(dir, "s.sock")
	ln, err := endpoint.Listen(t.Context(), endpoint.Options{Path: w.path, SingleUser: true})
	expect.OK(t, err)
	done := make(chan error, 1)
	go func() { done <- w.server.Serve(context.Background(), ln) }()
	w.client = &client.Client{Socket: w.path}
	t.Cleanup(func() {
		w.client.Close()
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
		defer cancel()
		w.server.Shutdown(ctx)
		if err := <-done; (err != nil) != w.cut {
			t.Errorf("Serve: %v", err)
		}
		if !w.cut {
			w.nothingLeft()
		}
	})
	return w
}

// nothingLeft fails the test if requests and connections did not release
// everything that they took.
func (w *world) nothingLeft() {
	w.t.Helper()
	s := w.server
	taken := func(what string, share *semaphore.Weighted, size int64) {
		if !share.TryAcquire(size) {
			w.t.Errorf("%s was not given back", what)
			return
		}
		share.Release(size)
	}
	l, half := s.limits, func(n int64) int64 { return max(1, n/2) }
	s.owners.mu.Lock()
	defer s.owners.mu.Unlock()
	for name, o := range s.owners.list {
		taken("a request's place of "+name, o.requests.own, int64(l.OwnerRequests))
		taken("memory of bodies of "+name, o.bytes.own, half(l.InFlightBytes))
		taken("a state of "+name, o.states.own, half(int64(l.StateReads)))
		taken("heavy work of "+name, o.heavy.own, half(int64(l.HeavyJobs)))
		taken("a follower's place of "+name, o.followers.own, int64(l.OwnerFollowers))
		if n := o.connections.Load(); n != 0 {
			w.t.Errorf("%s has %d connections", name, n)
		}
	}
	taken("memory of bodies", s.owners.bytes, l.InFlightBytes)
	taken("a state", s.owners.states, int64(l.StateReads))
	taken("heavy work", s.owners.heavy, int64(l.HeavyJobs))
	if st := s.Stats(); st.Connections != 0 || st.InWork != 0 {
		w.t.Errorf("%d connections and %d requests are left", st.Connections, st.InWork)
	}
}

func limits(l Limits) func(*Options) { return func(o *Options) { o.Limits = l } }

func (w *world) peerOf(c net.Conn) (endpoint.Peer, bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.peer != nil {
		return *w.peer, true
	}
	return endpoint.PeerOf(c)
}

// as gives the following connections the identity of an owner.
func (w *world) as(owner string, admin bool) *client.Client {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.peer = &endpoint.Peer{Owner: owner, PID: 7, Admin: admin}
	c := &client.Client{Socket: w.path}
	w.t.Cleanup(c.Close)
	return c
}

// reply is an answer that was read to its end.
type reply struct {
	status int
	header http.Header
	body   string
	closed bool // the server announced that it closes the connection
}

func (r reply) problem(t *testing.T) *ipc.Problem {
	t.Helper()
	var p ipc.Problem
	if r.header.Get("Content-Type") != ipc.ProblemType {
		t.Fatalf("not a problem: %d %q %s", r.status, r.header.Get("Content-Type"), r.body)
	}
	expect.OK(t, jsontext.Decode([]byte(strings.TrimSpace(r.body)), &p))
	return &p
}

// send makes one request over a separate connection. headers are "Name: value".
func (w *world) send(method, target, body string, headers ...string) reply {
	w.t.Helper()
	text := method + " " + target + " HTTP/1.1\r\nHost: x\r\n"
	for _, h := range headers {
		text += h + "\r\n"
	}
	if body != "" || method == "POST" || method == "PUT" {
		text += "Content-Length: " + itoa(len(body)) + "\r\n"
	}
	return w.raw(method, text+"Connection: close\r\n\r\n"+body)
}

func itoa(n int) string { return string(appendNumber(nil, "", int64(n))) }

func (w *world) dial() net.Conn {
	w.t.Helper()
	c, err := endpoint.Dial(context.Background(), w.path)
	expect.OK(w.t, err)
	w.t.Cleanup(func() { c.Close() })
	expect.OK(w.t, c.SetDeadline(time.Now().Add(5*time.Minute)))
	return c
}

func (w *world) raw(method, text string) reply {
	w.t.Helper()
	c := w.dial()
	defer c.Close()
	go io.WriteString(c, text)
	return readReply(w.t, method, c)
}

func readReply(t *testing.T, method string, c net.Conn) reply {
	t.Helper()
	resp, err := http.ReadResponse(bufio.NewReader(c), &http.Request{Method: method})
	expect.OK(t, err)
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	expect.OK(t, err)
	return reply{resp.StatusCode, resp.Header, string(body), resp.Close}
}

func (w *world) save(agent, state string) *ckpt.Saved {
	w.t.Helper()
	saved, err := w.client.Save(w.t.Context(), &ckpt.SaveRequest{Agent: agent, Kind: ckpt.KindRoutine, ContentType: ckpt.ContentTypeJSON, State: []byte(state)})
	expect.OK(w.t, err)
	return saved
}

// newTestID returns an id in the form that clients make.
func newTestID() (string, error) {
	id, err := uuid.NewV7()
	return id.String(), err
}

// sameJSON compares two texts as values.
func sameJSON(t testing.TB, got, want string) {
	t.Helper()
	var a, b any
	expect.OK(t, json.Unmarshal([]byte(got), &a))
	expect.OK(t, json.Unmarshal([]byte(want), &b))
	x, _ := json.Marshal(a)
	y, _ := json.Marshal(b)
	if !bytes.Equal(x, y) {
		t.Errorf("got  %s\nwant %s", x, y)
	}
}

const (
	id1 = "01890a5d-ac96-774b-bcce-b302099a8057"
	id2 = "01890a5d-ac96-774b-bcce-b302099a8058"
)
