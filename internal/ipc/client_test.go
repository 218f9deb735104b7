package ipc

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	ckpt "github.com/ckptsidecar/ckptsidecar"
	"github.com/ckptsidecar/ckptsidecar/internal/ipc/endpoint"
)

var routine = ckpt.SaveRequest{Agent: "a", Kind: ckpt.KindRoutine, ContentType: "text/plain", State: []byte("state")}

func TestZeroClientFindsTheDaemon(t *testing.T) {
	w := newWorld(t)
	t.Setenv(endpoint.EnvSocket, w.path)
	var c Client
	defer c.Close()
	check(t, c.Health(t.Context()))
}

func TestNobodyThereIsEndpointsError(t *testing.T) {
	c := Client{Socket: filepath.Join(t.TempDir(), "none"), Retry: 50 * time.Millisecond}
	_, err := c.Save(t.Context(), &routine)
	var nobody *endpoint.DialError
	if !errors.As(err, &nobody) {
		t.Errorf("%T %v", err, err)
	}
	equal(t, "an export's too", errors.As(c.Export(t.Context(), "a", io.Discard), &nobody), true)
}

func TestClientChecksNamesItself(t *testing.T) {
	c := Client{Socket: "/nowhere"}
	ctx := t.Context()
	invalid := routine
	invalid.Agent = "../x"
	_, err := c.Save(ctx, &invalid)
	wantCode(t, err, ckpt.CodeInvalid)
	invalid = routine
	invalid.IdempotencyKey = "k"
	_, err = c.Save(ctx, &invalid)
	wantCode(t, err, ckpt.CodeInvalid)
	invalid = routine
	invalid.ID = "x"
	_, err = c.Save(ctx, &invalid)
	wantCode(t, err, ckpt.CodeInvalid)
	invalid = routine
	invalid.Metadata = []byte("{\"a\":\"\xff\"}")
	_, err = c.Save(ctx, &invalid)
	wantCode(t, err, ckpt.CodeInvalid)
	invalid = routine
	invalid.Program = &ckpt.Program{Source: "\xff"}
	_, err = c.Save(ctx, &invalid)
	wantCode(t, err, ckpt.CodeInvalid)
	_, err = c.Checkpoint(ctx, "../../metrics", true)
	wantCode(t, err, ckpt.CodeInvalid)
	_, err = c.Policy(ctx, "")
	wantCode(t, err, ckpt.CodeInvalid)
}

// daemon plays a daemon that does what it should not: script is called with
// each connection and request.
func daemon(t *testing.T, script func(n int64, c net.Conn, r *http.Request)) *Client {
	t.Helper()
	dir, err := os.MkdirTemp("", "ipc")
	check(t, err)
	t.Cleanup(func() { os.RemoveAll(dir) })
	path := filepath.Join(dir, "s")
	ln, err := net.Listen("unix", path)
	check(t, err)
	var n atomic.Int64
	serve := func(c net.Conn) {
		defer c.Close()
		for r := bufio.NewReader(c); ; {
			req, err := http.ReadRequest(r)
			if err != nil {
				return
			}
			io.Copy(io.Discard, req.Body)
			script(n.Add(1), c, req)
		}
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			go serve(c)
		}
	}()
	client := &Client{Socket: path}
	t.Cleanup(func() { client.Close(); ln.Close(); <-done })
	return client
}

func answerWith(c net.Conn, status int, header, body string) {
	fmt.Fprintf(c, "HTTP/1.1 %d X\r\nContent-Length: %d\r\n%s\r\n%s", status, len(body), header, body)
}

func TestABrokenConnectionLeavesAWriteUnknown(t *testing.T) {
	c := daemon(t, func(_ int64, c net.Conn, _ *http.Request) { c.Close() })
	ctx := t.Context()
	_, err := c.Save(ctx, &routine)
	wantCode(t, err, ckpt.CodeBusy)
	equal(t, "a write", ckpt.AsError(err).Outcome, ckpt.OutcomeUnknown)
	_, err = c.Delete(ctx, id1)
	equal(t, "a delete", ckpt.AsError(err).Outcome, ckpt.OutcomeUnknown)
	_, err = c.Status(ctx)
	wantCode(t, err, ckpt.CodeBusy)
	equal(t, "a read", ckpt.AsError(err).OutcomeOrDefault(), ckpt.OutcomeNotSaved)
}

func TestATornAnswerLeavesAWriteUnknown(t *testing.T) {
	c := daemon(t, func(_ int64, c net.Conn, _ *http.Request) {
		io.WriteString(c, "HTTP/1.1 201 Created\r\nContent-Length: 1000\r\n\r\n{\"id\":")
		c.Close()
	})
	_, err := c.Save(t.Context(), &routine)
	equal(t, "outcome", ckpt.AsError(err).Outcome, ckpt.OutcomeUnknown)
	_, err = c.Import(t.Context(), ckpt.ImportRequest{}, http.NoBody)
	equal(t, "an import", ckpt.AsError(err).Outcome, ckpt.OutcomeUnknown)
}

func TestAnAnswerThatMakesNoSense(t *testing.T) {
	for _, body := range []string{"", "[]", "<html>", `{"id":7}`} {
		c := daemon(t, func(_ int64, c net.Conn, _ *http.Request) { answerWith(c, 200, "", body) })
		_, err := c.Save(t.Context(), &routine)
		wantCode(t, err, ckpt.CodeInternal)
		equal(t, "outcome", ckpt.AsError(err).Outcome, ckpt.OutcomeUnknown)
	}
	for _, where := range []string{"5-2", "x", "0-99", "-1-2", "1-"} {
		c := daemon(t, func(_ int64, c net.Conn, _ *http.Request) {
			answerWith(c, 200, headerStateRange+": "+where+"\r\n", `{"state":1}`)
		})
		_, err := c.Checkpoint(t.Context(), id1, true)
		wantCode(t, err, ckpt.CodeInternal)
	}
}

func TestGivingUpIsTheContextsError(t *testing.T) {
	c := daemon(t, func(int64, net.Conn, *http.Request) {})
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	_, err := c.Save(ctx, &routine)
	equal(t, "context's", errors.Is(err, context.DeadlineExceeded), true)
	equal(t, "outcome", ckpt.AsError(err).Outcome, ckpt.OutcomeUnknown)
}

const busyProblem = `{"code":"busy","detail":"try again","outcome":"not_saved","retryable":true}`

// giveUp makes a save whose answer does not come in time.
func giveUp(t *testing.T, c *Client) error {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Millisecond)
	defer cancel()
	_, err := c.Save(ctx, &routine)
	equal(t, "given up", errors.Is(err, context.DeadlineExceeded), true)
	return err
}

// A write that was given up is done or refused before the next one is sent.
func TestNothingOvertakesAWriteThatWasGivenUp(t *testing.T) {
	second := make(chan struct{}, 9)
	c := daemon(t, func(n int64, c net.Conn, _ *http.Request) {
		if n > 1 {
			second <- struct{}{}
			answerWith(c, 201, "", fmt.Sprintf(`{"seq":%d}`, n))
			return
		}
		select {
		case <-second:
			t.Error("the next write was sent before the first was answered")
		case <-time.After(300 * time.Millisecond):
		}
		answerWith(c, 201, "", `{"seq":1}`)
	})
	equal(t, "sent and given up", ckpt.AsError(giveUp(t, c)).Outcome, ckpt.OutcomeUnknown)
	equal(t, "given up before it was sent", ckpt.AsError(giveUp(t, c)).OutcomeOrDefault(), ckpt.OutcomeNotSaved)
	for want := int64(2); want < 4; want++ {
		saved, err := c.Save(t.Context(), &routine)
		check(t, err)
		equal(t, "its own answer", saved.Seq, want)
	}
}

// An answer that is owed for too long is not waited for any more.
func TestAnAnswerThatNeverComes(t *testing.T) {
	c := daemon(t, func(n int64, c net.Conn, _ *http.Request) {
		if n > 1 {
			answerWith(c, 201, "", `{"seq":2}`)
		}
	})
	_ = giveUp(t, c)
	c.line.owed = c.line.owed.Add(-owedMost)
	_, err := c.Save(t.Context(), &routine)
	check(t, err)
}

// A daemon that dies owes no answer.
func TestAnAnswerOwedByADeadDaemon(t *testing.T) {
	c := daemon(t, func(n int64, c net.Conn, _ *http.Request) {
		if n == 1 {
			time.AfterFunc(100*time.Millisecond, func() { c.Close() })
			return
		}
		answerWith(c, 201, "", `{"seq":2}`)
	})
	_ = giveUp(t, c)
	_, err := c.Save(t.Context(), &routine)
	check(t, err)
}

func TestRetryUntilItIsDone(t *testing.T) {
	var mu sync.Mutex
	var ids []string
	c := daemon(t, func(n int64, c net.Conn, r *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		ids = append(ids, r.URL.Path)
		switch n {
		case 1:
			answerWith(c, 503, "Content-Type: "+problemType+"\r\n", busyProblem)
		case 2:
			c.Close()
		default:
			answerWith(c, 201, headerReplayed+": true\r\n", `{"id":"x"}`)
		}
	})
	c.Retry = 5 * time.Second
	saved, err := c.Save(t.Context(), &routine)
	check(t, err)
	equal(t, "replayed", saved.Replayed, true)
	mu.Lock()
	defer mu.Unlock()
	if len(ids) < 3 || ids[0] != ids[1] || ids[1] != ids[2] {
		t.Errorf("%v", ids)
	}
}

func TestRetryIsBoundedAndOnlyForWhatPasses(t *testing.T) {
	var calls atomic.Int64
	code := ckpt.CodeBusy
	c := daemon(t, func(_ int64, c net.Conn, _ *http.Request) {
		calls.Add(1)
		answerWith(c, kinds[code].status, "Content-Type: "+problemType+"\r\n", fmt.Sprintf(`{"code":%q,"detail":"no","outcome":"unknown"}`, code))
	})
	c.Retry = 200 * time.Millisecond
	began := time.Now()
	_, err := c.Save(t.Context(), &routine)
	wantCode(t, err, ckpt.CodeBusy)
	if took := time.Since(began); took > time.Second || calls.Load() < 2 {
		t.Errorf("%d calls in %v", calls.Load(), took)
	}
	calls.Store(0)
	_, err = c.Delete(t.Context(), id1) // of unknown outcome: a second one would answer not_found
	wantCode(t, err, ckpt.CodeBusy)
	equal(t, "deletes", calls.Load(), int64(1))
	for _, code = range []ckpt.Code{ckpt.CodeConflict, ckpt.CodeQuota, ckpt.CodeStorageFull, ckpt.CodeInternal} {
		calls.Store(0)
		_, err = c.Save(t.Context(), &routine)
		wantCode(t, err, code)
		equal(t, "calls", calls.Load(), int64(1))
	}
}

// The daemon closes idle connections; who then saves must not notice.
func TestAStaleConnectionIsReplaced(t *testing.T) {
	w := newWorld(t, limits(Limits{IdleTimeout: 20 * time.Millisecond}))
	for range 5 {
		_, err := w.client.Save(t.Context(), &routine)
		check(t, err)
		time.Sleep(60 * time.Millisecond)
	}
	equal(t, "saved", w.store.list[len(w.store.list)-1].Seq > 2, true)
}

func TestOneConnection(t *testing.T) {
	w := newWorld(t)
	w.store.onSave = func(ctx context.Context, _ *ckpt.SaveRequest) error { time.Sleep(time.Millisecond); return nil }
	done := make(chan error)
	for range 20 {
		go func() {
			_, err := w.client.Save(context.Background(), &routine)
			done <- err
		}()
	}
	for range 20 {
		check(t, <-done)
		if n := w.server.Stats().Connections; n > 1 {
			t.Fatalf("%d connections", n)
		}
	}
}

func TestAnExportDelaysNothing(t *testing.T) {
	w := newWorld(t)
	check(t, w.client.Export(t.Context(), "a", writerFunc(func(p []byte) (int, error) {
		_, err := w.client.Save(t.Context(), &routine)
		return len(p), err
	})))
}

type writerFunc func([]byte) (int, error)

func (f writerFunc) Write(p []byte) (int, error) { return f(p) }

func TestNoProxyFromTheEnvironment(t *testing.T) {
	t.Setenv("HTTP_PROXY", "http://127.0.0.1:1")
	t.Setenv("http_proxy", "http://127.0.0.1:1")
	w := newWorld(t)
	check(t, w.client.Health(t.Context()))
}

func BenchmarkPut(b *testing.B) {
	for _, size := range []int{2 << 10, 256 << 10} {
		b.Run(fmt.Sprintf("%dKiB", size>>10), func(b *testing.B) { benchmarkPut(b, size) })
	}
}

// discard acknowledges everything and keeps nothing.
type discard struct{ *fakeStore }

var discarded = &ckpt.Saved{Checkpoint: ckpt.Checkpoint{
	ID: id1, Agent: "a", Owner: "uid:1000", Run: "main", Seq: 17, Kind: ckpt.KindRoutine, Parent: id2, Size: 2048, StoredSize: 900,
	SHA256: "2cf24dba5fb0a30e26e83b2ac5b9e29e1b161e5c1fa7425e73043362938b9824", ContentType: "application/json",
	CreatedAt: ckpt.At(time.UnixMilli(1700000000000)), Metadata: []byte("{}"),
}, Pruned: []string{id1}}

func (discard) Save(context.Context, ckpt.Scope, *ckpt.SaveRequest) (*ckpt.Saved, error) {
	return discarded, nil
}

func benchmarkPut(b *testing.B, size int) {
	dir, err := os.MkdirTemp("", "ipc")
	check(b, err)
	defer os.RemoveAll(dir)
	path := filepath.Join(dir, "s")
	ln, err := endpoint.Listen(b.Context(), endpoint.Options{Path: path, SingleUser: true})
	check(b, err)
	s := NewServer(Options{Store: discard{newFakeStore()}})
	go s.Serve(context.Background(), ln)
	defer s.Shutdown(context.Background())
	c, err := net.Dial("unix", path)
	check(b, err)
	defer c.Close()
	// A client that costs nothing: what is measured is the server.
	request := fmt.Appendf(nil, "PUT %s/%s?kind=routine&run=r1 HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n", saves, id1, size)
	request = append(request, make([]byte, size)...)
	answer := make([]byte, 4096)
	b.ReportAllocs()
	b.SetBytes(int64(size))
	for b.Loop() {
		if _, err := c.Write(request); err != nil {
			b.Fatal(err)
		}
		if _, err := c.Read(answer); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkClientSave(b *testing.B) {
	dir, err := os.MkdirTemp("", "ipc")
	check(b, err)
	defer os.RemoveAll(dir)
	path := filepath.Join(dir, "s")
	ln, err := endpoint.Listen(b.Context(), endpoint.Options{Path: path, SingleUser: true})
	check(b, err)
	s := NewServer(Options{Store: discard{newFakeStore()}})
	go s.Serve(context.Background(), ln)
	defer s.Shutdown(context.Background())
	c := &Client{Socket: path}
	defer c.Close()
	r := routine
	r.State = make([]byte, 2048)
	b.ReportAllocs()
	for b.Loop() {
		if _, err := c.Save(b.Context(), &r); err != nil {
			b.Fatal(err)
		}
	}
}
