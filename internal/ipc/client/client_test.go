package client

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	ckpt "github.com/ckptsidecar/ckptsidecar"
	"github.com/ckptsidecar/ckptsidecar/internal/expect"
	"github.com/ckptsidecar/ckptsidecar/internal/ipc"
	"github.com/ckptsidecar/ckptsidecar/internal/ipc/endpoint"
	"github.com/ckptsidecar/ckptsidecar/internal/survey"
)

var routine = ckpt.SaveRequest{Agent: "a", Kind: ckpt.KindRoutine, ContentType: "text/plain", State: []byte("state")}

func TestNobodyThereIsEndpointsError(t *testing.T) {
	c := Client{Socket: filepath.Join(t.TempDir(), "none"), Retry: 50 * time.Millisecond}
	_, err := c.Save(t.Context(), &routine)
	var nobody *endpoint.DialError
	if !errors.As(err, &nobody) {
		t.Errorf("%T %v", err, err)
	}
	expect.Equal(t, "an export's too", errors.As(c.Export(t.Context(), "a", io.Discard), &nobody), true)
}

func TestClientChecksNamesItself(t *testing.T) {
	c := Client{Socket: "/nowhere"}
	ctx := t.Context()
	invalid := routine
	invalid.Agent = "../x"
	_, err := c.Save(ctx, &invalid)
	expect.Code(t, err, ckpt.CodeInvalid)
	invalid = routine
	invalid.IdempotencyKey = "k"
	_, err = c.Save(ctx, &invalid)
	expect.Code(t, err, ckpt.CodeInvalid)
	invalid = routine
	invalid.ID = "x"
	_, err = c.Save(ctx, &invalid)
	expect.Code(t, err, ckpt.CodeInvalid)
	invalid = routine
	invalid.Metadata = []byte("{\"a\":\"\xff\"}")
	_, err = c.Save(ctx, &invalid)
	expect.Code(t, err, ckpt.CodeInvalid)
	invalid = routine
	invalid.Program = &ckpt.Program{Source: "\xff"}
	_, err = c.Save(ctx, &invalid)
	expect.Code(t, err, ckpt.CodeInvalid)
	_, err = c.Checkpoint(ctx, "../../metrics", true)
	expect.Code(t, err, ckpt.CodeInvalid)
	_, err = c.Policy(ctx, "")
	expect.Code(t, err, ckpt.CodeInvalid)
}

// daemon simulates a misbehaving daemon: it calls script with each connection
// and request.
func daemon(t *testing.T, script func(n int64, c net.Conn, r *http.Request)) *Client {
	t.Helper()
	dir, err := os.MkdirTemp("", "client")
	expect.OK(t, err)
	t.Cleanup(func() { os.RemoveAll(dir) })
	path := filepath.Join(dir, "s")
	ln, err := net.Listen("unix", path)
	expect.OK(t, err)
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
	expect.Code(t, err, ckpt.CodeBusy)
	expect.Equal(t, "a write", ckpt.AsError(err).Outcome, ckpt.OutcomeUnknown)
	_, err = c.Delete(ctx, id1)
	expect.Equal(t, "a delete", ckpt.AsError(err).Outcome, ckpt.OutcomeUnknown)
	_, err = c.Status(ctx)
	expect.Code(t, err, ckpt.CodeBusy)
	expect.Equal(t, "a read", ckpt.AsError(err).OutcomeOrDefault(), ckpt.OutcomeNotSaved)
}

func TestATornAnswerLeavesAWriteUnknown(t *testing.T) {
	c := daemon(t, func(_ int64, c net.Conn, _ *http.Request) {
		io.WriteString(c, "HTTP/1.1 201 Created\r\nContent-Length: 1000\r\n\r\n{\"id\":")
		c.Close()
	})
	_, err := c.Save(t.Context(), &routine)
	expect.Equal(t, "outcome", ckpt.AsError(err).Outcome, ckpt.OutcomeUnknown)
	_, err = c.Import(t.Context(), ckpt.ImportRequest{}, http.NoBody)
	expect.Equal(t, "an import", ckpt.AsError(err).Outcome, ckpt.OutcomeUnknown)
}

func TestAnAnswerThatMakesNoSense(t *testing.T) {
	for _, body := range []string{"", "[]", "<html>", `{"id":7}`} {
		c := daemon(t, func(_ int64, c net.Conn, _ *http.Request) { answerWith(c, 200, "", body) })
		_, err := c.Save(t.Context(), &routine)
		expect.Code(t, err, ckpt.CodeInternal)
		expect.Equal(t, "outcome", ckpt.AsError(err).Outcome, ckpt.OutcomeUnknown)
	}
	for _, where := range []string{"5-2", "x", "0-99", "-1-2", "1-"} {
		c := daemon(t, func(_ int64, c net.Conn, _ *http.Request) {
			answerWith(c, 200, ipc.HeaderStateRange+": "+where+"\r\n", `{"state":1}`)
		})
		_, err := c.Checkpoint(t.Context(), id1, true)
		expect.Code(t, err, ckpt.CodeInternal)
	}
}

func TestGivingUpIsTheContextsError(t *testing.T) {
	c := daemon(t, func(int64, net.Conn, *http.Request) {})
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	_, err := c.Save(ctx, &routine)
	expect.Equal(t, "context's", errors.Is(err, context.DeadlineExceeded), true)
	expect.Equal(t, "outcome", ckpt.AsError(err).Outcome, ckpt.OutcomeUnknown)
}

const busyProblem = `{"code":"busy","detail":"try again","outcome":"not_saved","retryable":true}`

// giveUp makes a save whose answer does not arrive in time.
func giveUp(t *testing.T, c *Client) error {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Millisecond)
	defer cancel()
	_, err := c.Save(ctx, &routine)
	expect.Equal(t, "given up", errors.Is(err, context.DeadlineExceeded), true)
	return err
}

// TestNothingOvertakesAWriteThatWasGivenUp: a write that the client gave up is
// done or refused before the next one is sent.
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
	expect.Equal(t, "sent and given up", ckpt.AsError(giveUp(t, c)).Outcome, ckpt.OutcomeUnknown)
	expect.Equal(t, "given up before it was sent", ckpt.AsError(giveUp(t, c)).OutcomeOrDefault(), ckpt.OutcomeNotSaved)
	for want := int64(2); want < 4; want++ {
		saved, err := c.Save(t.Context(), &routine)
		expect.OK(t, err)
		expect.Equal(t, "its own answer", saved.Seq, want)
	}
}

// TestAnAnswerThatNeverComes: the client stops waiting for an answer that is
// overdue for too long.
func TestAnAnswerThatNeverComes(t *testing.T) {
	c := daemon(t, func(n int64, c net.Conn, _ *http.Request) {
		if n > 1 {
			answerWith(c, 201, "", `{"seq":2}`)
		}
	})
	_ = giveUp(t, c)
	c.line.owed = c.line.owed.Add(-owedMost)
	_, err := c.Save(t.Context(), &routine)
	expect.OK(t, err)
}

// TestAnAnswerOwedByADeadDaemon: the client does not wait for an answer of a
// daemon that died.
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
	expect.OK(t, err)
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
			answerWith(c, 503, "Content-Type: "+ipc.ProblemType+"\r\n", busyProblem)
		case 2:
			c.Close()
		default:
			answerWith(c, 201, ipc.HeaderReplayed+": true\r\n", `{"id":"x"}`)
		}
	})
	c.Retry = 5 * time.Second
	saved, err := c.Save(t.Context(), &routine)
	expect.OK(t, err)
	expect.Equal(t, "replayed", saved.Replayed, true)
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
		answerWith(c, ipc.NewProblem(ckpt.Errorf(code, "no")).Status, "Content-Type: "+ipc.ProblemType+"\r\n", fmt.Sprintf(`{"code":%q,"detail":"no","outcome":"unknown"}`, code))
	})
	c.Retry = 200 * time.Millisecond
	began := time.Now()
	_, err := c.Save(t.Context(), &routine)
	expect.Code(t, err, ckpt.CodeBusy)
	if took := time.Since(began); took > time.Minute || calls.Load() < 2 {
		t.Errorf("%d calls in %v", calls.Load(), took)
	}
	calls.Store(0)
	_, err = c.Delete(t.Context(), id1) // its outcome is unknown: a second delete would return not_found
	expect.Code(t, err, ckpt.CodeBusy)
	expect.Equal(t, "deletes", calls.Load(), int64(1))
	for _, code = range []ckpt.Code{ckpt.CodeConflict, ckpt.CodeQuota, ckpt.CodeStorageFull, ckpt.CodeInternal} {
		calls.Store(0)
		_, err = c.Save(t.Context(), &routine)
		expect.Code(t, err, code)
		expect.Equal(t, "calls", calls.Load(), int64(1))
	}
}

// TestClientFollowsADaemonThatDoesWhatItShouldNot: the daemon sends lines that
// are cut off, repeated, or not events.
func TestClientFollowsADaemonThatDoesWhatItShouldNot(t *testing.T) {
	const head = "HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n"
	var asked []string
	c := daemon(t, func(n int64, c net.Conn, r *http.Request) {
		asked = append(asked, r.URL.RawQuery)
		text := []string{
			head + `{"seq":1,"type":"a"}` + "\n" + `{"seq":2,"type":"b"`,
			head,
			"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\n{\"seq",
			head + `{"seq":1,"type":"a"}` + "\n" + `{"seq":2,"type":"b"}` + "\n",
			"HTTP/1.1 503 X\r\nContent-Type: " + ipc.ProblemType + "\r\nContent-Length: 47\r\n\r\n" + `{"code":"busy","detail":"x","retryable":true}  `,
			head + "{\"seq\":3,\"type\":\"" + strings.Repeat("c", 1<<20) + "\"}\nno JSON\n",
		}[n-1]
		io.WriteString(c, text)
		c.Close()
	})
	var got []int64
	err := c.Follow(t.Context(), ref, 0, func(e ckpt.Event) error { got = append(got, e.Seq); return nil })
	expect.Code(t, err, ckpt.CodeInternal)
	expect.Equal(t, "events", fmt.Sprint(got), "[1 2 3]")
	expect.Equal(t, "asked", strings.Join(asked, " "), "follow=true follow=true&after=1 follow=true&after=1 follow=true&after=1 follow=true&after=2 follow=true&after=2")
}

// TestChangesOutliveACallThatFails: who reads what has changed may find that the daemon is just going away.
func TestChangesOutliveACallThatFails(t *testing.T) {
	away, enough := &endpoint.DialError{Path: "s", Err: fs.ErrNotExist}, errors.New("enough")
	c := daemon(t, func(_ int64, c net.Conn, _ *http.Request) {
		io.WriteString(c, "HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n"+`{"what":"begin"}`+"\n")
		c.Close()
	})
	for _, test := range []struct {
		changes func(context.Context, func(survey.Change) error) error
		want    error
		calls   int
	}{{Operator{Client: c}.Changes, enough, 3}, {Operator{Client: c}.ChangesUntilAway, away, 1}} {
		calls := 0
		err := test.changes(t.Context(), func(survey.Change) error {
			calls++
			return []error{away, ckpt.Errorf(ckpt.CodeBusy, "it stops"), enough}[calls-1]
		})
		if err != test.want || calls != test.calls {
			t.Errorf("after %d calls: %v", calls, err)
		}
	}
}

// TestAWriteWithoutAKeyIsNeverSentTwice breaks a connection after the daemon
// has read a write and before it has answered. A write with a key may be sent
// again over another connection. A write without a key must not, because it may
// have been done.
func TestAWriteWithoutAKeyIsNeverSentTwice(t *testing.T) {
	var sent atomic.Int64 // writes
	c := daemon(t, func(_ int64, c net.Conn, r *http.Request) {
		if r.Method != "GET" && sent.Add(1) == 1 {
			c.Close()
			return
		}
		answerWith(c, 200, "Content-Type: application/json\r\n", `{"status":"ok"}`)
	})
	for name, write := range map[string]struct {
		do   func() error
		sent int64
	}{
		"delete": {func() error { _, err := c.Delete(t.Context(), id1); return err }, 1},
		"erase":  {func() error { _, err := c.Erase(t.Context(), "a"); return err }, 1},
		"prune":  {func() error { _, _, err := c.Prune(t.Context(), ckpt.PruneRequest{}, "key"); return err }, 2},
		"pin":    {func() error { _, err := c.Patch(t.Context(), id1, ckpt.CheckpointPatch{Pinned: new(bool)}); return err }, 2},
	} {
		expect.OK(t, c.Health(t.Context())) // makes a connection that is then idle
		sent.Store(0)
		err := write.do()
		expect.Equal(t, name+" was sent", sent.Load(), write.sent)
		if unknown := err != nil && ckpt.AsError(err).OutcomeOrDefault() == ckpt.OutcomeUnknown; unknown != (write.sent == 1) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

var ref = ckpt.RunRef{Agent: "a", Run: "r:1@x+y"}

const id1 = "01890a5d-ac96-774b-bcce-b302099a8057"

// TestAKeptRequestIsSentAsItIs: a request that was kept without an owner is about the agents of the
// user, whoever sends it.
func TestAKeptRequestIsSentAsItIs(t *testing.T) {
	queries := make(chan string, 2)
	c := daemon(t, func(_ int64, c net.Conn, r *http.Request) {
		queries <- r.URL.RawQuery
		answerWith(c, 200, "", "{}")
	})
	c.Owner = "uid:7"
	for _, query := range []string{"", "owner=uid%3A8"} {
		_, err := c.Send(t.Context(), &Request{Method: http.MethodPost, Path: "/v1/agents/a/runs/main/end", Query: query}, ckpt.Time{})
		expect.OK(t, err)
		if got := <-queries; got != query {
			t.Errorf("%q was sent as %q", query, got)
		}
	}
}
