package client

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	ckpt "github.com/ckptsidecar/ckptsidecar"
	"github.com/ckptsidecar/ckptsidecar/internal/ipc/client"
	"github.com/google/uuid"
)

// TestOnlyTheAgentCancelsAWrite: a write whose time is over is spooled, whoever set the limit. A
// write that the agent cancels is not.
func TestOnlyTheAgentCancelsAWrite(t *testing.T) {
	forever := func(ctx context.Context) error {
		<-ctx.Done()
		return ctx.Err()
	}
	write := func(ctx context.Context, deadline time.Duration) error {
		s := &spool{dir: filepath.Join(t.TempDir(), "spool"), most: 1 << 20, log: slog.Default}
		d := &delivery{spool: s, deadline: deadline, silence: silenceMost, failOpen: true, log: slog.Default}
		return d.Write(ctx, &client.Request{Agent: "a", Run: "main", Method: "POST", Path: "/v1/agents/a/runs/main/end"}, forever)
	}
	kept := func(t *testing.T, err error) {
		t.Helper()
		var kept *KeptError
		if !errors.As(err, &kept) {
			t.Errorf("it was not spooled: %v", err)
		}
	}
	synctest.Test(t, func(t *testing.T) {
		kept(t, write(t.Context(), time.Second))
		kept(t, write(t.Context(), -1)) // not even a daemon that says nothing holds it up
		ctx, cancel := within(t.Context(), endMost)
		defer cancel()
		kept(t, write(ctx, time.Hour))
		ctx, cancel = context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := write(ctx, time.Hour); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("the agent canceled it: %v", err)
		}
	})
}

// TestALongBacklogDoesNotStopAStart: the deadline of a start is not for all that waits. A start gives
// up when nothing was sent within it.
func TestALongBacklogDoesNotStopAStart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &spool{dir: filepath.Join(t.TempDir(), "spool"), most: 1 << 20, log: slog.Default}
		for range 10 {
			must(t, s.add(&client.Request{Agent: "a", Run: "main", Method: "POST", Path: "/v1/agents/a/runs/main/events",
				Header: map[string]string{"Idempotency-Key": uuid.NewString()}}))
		}
		sent, last := 0, 7
		s.send = func(ctx context.Context, _ *client.Request, _ ckpt.Time) error {
			if sent == last {
				<-ctx.Done()
				return ctx.Err()
			}
			select {
			case <-ctx.Done():
				return ctx.Err()
			case <-time.After(time.Second):
				sent++
				return nil
			}
		}
		claimed := false
		claim := func(context.Context) error { claimed = true; return nil }
		d := &delivery{spool: s, deadline: 2500 * time.Millisecond, silence: silenceMost, failOpen: true, log: slog.Default}
		if n, err := d.begin(t.Context(), "a", "main", claim); claimed || n != last || sent != last || !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("the daemon hangs: %d were sent, claimed %v, %v", sent, claimed, err)
		}
		last = 10
		if n, err := d.begin(t.Context(), "a", "main", claim); err != nil || n != 3 || !claimed || sent != last {
			t.Errorf("%d were sent, claimed %v, %v", sent, claimed, err)
		}
	})
}

// TestARunThatFailsHoldsNoOtherUp: a failure counts for a second, for its run only, and not if the
// agent itself has canceled the call.
func TestARunThatFailsHoldsNoOtherUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &spool{dir: filepath.Join(t.TempDir(), "spool"), most: 1 << 20, log: slog.Default}
		for i := range 3 {
			must(t, s.add(&client.Request{Agent: "a", Run: fmt.Sprint(i), Method: "POST", Path: fmt.Sprintf("/v1/agents/a/runs/%d/events", i),
				Header: map[string]string{"Idempotency-Key": uuid.NewString()}}))
		}
		var answer error
		silent := false
		s.send = func(ctx context.Context, _ *client.Request, _ ckpt.Time) error {
			if silent {
				<-ctx.Done()
				return ctx.Err()
			}
			return answer
		}
		clear := func(ctx context.Context, run int, want int) {
			t.Helper()
			if done, err := s.clearNow(ctx, "a", fmt.Sprint(run)); done != want || (err == nil) != (want == 1) {
				t.Errorf("run %d: %d were sent, want %d, %v", run, done, want, err)
			}
		}
		canceled, cancel := context.WithCancel(t.Context())
		cancel()
		clear(canceled, 2, 0)
		clearInTime := func(run int) {
			t.Helper()
			silent = true
			ctx, cancel := within(t.Context(), retryAfter/4)
			defer cancel()
			clear(ctx, run, 0)
			silent = false
		}
		clearInTime(1)
		answer = ckpt.Errorf(ckpt.CodeBusy, "busy")
		clear(t.Context(), 0, 0)
		answer = nil
		clear(t.Context(), 0, 0)
		clear(t.Context(), 1, 0)
		clear(t.Context(), 2, 1)
		time.Sleep(retryAfter)
		clear(t.Context(), 0, 1)
		clearInTime(1)
		if len(s.failed) != 1 {
			t.Errorf("%d failures are noted", len(s.failed))
		}
	})
}

// TestABusySpoolDrains: three agents save without a pause, each with a little patience, and the daemon is slower than they
// spool. While one client sends, the others wait for it; they do not spool meanwhile as fast as they can.
func TestABusySpoolDrains(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dir := filepath.Join(t.TempDir(), "spool")
		var away atomic.Bool
		away.Store(true)
		answers := func(ctx context.Context) error {
			if away.Load() {
				return &DialError{Err: syscall.ECONNREFUSED}
			}
			select {
			case <-ctx.Done():
				return ctx.Err()
			case <-time.After(30 * time.Millisecond):
				return nil
			}
		}
		ctx, stop := context.WithCancel(t.Context())
		var agents sync.WaitGroup
		stored := make([]int, 3)
		for i := range stored {
			agent := fmt.Sprint("agent", i)
			s := &spool{dir: dir, most: 1 << 30, log: slog.Default,
				send: func(ctx context.Context, _ *client.Request, _ ckpt.Time) error { return answers(ctx) }}
			d := &delivery{spool: s, deadline: 200 * time.Millisecond, silence: silenceMost, failOpen: true, log: slog.Default}
			agents.Go(func() {
				for ; ctx.Err() == nil; time.Sleep(5 * time.Millisecond) {
					err := d.Write(context.Background(), &client.Request{Agent: agent, Run: "main", Method: "POST", Path: "/v1/agents/" + agent + "/runs/main/events",
						Header: map[string]string{"Idempotency-Key": uuid.NewString()}}, answers)
					var kept *KeptError
					if err == nil {
						stored[i]++
					} else if !errors.As(err, &kept) {
						t.Errorf("%s: %v", agent, err)
						return
					}
				}
			})
		}
		time.Sleep(time.Second)
		away.Store(false)
		time.Sleep(time.Minute)
		stop()
		agents.Wait()
		files, err := os.ReadDir(dir)
		must(t, err)
		if least := slices.Min(stored); least < 100 || len(files) > 0 {
			t.Errorf("a minute after the daemon came back, %d writes wait, and it has stored %v of the new ones", len(files), stored)
		}
	})
}

// TestALateLockIsNoSilence: if another client has used up most of the time, the daemon is not to blame, and the next write tries again.
func TestALateLockIsNoSilence(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &spool{dir: filepath.Join(t.TempDir(), "spool"), most: 1 << 20, log: slog.Default}
		s.send = func(ctx context.Context, _ *client.Request, _ ckpt.Time) error {
			select {
			case <-ctx.Done():
				return ctx.Err()
			case <-time.After(100 * time.Millisecond):
				return nil
			}
		}
		must(t, s.add(&client.Request{Agent: "a", Run: "main", Method: "POST", Path: "/v1/agents/a/runs/main/events",
			Header: map[string]string{"Idempotency-Key": uuid.NewString()}}))
		other, err := takeLock(t.Context(), s.dir)
		must(t, err)
		time.AfterFunc(150*time.Millisecond, other.leave)
		clear := func(want int) {
			t.Helper()
			ctx, cancel := within(t.Context(), 200*time.Millisecond)
			defer cancel()
			if done, err := s.clearNow(ctx, "a", "main"); done != want || (err == nil) != (want == 1) {
				t.Errorf("%d were sent, want %d, %v", done, want, err)
			}
		}
		clear(0)
		clear(1)
	})
}

// TestFilesOfOthersAreListedOnceASecond: a run of which nothing waits is known as such, like an empty
// folder, until the next look or its next own file.
func TestFilesOfOthersAreListedOnceASecond(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dir := filepath.Join(t.TempDir(), "spool")
		open := func(socket string) *spool {
			return &spool{dir: dir, most: 1 << 20, socket: socket, log: slog.Default,
				send: func(context.Context, *client.Request, ckpt.Time) error { return nil }}
		}
		s := open("/mine")
		add := func(s *spool) {
			must(t, s.add(&client.Request{Agent: "a", Run: "main", Method: "POST", Path: "/v1/agents/a/runs/main/events",
				Header: map[string]string{"Idempotency-Key": uuid.NewString()}}))
		}
		clear := func(want int) {
			t.Helper()
			if done, err := s.clearNow(t.Context(), "a", "main"); done != want || err != nil {
				t.Errorf("%d were sent, want %d, %v", done, want, err)
			}
		}
		add(open("/other"))
		clear(0)
		add(open("/mine"))
		clear(0)
		time.Sleep(measureEvery)
		clear(1)
		clear(0)
		add(open("/mine"))
		s.lookAgain()
		clear(1)
		clear(0)
		add(s)
		clear(1)
	})
}

// TestWhyWritesWait: the daemon's log says nothing about what never came to the daemon.
func TestWhyWritesWait(t *testing.T) {
	for _, c := range []struct {
		err  error
		want string
	}{
		{errHeld, errHeld.Error()},
		{&fs.PathError{Op: "open", Path: "f", Err: syscall.EMFILE}, "open f: " + syscall.EMFILE.Error()},
		{context.Canceled, context.Canceled.Error()},
		{context.DeadlineExceeded, "they could not all be sent in time"},
		{ckpt.Wrap(ckpt.CodeBusy, context.DeadlineExceeded, "the database is busy"), "the database is busy"},
	} {
		if got := reason(fmt.Errorf("x: %w", c.err)); strings.TrimPrefix(got, "x: ") != c.want {
			t.Errorf("%v: %s", c.err, got)
		}
	}
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
