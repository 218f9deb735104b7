package server

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/sync/semaphore"

	ckpt "github.com/ckptsidecar/ckptsidecar"
	"github.com/ckptsidecar/ckptsidecar/internal/expect"
	"github.com/ckptsidecar/ckptsidecar/internal/ipc"
	"github.com/ckptsidecar/ckptsidecar/internal/ipc/client"
)

func TestBodiesAtTheLimitAndOneAbove(t *testing.T) {
	t.Parallel()
	const most = 2 << 20
	w := newWorld(t, limits(Limits{MaxBody: most}))
	raw := func(n int) reply { return w.send("POST", saves+"?kind=routine", strings.Repeat("x", n)) }
	expect.Equal(t, "raw at the limit", raw(most).status, 201)
	expect.Equal(t, "raw above", raw(most+1).problem(t).Code, ckpt.CodeTooLarge)

	envelope := func(n int) reply {
		return w.send("POST", saves, `{"kind":"routine","state":"`+strings.Repeat("x", n-2)+`"}`, "Content-Type: application/json")
	}
	expect.Equal(t, "envelope at the limit", envelope(most).status, 201)
	expect.Equal(t, "envelope above", envelope(most+1).problem(t).Code, ckpt.CodeTooLarge)
	expect.Equal(t, "envelope far above", envelope(most+envelopeRoom).problem(t).Code, ckpt.CodeTooLarge)

	chunked := func(n int) reply {
		body := strings.Repeat("y", n)
		return w.raw("POST", "POST "+saves+"?kind=routine HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\nConnection: close\r\n\r\n"+
			fmt.Sprintf("%x\r\n%s\r\n0\r\n\r\n", n, body))
	}
	at := chunked(most)
	expect.Equal(t, "chunked at the limit", at.status, 201)
	if !strings.Contains(at.body, fmt.Sprintf(`"size":%d,`, most)) {
		t.Error(at.body)
	}
	expect.Equal(t, "chunked above", chunked(most+1).problem(t).Code, ckpt.CodeTooLarge)

	small := func(n int) reply {
		return w.send("POST", "/v1/prune", `{"dry_run":true}`+strings.Repeat(" ", n-16))
	}
	expect.Equal(t, "small body at the limit", small(maxSmallBody).status, 200)
	expect.Equal(t, "small body above", small(maxSmallBody+1).problem(t).Code, ckpt.CodeTooLarge)

	base := w.save("a", `{"x":"`+strings.Repeat("x", most-100)+`"}`)
	r := w.send("POST", saves+"?kind=routine&base="+base.ID, `{"y":"`+strings.Repeat("y", 200)+`"}`, "Content-Type: "+ipc.TypeMergePatch)
	expect.Equal(t, "patched above", r.problem(t).Code, ckpt.CodeTooLarge)
}

// TestTooLargeIsRefusedBeforeReading: a body whose announced size is too large is refused before a byte of it is
// read.
func TestTooLargeIsRefusedBeforeReading(t *testing.T) {
	w := newWorld(t)
	for _, target := range []string{saves + "?kind=routine", "/v1/import"} {
		c := w.dial()
		fmt.Fprintf(c, "POST %s HTTP/1.1\r\nHost: x\r\nContent-Length: 999999999999\r\n\r\n", target)
		expect.Equal(t, target, readReply(t, "POST", c).problem(t).Code, ckpt.CodeTooLarge)
	}
	_, err := w.client.Save(t.Context(), &ckpt.SaveRequest{Agent: "a", Kind: ckpt.KindRoutine, State: make([]byte, 64<<20+1)})
	expect.Code(t, err, ckpt.CodeTooLarge) // because of Expect: 100-continue
	saved, err := w.client.Save(t.Context(), &ckpt.SaveRequest{Agent: "a", Kind: ckpt.KindRoutine, State: make([]byte, 5<<20)})
	expect.OK(t, err)
	expect.Equal(t, "size", saved.Size, int64(5<<20))
}

func TestImportLimit(t *testing.T) {
	from := newWorld(t)
	from.save("a", `"state"`)
	var text strings.Builder
	expect.OK(t, from.client.Export(t.Context(), "a", &text))
	w := newWorld(t, limits(Limits{MaxImport: int64(text.Len())}))
	report, err := w.client.Import(t.Context(), ckpt.ImportRequest{Agent: "a"}, strings.NewReader(text.String()))
	expect.OK(t, err)
	expect.Equal(t, "imported", report.Imported, 1)
	_, err = w.client.Import(t.Context(), ckpt.ImportRequest{Agent: "b"}, strings.NewReader(text.String()+"\n"))
	expect.Code(t, err, ckpt.CodeTooLarge)
	_, err = w.client.Import(t.Context(), ckpt.ImportRequest{}, io.LimitReader(endless{}, int64(text.Len()+1)))
	expect.Code(t, err, ckpt.CodeTooLarge)
}

// TestLinesOfImportsAreBounded: an import takes the memory for its longest line, because the store
// holds a whole line, and a line never gets more than the owner's part of the memory.
func TestLinesOfImportsAreBounded(t *testing.T) {
	t.Parallel()
	w := newWorld(t, limits(Limits{MaxBody: 1 << 20, InFlightBytes: 1}))
	most := w.server.limits.InFlightBytes / 2
	begin := func(n int64) net.Conn {
		c := w.dial()
		fmt.Fprintf(c, "POST /v1/import HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n", most+3)
		_, err := io.Copy(c, io.MultiReader(strings.NewReader("{"), io.LimitReader(endless{}, n-1)))
		expect.OK(t, err)
		return c
	}
	free := func() bool {
		share := &w.server.owners.of(w.save("a", `1`).Owner).bytes
		if !share.tryAcquire(most - linePart) {
			return false
		}
		share.release(most - linePart)
		return true
	}
	expect.Equal(t, "memory is free before", free(), true)
	c := begin(3 * linePart)
	waitFor(t, func() bool { return !free() })
	c.Close()
	waitFor(t, free)
	expect.Equal(t, "a line above the limit", readReply(t, "POST", begin(most+3)).problem(t).Code, ckpt.CodeTooLarge)
	lines := "{" + strings.Repeat(strings.Repeat("x", linePart-2)+"\n", int(most/linePart)+2)
	r := w.send("POST", "/v1/import", lines)
	expect.Equal(t, "many lines are no long line", r.problem(t).Code, ckpt.CodeInvalid)
}

type endless struct{}

func (endless) Read(p []byte) (int, error) {
	for i := range p {
		p[i] = 'x'
	}
	return len(p), nil
}

func TestHeadersAboveTheLimit(t *testing.T) {
	w := newWorld(t, limits(Limits{MaxHeader: 4096}))
	r := w.send("GET", "/healthz", "", "X-Long: "+strings.Repeat("x", 10000))
	expect.Equal(t, "status", r.status, 431)
}

func TestOneByteASecondEnds(t *testing.T) {
	t.Parallel()
	w := newWorld(t, limits(Limits{HeaderTimeout: 200 * time.Millisecond, BodyGrace: 200 * time.Millisecond, MinRate: 1 << 24}))
	for _, head := range []string{"Content-Length: 100", "Content-Length: 20000000", "Transfer-Encoding: chunked"} {
		c := w.dial()
		fmt.Fprintf(c, "POST %s?kind=routine HTTP/1.1\r\nHost: x\r\n%s\r\n\r\nfff\r\n", saves, head)
		stop := drip(c)
		r := readReply(t, "POST", c)
		stop()
		p := r.problem(t)
		expect.Equal(t, head, p.Detail, "the body arrived too slowly")
	}
	slowHeader := w.dial()
	stop := drip(slowHeader)
	io.ReadAll(slowHeader) // it ends, or the deadline of the test's own connection fails the test
	stop()
	expect.Equal(t, "saved", len(w.stored("a")), 0)
	w.save("a", "1")
}

func drip(c net.Conn) (stop func()) {
	done := make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			select {
			case <-done:
				return
			case <-time.After(20 * time.Millisecond):
				c.Write([]byte("x"))
			}
		}
	})
	return func() { close(done); wg.Wait() }
}

func TestABodyThatEndsEarly(t *testing.T) {
	w := newWorld(t)
	c := w.dial()
	fmt.Fprintf(c, "PUT %s/%s?kind=routine HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\nonly this", saves, id1)
	expect.OK(t, c.(*net.UnixConn).CloseWrite())
	expect.Equal(t, "detail", readReply(t, "PUT", c).problem(t).Detail, "the body ended early")
	expect.Equal(t, "saved", len(w.stored("a")), 0)
}

// TestHalfClose: a client can close its writing half and wait for the answer.
func TestHalfClose(t *testing.T) {
	w := newWorld(t)
	w.store.onSave = func(ctx context.Context, _ *ckpt.SaveRequest) error { return pause(ctx) }
	w.store.onRead = pause
	for _, c := range []struct {
		method, request string
		status          int
	}{
		{"PUT", "PUT " + saves + "/" + id1 + "?kind=routine HTTP/1.1\r\nHost: x\r\nContent-Length: 1\r\n\r\nx", 201},
		{"GET", "GET " + saves + " HTTP/1.1\r\nHost: x\r\n\r\n", 200},
	} {
		conn := w.dial()
		io.WriteString(conn, c.request)
		expect.OK(t, conn.(*net.UnixConn).CloseWrite())
		expect.Equal(t, c.method, readReply(t, c.method, conn).status, c.status)
	}
}

// pause waits long enough for the server to notice the end of the client.
func pause(ctx context.Context) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(200 * time.Millisecond):
		return nil
	}
}

// TestHangUp: a write continues when its client hangs up, and a read ends soon.
func TestHangUp(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	began, ended := make(chan struct{}, 1), make(chan error, 1)
	w.store.onSave = func(ctx context.Context, _ *ckpt.SaveRequest) error {
		began <- struct{}{}
		asking, cancel := ckpt.Asking(ctx)
		defer cancel()
		<-asking.Done() // now the server knows that the client is gone
		ended <- ctx.Err()
		return ctx.Err()
	}
	w.store.onRead = func(ctx context.Context) error {
		began <- struct{}{}
		<-ctx.Done()
		ended <- ctx.Err()
		return ctx.Err()
	}
	c := w.dial()
	io.WriteString(c, "PUT "+saves+"/"+id1+"?kind=routine HTTP/1.1\r\nHost: x\r\nContent-Length: 1\r\n\r\nx")
	<-began
	c.Close()
	expect.Equal(t, "a write's end", <-ended, nil)
	c = w.dial()
	io.WriteString(c, "GET "+saves+" HTTP/1.1\r\nHost: x\r\n\r\n")
	<-began
	c.Close()
	expect.Equal(t, "a read's end", <-ended, context.Canceled)
}

// TestAWriteThatTakesTooLong: the server limits the time of a write. After that its outcome is unknown.
func TestAWriteThatTakesTooLong(t *testing.T) {
	w := newWorld(t, limits(Limits{WriteTimeout: 50 * time.Millisecond, ReadTimeout: 50 * time.Millisecond}))
	forever := func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() }
	w.store.onSave = func(ctx context.Context, _ *ckpt.SaveRequest) error { return forever(ctx) }
	w.store.onRead = forever
	p := w.send("PUT", saves+"/"+id1+"?kind=routine", "x").problem(t)
	expect.Equal(t, "code", p.Code, ckpt.CodeBusy)
	expect.Equal(t, "outcome", p.Outcome, ckpt.OutcomeUnknown)
	expect.Equal(t, "retryable", p.Retryable, true)
	p = w.send("GET", saves, "").problem(t)
	expect.Equal(t, "code", p.Code, ckpt.CodeBusy)
	expect.Equal(t, "outcome", p.Outcome, ckpt.OutcomeNotSaved)
}

func TestAnOwnersFloodHarmsHimAlone(t *testing.T) {
	w := newWorld(t, limits(Limits{OwnerRequests: 4, Wait: 100 * time.Millisecond}))
	release := make(chan struct{})
	w.store.onSave = func(_ context.Context, r *ckpt.SaveRequest) error {
		if r.Agent == "flood" {
			<-release
		}
		return nil
	}
	var wg sync.WaitGroup
	var mu sync.Mutex
	codes := make(map[ckpt.Code]int)
	flood := func(i int) {
		c := &client.Client{Socket: w.path}
		defer c.Close()
		_, err := c.Save(context.Background(), &ckpt.SaveRequest{Agent: "flood", Kind: ckpt.KindRecovery, State: []byte{byte(i)}})
		mu.Lock()
		codes[ckpt.CodeOf(err)]++
		mu.Unlock()
	}
	w.as("uid:1001", false)
	for i := range 12 {
		wg.Go(func() { flood(i) })
	}
	waitFor(t, func() bool { mu.Lock(); defer mu.Unlock(); return codes[ckpt.CodeBusy] == 8 })
	other := w.as("uid:1002", false)
	_, err := other.Save(t.Context(), &ckpt.SaveRequest{Agent: "calm", Kind: ckpt.KindRoutine, State: []byte("x")})
	expect.OK(t, err) // the flood still holds its memory; it releases it only after this
	close(release)
	wg.Wait()
	expect.Equal(t, "of the flood, done", codes[""], 4)
}

// waitFor waits until something has happened on the other side.
func waitFor(t *testing.T, done func() bool) {
	t.Helper()
	expect.Soon(t, "what is awaited of the other side", done)
}

func TestMemoryOfBodiesIsBounded(t *testing.T) {
	t.Parallel()
	const most = 1 << 20
	l := Limits{MaxBody: most, InFlightBytes: 1, Wait: 50 * time.Millisecond}
	w := newWorld(t, limits(l))
	share := int(w.server.limits.InFlightBytes / 2 / most)
	var open []net.Conn
	for range share { // each one holds the size that it has announced
		c := w.dial()
		fmt.Fprintf(c, "POST %s?kind=routine HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n", saves, most)
		open = append(open, c)
	}
	waitFor(t, func() bool { return w.server.Stats().InWork == int64(share) })
	r := w.send("POST", saves+"?kind=routine", strings.Repeat("x", most))
	expect.Equal(t, "one too many", r.problem(t).Code, ckpt.CodeBusy)
	expect.Equal(t, "Retry-After", r.header.Get("Retry-After"), "1")
	for _, c := range open {
		c.Close()
	}
	waitFor(t, func() bool { return w.server.Stats().InWork == 0 })
	expect.Equal(t, "then again", w.send("POST", saves+"?kind=routine", strings.Repeat("x", most)).status, 201)
}

// TestEveryWriteKeepsToTheRate: every route that writes keeps to the owner's rate, and no route that reads is
// limited. The test uses a separate owner for each route.
func TestEveryWriteKeepsToTheRate(t *testing.T) {
	w := newWorld(t, limits(Limits{OwnerWritesPerSecond: 1}))
	for i := range routes {
		rt := &routes[i]
		t.Run(rt.method+" "+rt.path, func(t *testing.T) {
			w.as(fmt.Sprint("uid:", 2000+i), false)
			id, err := newTestID()
			expect.OK(t, err)
			target := strings.NewReplacer("{agent}", "a", "{id}", id, "{a}", id, "{b}", id, "{run}", "r", "{key}", "k", "{n}", "1", "{token}", "00000000000000a1").Replace(rt.path)
			var last reply
			refused := 0
			for range 3 { // whatever the first ones return, they have used up the writes of this second
				last = w.send(rt.method, target, "")
				if last.status == 429 {
					refused++
				}
			}
			switch may := !rt.write || rt.urgent; {
			case may && refused > 0:
				t.Errorf("it was refused: %s", last.body)
			case !may && refused == 0:
				t.Errorf("it was never refused: %d %s", last.status, last.body)
			case !may && last.status == 429:
				expect.Equal(t, "code", last.problem(t).Code, ckpt.CodeQuota)
				expect.Equal(t, "Retry-After", last.header.Get("Retry-After"), "1")
			}
		})
	}
}

func TestConnections(t *testing.T) {
	w := newWorld(t, limits(Limits{OwnerConnections: 2}))
	w.dial()
	w.dial()
	waitFor(t, func() bool { return w.server.Stats().Connections == 2 })
	r := w.send("GET", "/healthz", "")
	expect.Equal(t, "code", r.problem(t).Code, ckpt.CodeQuota)
	expect.Equal(t, "closed", r.closed, true)
	waitFor(t, func() bool { return w.server.Stats().Connections == 2 })
	for range spareConnections {
		w.dial()
	}
	waitFor(t, func() bool { return w.server.Stats().Connections == 2+spareConnections })
	for range 5 {
		n, _ := io.Copy(io.Discard, w.dial())
		expect.Equal(t, "what one too many reads", n, 0)
	}
	expect.Equal(t, "connections", w.server.Stats().Connections, 2+spareConnections)
	w.as("uid:1002", false)
	expect.Equal(t, "somebody else", w.send("GET", "/healthz", "").status, 200)
}

func TestConnectionsOfAll(t *testing.T) {
	w := newWorld(t, limits(Limits{Connections: 1}))
	w.dial()
	waitFor(t, func() bool { return w.server.Stats().Connections == 1 })
	expect.Equal(t, "code", w.send("GET", "/healthz", "").problem(t).Code, ckpt.CodeBusy)
}

func TestBucket(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBucket(10)
		for range 10 {
			expect.Equal(t, "a full bucket", b.take(), 0)
		}
		expect.Equal(t, "an empty one", b.take().Round(time.Millisecond), 100*time.Millisecond)
		time.Sleep(100 * time.Millisecond)
		expect.Equal(t, "one token later", b.take(), 0)
		time.Sleep(time.Hour)
		for range 10 {
			expect.Equal(t, "no more than it holds", b.take(), 0)
		}
		if b.take() == 0 {
			t.Error("an hour's tokens were saved up")
		}
		free := newBucket(0)
		for range 1000 {
			expect.Equal(t, "no limit", free.take(), 0)
		}
	})
}

func TestLaneServesInOrderAndGivesUpInTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		all := semaphore.NewWeighted(2)
		greedy := share{own: semaphore.NewWeighted(1), all: all, full: "greedy"}
		modest := share{own: semaphore.NewWeighted(1), all: all, full: "modest"}
		expect.OK(t, greedy.acquire(t.Context(), 1, time.Second))
		began := time.Now()
		expect.Code(t, greedy.acquire(t.Context(), 1, time.Second), ckpt.CodeBusy)
		expect.Equal(t, "waited", time.Since(began), time.Second)
		expect.OK(t, modest.acquire(t.Context(), 1, time.Second))
		third := share{own: semaphore.NewWeighted(9), all: all}
		expect.Code(t, third.acquire(t.Context(), 1, time.Second), ckpt.CodeBusy)
		if !third.own.TryAcquire(9) {
			t.Error("who waited in vain keeps a part of his own share")
		}

		var order []int
		var wg sync.WaitGroup
		for i := range 3 {
			wg.Go(func() {
				expect.OK(t, greedy.acquire(t.Context(), 1, time.Minute))
				order = append(order, i)
				greedy.release(1)
			})
			synctest.Wait()
		}
		greedy.release(1)
		wg.Wait()
		expect.Equal(t, "order", fmt.Sprint(order), "[0 1 2]")
		modest.release(1)
		if !all.TryAcquire(2) {
			t.Error("places were lost")
		}
	})
}

func TestPacedReader(t *testing.T) {
	l := Limits{BodyGrace: time.Second, MinRate: 1000}
	expect.Equal(t, "patience", l.timeFor(500), 1500*time.Millisecond)
	r := pacedReader{body: errReader{}, conn: noConn{}, limits: &l, began: time.Now()}
	_, err := r.Read(nil)
	expect.Equal(t, "error", errors.Is(err, io.ErrClosedPipe), true)
}

type errReader struct{}

func (errReader) Read([]byte) (int, error) { return 0, io.ErrClosedPipe }
