package server

import (
	"fmt"
	"net"
	"net/http"
	"testing"
	"time"

	ckpt "github.com/ckptsidecar/ckptsidecar"
	"github.com/ckptsidecar/ckptsidecar/internal/expect"
)

// TestWaitsEnd: a wait for an answer ends when its time is over, when the
// client hangs up, and when the server stops. In the meantime nothing is read
// repeatedly.
func TestWaitsEnd(t *testing.T) {
	t.Parallel()
	w, runs := newRunWorld(t, limits(Limits{OwnerFollowers: 1, OwnerRequests: 1, Wait: 50 * time.Millisecond}))
	runs.asked.Status, runs.asked.ExpiresAt = ckpt.PromptOpen, ckpt.Time{}
	path := "/v1/prompts/" + id1
	expect.Equal(t, "its time is over", w.send("GET", path+"?wait=1ms", "").status, http.StatusOK)

	wait := func() net.Conn {
		c, before := w.dial(), runs.readsOf()
		fmt.Fprintf(c, "GET %s?wait=10m HTTP/1.1\r\nHost: x\r\n\r\n", path)
		waitFor(t, func() bool { return runs.readsOf() > before })
		return c
	}
	c := wait()
	before := runs.readsOf()
	expect.Equal(t, "a second one", w.send("GET", path+"?wait=1ms", "").problem(t).Code, ckpt.CodeQuota)
	w.save("a", "1") // a waiting client takes no place among the requests
	expect.Equal(t, "reads while nothing changes", runs.readsOf(), before)
	expect.OK(t, c.Close())
	waitFor(t, func() bool { return w.send("GET", path+"?wait=1ms", "").status == http.StatusOK }) // its place is released

	last := wait()
	stopped := make(chan error, 1)
	go func() { stopped <- w.server.Shutdown(t.Context()) }()
	r := readReply(t, "GET", last)
	expect.Equal(t, "when the server stops", r.problem(t).Code, ckpt.CodeBusy)
	expect.OK(t, <-stopped)
}

func (f *fakeRuns) readsOf() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.reads
}
