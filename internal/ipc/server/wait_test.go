package server

import (
	"fmt"
	"net/http"
	"testing"
	"time"

	ckpt "github.com/ckptsidecar/ckptsidecar"
	"github.com/ckptsidecar/ckptsidecar/internal/expect"
)

// A wait for an answer ends when its time is over, when the client hangs up, and
// when the server stops; and meanwhile nothing is read again and again.
func TestWaitsEnd(t *testing.T) {
	t.Parallel()
	w, runs := newRunWorld(t, limits(Limits{OwnerFollowers: 1, OwnerRequests: 1, Wait: 50 * time.Millisecond}))
	runs.asked.Status, runs.asked.ExpiresAt = ckpt.PromptOpen, ckpt.Time{}
	path := "/v1/prompts/" + id1
	expect.Equal(t, "its time is over", w.send("GET", path+"?wait=1ms", "").status, http.StatusOK)

	c := w.dial()
	fmt.Fprintf(c, "GET %s?wait=10m HTTP/1.1\r\nHost: x\r\n\r\n", path)
	waitFor(t, func() bool { return w.server.Stats().InWork == 0 && w.waiting() })
	before := runs.readsOf()
	expect.Equal(t, "a second one", w.send("GET", path+"?wait=1ms", "").problem(t).Code, ckpt.CodeQuota)
	w.save("a", "1") // who waits takes no place among the requests
	expect.Equal(t, "reads while nothing changes", runs.readsOf(), before)
	expect.OK(t, c.Close())
	waitFor(t, func() bool { return w.send("GET", path+"?wait=1ms", "").status == http.StatusOK }) // its place is given back

	last := w.dial()
	fmt.Fprintf(last, "GET %s?wait=10m HTTP/1.1\r\nHost: x\r\n\r\n", path)
	waitFor(t, w.waiting)
	stopped := make(chan error, 1)
	go func() { stopped <- w.server.Shutdown(t.Context()) }()
	r := readReply(t, "GET", last)
	expect.Equal(t, "when the server stops", r.problem(t).Code, ckpt.CodeBusy)
	expect.OK(t, <-stopped)
}

// waiting says whether the one place for followers is taken.
func (w *world) waiting() bool {
	r := w.send("GET", "/v1/prompts/"+id1+"?wait=1ms", "")
	return r.status == http.StatusTooManyRequests
}

func (f *fakeRuns) readsOf() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.reads
}
