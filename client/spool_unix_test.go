//go:build unix

package client_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	ckpt "github.com/ckptsidecar/ckptsidecar"
	"github.com/ckptsidecar/ckptsidecar/client"
	"github.com/ckptsidecar/ckptsidecar/internal/expect"
)

// TestASpoolThatOthersMayWriteToIsNotRead: what waits there can come from another user.
func TestASpoolThatOthersMayWriteToIsNotRead(t *testing.T) {
	t.Parallel()
	d := newDaemon(t)
	c := d.open(t, failOpen)
	_, err := c.Agent("a").Save(t.Context(), 1)
	must(t, err)
	dir := filepath.Join(d.dir, "spool")
	must(t, os.Chmod(dir, 0o777))
	d.start()
	c = d.open(t, failOpen, func(c *client.Client) { c.Deadline = time.Minute })
	for range 2 {
		r, err := c.Replay(t.Context())
		if err == nil || !strings.Contains(err.Error(), "others may write") || r.Sent != 0 {
			t.Errorf("%+v, %v", r, err)
		}
		if saved, err := c.Agent("a").Save(t.Context(), 2); err != nil || saved.Fate != client.Stored { // it does not hold the agent up
			t.Errorf("%+v, %v", saved, err)
		}
		// A link to the folder can be moved to another one.
		must(t, os.Chmod(dir, 0o700))
		must(t, os.Rename(dir, dir+"2"))
		must(t, os.Symlink(dir+"2", dir))
		if _, err := c.Replay(t.Context()); err == nil || !strings.Contains(err.Error(), "is not a folder") {
			t.Errorf("%v", err)
		}
		must(t, os.Remove(dir))
		must(t, os.Rename(dir+"2", dir))
		must(t, os.Chmod(dir, 0o777))
	}
	if ids := all(t, d.open(t), "a"); len(ids) != 2 {
		t.Errorf("%d saves are there", len(ids))
	}
}

// TestLinksInTheSpoolAreNotFollowed: a link is no file that a client has written.
func TestLinksInTheSpoolAreNotFollowed(t *testing.T) {
	t.Parallel()
	d := newDaemon(t)
	c := d.open(t, failOpen)
	_, err := c.Agent("a").Save(t.Context(), 1)
	must(t, err)
	files, _ := filepath.Glob(filepath.Join(d.dir, "spool", "*.ckpt"))
	elsewhere := filepath.Join(d.dir, "elsewhere")
	must(t, os.Rename(files[0], elsewhere))
	must(t, os.Symlink(elsewhere, files[0]))
	d.start()
	if r, err := c.Replay(t.Context()); err != nil || r.Sent != 0 || r.Rejected != 1 {
		t.Errorf("%+v, %v", r, err)
	}
}

// TestAStartWaitsForTheDaemonAlsoWithASpool: a run with waiting writes begins with the daemon that
// comes within the deadline, and goes on from what waited.
func TestAStartWaitsForTheDaemonAlsoWithASpool(t *testing.T) {
	t.Parallel()
	d := newDaemon(t)
	_, err := d.open(t, failOpen).Agent("a").Save(t.Context(), 7)
	must(t, err)
	away, err := net.Listen("unix", d.socket)
	must(t, err)
	type begun struct {
		run *client.Run
		err error
	}
	done := make(chan begun, 1)
	go func() {
		c := d.open(t, failOpen, func(c *client.Client) { c.Deadline = time.Minute })
		run, err := c.Agent("a").Start(context.Background(), client.RunOptions{})
		done <- begun{run, err}
	}()
	conn, err := away.Accept() // the first attempt fails
	must(t, err)
	must(t, errors.Join(away.Close(), conn.Close()))
	d.start()
	b := <-done
	must(t, b.err)
	var got int
	if found, err := b.run.Restore(&got); !b.run.Plan.Claimed || !found || err != nil || got != 7 {
		t.Errorf("the plan is %+v, the state %d, %v", b.run.Plan, got, err)
	}
	must(t, b.run.End(t.Context(), ckpt.EndRequest{Status: ckpt.RunCompleted}))
}

// TestAStartSeesWhatAnotherProcessHasSpooled: a client that has just looked into the folder looks
// again before it claims a run.
func TestAStartSeesWhatAnotherProcessHasSpooled(t *testing.T) {
	t.Parallel()
	d := newDaemon(t)
	d.start()
	first, second := d.open(t, failOpen), d.open(t, failOpen)
	_, err := first.Agent("a").Save(t.Context(), 1)
	must(t, err)
	d.stop()
	_, err = second.Agent("a").Save(t.Context(), 2)
	must(t, err)
	d.start()
	_, err = first.Agent("b").Save(t.Context(), 1)
	must(t, err)
	run, err := first.Agent("a").Start(t.Context(), client.RunOptions{})
	must(t, err)
	var got int
	if _, err := run.Restore(&got); err != nil || got != 2 {
		t.Errorf("the run goes on from %d, %v", got, err)
	}
	if waiting, refused := spooled(t, d); waiting != 0 || refused != 0 {
		t.Errorf("%d writes wait, %d were refused", waiting, refused)
	}
	must(t, run.End(t.Context(), ckpt.EndRequest{Status: ckpt.RunCompleted}))
}

// TestAStartSendsWhatOtherAgentsHaveSpooled: the process that spooled may never start again, so the next process of any
// agent of the user sends its writes.
func TestAStartSendsWhatOtherAgentsHaveSpooled(t *testing.T) {
	t.Parallel()
	d := newDaemon(t)
	away := d.open(t, failOpen)
	const agents = 120 // more than one slice
	for i := range agents {
		_, err := away.Agent(fmt.Sprintf("gone%d", i)).Save(t.Context(), i)
		must(t, err)
	}
	if waiting, refused, err := client.CountSpool(away.SpoolDir); waiting != agents || refused != 0 || err != nil {
		t.Fatalf("%d writes wait, %d were refused, %v", waiting, refused, err)
	}
	d.start()
	run, err := d.open(t, failOpen).Agent("next").Start(t.Context(), client.RunOptions{})
	must(t, err)
	expect.Soon(t, "nothing waits", func() bool { waiting, refused := spooled(t, d); return waiting == 0 && refused == 0 })
	must(t, run.End(t.Context(), ckpt.EndRequest{Status: ckpt.RunCompleted}))
	var got int
	if _, err := d.open(t).Agent(fmt.Sprintf("gone%d", agents-1)).Latest(t.Context(), &got); err != nil || got != agents-1 {
		t.Errorf("restored %d, %v", got, err)
	}
}

// spooled counts the files in the spool of a test.
func spooled(t *testing.T, d *daemon) (waiting, refused int) {
	t.Helper()
	for folder, n := range map[string]*int{"spool/*.ckpt": &waiting, "spool/rejected/*.ckpt": &refused} {
		files, err := filepath.Glob(filepath.Join(d.dir, folder))
		must(t, err)
		*n = len(files)
	}
	return waiting, refused
}

// TestARelativeSocketIsTheSameDaemon: a client in another folder finds what a client with a
// relative path has spooled.
func TestARelativeSocketIsTheSameDaemon(t *testing.T) {
	d := newDaemon(t)
	t.Chdir(d.dir)
	_, err := d.open(t, failOpen, func(c *client.Client) { c.Socket = "s" }).Agent("a").Save(t.Context(), 1)
	must(t, err)
	t.Chdir(t.TempDir())
	d.start()
	if r, err := d.open(t).Replay(t.Context()); err != nil || r.Sent != 1 || r.Other != 0 {
		t.Errorf("%+v, %v", r, err)
	}
}

// TestOnlyWritesAfterTheEndBeginARunAnew: what was spooled before the end is refused, and so is a writer that had claimed the run.
func TestOnlyWritesAfterTheEndBeginARunAnew(t *testing.T) {
	t.Parallel()
	d := started(t)
	run, err := d.open(t).Agent("a").Start(t.Context(), client.RunOptions{})
	must(t, err)
	must(t, run.End(t.Context(), ckpt.EndRequest{Status: ckpt.RunCompleted}))
	overSocket := &http.Client{Transport: &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "unix", d.socket)
	}}}
	defer overSocket.CloseIdleConnections()
	for _, test := range []struct {
		spooled time.Time
		body    string
		want    int
	}{
		{time.Now().Add(-time.Hour), `{"key":"k","name":"k"}`, http.StatusConflict},
		{time.Now().Add(time.Hour), `{"key":"k","name":"k","epoch":1}`, http.StatusConflict},
		{time.Now().Add(time.Hour), `{"key":"k","name":"k"}`, http.StatusCreated},
	} {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://x/v1/agents/a/runs/main/steps", strings.NewReader(test.body))
		must(t, err)
		r.Header.Set("Content-Type", ckpt.ContentTypeJSON)
		r.Header.Set("Ckpt-Spooled", ckpt.At(test.spooled).String())
		answer, err := overSocket.Do(r)
		must(t, err)
		_ = answer.Body.Close()
		if answer.StatusCode != test.want {
			t.Errorf("%s, spooled at %v: %d, want %d", test.body, test.spooled, answer.StatusCode, test.want)
		}
	}
}
