package server

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
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	ckpt "github.com/ckptsidecar/ckptsidecar"
	"github.com/ckptsidecar/ckptsidecar/internal/expect"
	"github.com/ckptsidecar/ckptsidecar/internal/ipc/client"
	"github.com/ckptsidecar/ckptsidecar/internal/ipc/endpoint"
	"github.com/ckptsidecar/ckptsidecar/internal/jsontext"
)

const eventsPath = runPathText + "/events"

func (f *fakeRuns) add(n int, payload string) {
	events := make([]ckpt.NewEvent, n)
	for i := range events {
		events[i] = ckpt.NewEvent{Type: "t", Payload: ckpt.JSON(payload)}
	}
	_, _, _ = f.Append(context.Background(), ckpt.Scope{}, ckpt.RunRef{}, events, "")
}

// follow opens a stream over a separate connection and reads its head.
func (w *world) follow(query string) (*http.Response, *bufio.Reader, net.Conn) {
	w.t.Helper()
	c := w.dial()
	fmt.Fprintf(c, "GET %s?follow=true%s HTTP/1.1\r\nHost: x\r\n\r\n", eventsPath, query)
	resp, err := http.ReadResponse(bufio.NewReader(c), &http.Request{Method: "GET"})
	expect.OK(w.t, err)
	w.t.Cleanup(func() {
		c.Close() // first, or closing the body would read to an end that never comes
		resp.Body.Close()
	})
	return resp, bufio.NewReader(resp.Body), c
}

func TestFollowOnTheWire(t *testing.T) {
	w, runs := newRunWorld(t)
	resp, lines, _ := w.follow("") // the head arrives even without an event
	expect.Equal(t, "status", resp.StatusCode, 200)
	expect.Equal(t, "type", resp.Header.Get("Content-Type"), "application/x-ndjson")
	next := func(lines *bufio.Reader, want string) {
		t.Helper()
		line, err := lines.ReadString('\n')
		expect.OK(t, err)
		expect.Equal(t, "line", line, want+"\n")
	}
	runs.add(1, "{\n \"a\": \"<\\n>\" }")
	next(lines, `{"seq":1,"at":null,"type":"t","payload":{"a":"<\n>"}}`)
	runs.add(2, "2")
	next(lines, `{"seq":2,"at":null,"type":"t","payload":2}`)
	next(lines, `{"seq":3,"at":null,"type":"t","payload":2}`)
	_, lines, _ = w.follow("&after=2")
	next(lines, `{"seq":3,"at":null,"type":"t","payload":2}`)
	runs.add(1, "4")
	next(lines, `{"seq":4,"at":null,"type":"t","payload":4}`)

	expect.Equal(t, "HEAD", w.send("HEAD", eventsPath+"?follow=true", "").status, 200)
	runs.err = ckpt.Errorf(ckpt.CodeNotFound, "no")
	expect.Equal(t, "no such run", w.send("GET", eventsPath+"?follow=true", "").problem(t).Code, ckpt.CodeNotFound)
}

// TestFollowBreaksOffOnErrors: a damaged event breaks off the stream, so that
// no client takes it for complete.
func TestFollowBreaksOffOnErrors(t *testing.T) {
	w, runs := newRunWorld(t)
	runs.events = []ckpt.Event{{Seq: 1, Payload: ckpt.JSON("1")}}
	_, lines, _ := w.follow("")
	_, err := lines.ReadString('\n')
	expect.OK(t, err)
	runs.add(1, "{damaged")
	_, err = lines.ReadString('\n')
	expect.Equal(t, "end", err, io.ErrUnexpectedEOF)
	expect.Code(t, w.client.Follow(t.Context(), ref, 1, nil), ckpt.CodeInternal)
}

func TestClientFollowsUntilItIsTold(t *testing.T) {
	w, runs := newRunWorld(t)
	runs.add(3000, `"x"`)
	enough, last := errors.New("enough"), int64(0)
	err := w.client.Follow(t.Context(), ref, 10, func(e ckpt.Event) error {
		expect.Equal(t, "seq", e.Seq, last+1+10*b2i(last == 0))
		if last = e.Seq; last == 3000 {
			return enough
		}
		return nil
	})
	expect.Equal(t, "its error", err, enough)
	expect.Equal(t, "last", last, 3000)

	ctx, cancel := context.WithCancel(t.Context())
	err = w.client.Follow(ctx, ref, 2999, func(ckpt.Event) error { cancel(); return nil })
	expect.Equal(t, "the context's error", errors.Is(err, context.Canceled), true)

	err = w.client.Follow(t.Context(), ref, 2999, func(ckpt.Event) error { // the run is erased in the meantime
		runs.mu.Lock()
		runs.err = ckpt.Errorf(ckpt.CodeNotFound, "erased")
		runs.mu.Unlock()
		time.AfterFunc(20*time.Millisecond, func() { close(runs.changed) })
		return nil
	})
	expect.Code(t, err, ckpt.CodeNotFound)

	var nobody *endpoint.DialError
	err = (&client.Client{Socket: filepath.Join(t.TempDir(), "none")}).Follow(t.Context(), ref, 0, nil)
	expect.Equal(t, "nobody there", errors.As(err, &nobody), true)
}

func b2i(b bool) int64 {
	if b {
		return 1
	}
	return 0
}

// TestFollowOverRestarts: no event is lost or repeated while the daemon is
// stopped, killed and started again.
func TestFollowOverRestarts(t *testing.T) {
	t.Parallel()
	const all = 10_000
	runs := new(fakeRuns)
	dir, err := os.MkdirTemp("", "ipc")
	expect.OK(t, err)
	defer os.RemoveAll(dir)
	path := filepath.Join(dir, "s")
	start := func() (stop func(kill bool)) {
		ln, err := endpoint.Listen(t.Context(), endpoint.Options{Path: path, SingleUser: true})
		expect.OK(t, err)
		s, done := NewServer(Options{Store: runs.in(StoreOf(nowhere{}))}), make(chan struct{})
		go func() { defer close(done); _ = s.Serve(context.Background(), ln) }()
		return func(kill bool) {
			if kill {
				_ = s.http.Close()
			}
			_ = s.Shutdown(context.Background())
			<-done
		}
	}
	var got atomic.Int64
	enough := errors.New("enough")
	var wg sync.WaitGroup
	for range 3 {
		wg.Go(func() {
			c, last := client.Client{Socket: path, Retry: 10 * time.Second}, int64(0)
			defer c.Close()
			err := c.Follow(context.Background(), ref, 0, func(e ckpt.Event) error {
				if e.Seq != last+1 {
					t.Errorf("event %d after %d", e.Seq, last)
				}
				last = e.Seq
				got.Add(1)
				if last == all {
					return enough
				}
				return nil
			})
			expect.Equal(t, "the end", err, enough)
		})
	}
	stop := start()
	for i := range 10 {
		for range 100 {
			runs.add(all/1000, `{"x":"`+strings.Repeat("y", 100)+`"}`)
		}
		waitFor(t, func() bool { return got.Load() >= int64(i*all/10) }) // at different moments of their reading
		stop(i%2 == 0)
		stop = start()
	}
	wg.Wait()
	stop(false)
	expect.Equal(t, "events", got.Load(), 3*all)
}

func TestFollowersHaveAShareOfTheirOwn(t *testing.T) {
	t.Parallel()
	w, runs := newRunWorld(t, limits(Limits{OwnerFollowers: 2, OwnerRequests: 1, Wait: 50 * time.Millisecond}))
	_, lines, one := w.follow("")
	w.follow("")
	third, _, _ := w.follow("")
	if third.StatusCode != http.StatusTooManyRequests || third.Header.Get("Retry-After") != "1" {
		t.Fatalf("the third is answered with %d, Retry-After %q", third.StatusCode, third.Header.Get("Retry-After"))
	}
	w.save("a", "1") // followers do not count as requests
	runs.add(1, "1")
	_, err := lines.ReadString('\n')
	expect.OK(t, err)
	err = w.as("uid:7", false).Follow(t.Context(), ref, 0, func(ckpt.Event) error { return io.EOF })
	expect.Equal(t, "another's", err, io.EOF)
	w.mu.Lock()
	w.peer = nil
	w.mu.Unlock()

	expect.OK(t, one.Close()) // its place is released even if no event comes
	waitFor(t, func() bool {
		c := w.dial()
		defer c.Close()
		fmt.Fprintf(c, "HEAD %s?follow=true HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n", eventsPath)
		return readReply(t, "HEAD", c).status == 200
	})
}

// TestASlowFollowerIsCutOff: a follower that does not read is cut off, and
// delays nobody.
func TestASlowFollowerIsCutOff(t *testing.T) {
	t.Parallel()
	w, runs := newRunWorld(t, limits(Limits{BodyGrace: 300 * time.Millisecond, MinRate: 1 << 30, OwnerFollowers: 1}))
	_, slow, _ := w.follow("")
	runs.add(200, `"`+strings.Repeat("x", 100_000)+`"`)
	waitFor(t, func() bool { return w.server.Stats().InWork == 0 })
	whole := 0
	for {
		line, err := slow.ReadString('\n')
		if err != nil {
			expect.Equal(t, "the end", err, io.ErrUnexpectedEOF)
			break
		}
		whole++
		expect.OK(t, jsontext.Check([]byte(line)))
	}
	if whole == 200 {
		t.Error("it was not cut off")
	}
	last := int64(whole)
	err := w.client.Follow(t.Context(), ref, last, func(e ckpt.Event) error { // it continues where it was
		if last++; e.Seq != last {
			t.Errorf("%d after %d", e.Seq, last-1)
		}
		if last == 200 {
			return io.EOF
		}
		return nil
	})
	expect.Equal(t, "the end", err, io.EOF)
}

// TestShutdownDoesNotWaitForFollowers: when the server stops, it disconnects
// followers at once. Idle followers get a regular end. Followers that do not
// read do not.
func TestShutdownDoesNotWaitForFollowers(t *testing.T) {
	t.Parallel()
	w, runs := newRunWorld(t)
	runs.add(1, "1")
	_, idle, _ := w.follow("")
	_, err := idle.ReadString('\n')
	expect.OK(t, err)
	_, stuck, _ := w.follow("&after=1")
	inStore := make(chan struct{})
	runs.onRead = func(ctx context.Context) error {
		if _, _, got := runs.called(); got.([2]int64)[0] != 7 {
			return nil
		}
		close(inStore)
		<-ctx.Done()
		return ctx.Err()
	}
	reading := w.dial() // a follower whose first read is not done yet
	fmt.Fprintf(reading, "GET %s?follow=true&after=7 HTTP/1.1\r\nHost: x\r\n\r\n", eventsPath)
	<-inStore
	const events, size = 100, 100_000 // more than a socket holds
	runs.add(events, `"`+strings.Repeat("x", size)+`"`)
	_, err = io.CopyN(io.Discard, idle, events*size)
	expect.OK(t, err) // the other follower was served as well, and reads nothing
	go io.Copy(io.Discard, idle)
	began := time.Now()
	expect.OK(t, w.server.Shutdown(t.Context()))
	if took := time.Since(began); took > 15*time.Second {
		t.Errorf("the end took %v", took)
	}
	_, err = io.Copy(io.Discard, stuck)
	expect.Equal(t, "the stuck one's end", err, io.ErrUnexpectedEOF)
	expect.Equal(t, "the reading one's end", readReply(t, "GET", reading).problem(t).Code, ckpt.CodeBusy)
}

func TestIdleFollowersEndWell(t *testing.T) {
	w, runs := newRunWorld(t)
	runs.add(1, "1")
	_, lines, _ := w.follow("")
	_, err := lines.ReadString('\n')
	expect.OK(t, err)
	expect.OK(t, w.server.Shutdown(t.Context()))
	_, err = lines.ReadString('\n')
	expect.Equal(t, "the end", err, io.EOF)
}

// TestNothingStaysOfAFollower disconnects followers and waits until the garbage
// collector has freed their connections. A hook that stayed in the server would
// keep them as long as the server runs.
func TestNothingStaysOfAFollower(t *testing.T) {
	t.Parallel()
	const followers = 5
	var collected atomic.Int64
	peerOf := func(c net.Conn) (endpoint.Peer, bool) {
		runtime.SetFinalizer(c, func(net.Conn) { collected.Add(1) })
		return endpoint.PeerOf(c)
	}
	w, runs := newRunWorld(t, func(o *Options) { o.peerOf = peerOf })
	runs.add(1, "1")
	for range followers {
		_, lines, c := w.follow("")
		_, err := lines.ReadString('\n')
		expect.OK(t, err)
		expect.OK(t, c.Close())
	}
	waitFor(t, func() bool {
		runs.add(1, "2") // the server notices when it writes
		runtime.GC()
		return collected.Load() == followers
	})
}
