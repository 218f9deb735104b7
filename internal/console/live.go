package console

import (
	"context"
	"net/http"
	"net/url"
	"strconv"
	"sync"
	"time"

	"github.com/ckptsidecar/ckptsidecar/internal/survey"
)

const (
	// waitMost is how long a page waits for a change before it asks again.
	waitMost = 25 * time.Second
	// followLonger is how long the console continues to follow the daemon when no page waits.
	followLonger = 30 * time.Second
)

// feed tells waiting pages that something has changed. It follows the daemon once for all pages of
// the console, and only while a page waits.
type feed struct {
	daemon *daemon
	linger time.Duration // how long it continues to follow without a page

	mu      sync.Mutex
	n       int64            // the number of the newest change
	all     int64            // the number of the newest change that is about more than one run
	runs    map[string]int64 // the number of the newest change of each run
	at      time.Time        // the time of the newest change
	wake    chan struct{}    // closed at the next change
	begun   bool             // the daemon has confirmed that no change is missed from now on
	waiting int
	follows int // how often it began to follow
	end     context.CancelFunc
	idle    *time.Timer
}

// mostFollowed is how many runs have their own number. Above it, all pages refresh.
const mostFollowed = 10_000

func newFeed(d *daemon, linger time.Duration) *feed {
	return &feed{daemon: d, linger: linger, runs: map[string]int64{}, wake: make(chan struct{})}
}

func runKey(owner, agent, run string) string { return owner + "\n" + agent + "\n" + run }

// enter starts to follow the daemon if that is not done yet. The caller must call leave at the end.
func (f *feed) enter() (leave func()) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.waiting++
	if f.idle != nil {
		f.idle.Stop()
		f.idle = nil
	}
	if f.end == nil {
		ctx, end := context.WithCancel(context.Background())
		f.end, f.begun = end, false
		f.follows++
		go f.follow(ctx)
	}
	return func() {
		f.mu.Lock()
		defer f.mu.Unlock()
		if f.waiting--; f.waiting == 0 && f.end != nil {
			f.idle = time.AfterFunc(f.linger, f.stopIdle)
		}
	}
}

func (f *feed) stopIdle() {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.waiting == 0 {
		f.stopLocked()
	}
}

func (f *feed) stop() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.stopLocked()
}

func (f *feed) stopLocked() {
	if f.end != nil {
		f.end()
		f.end, f.begun = nil, false
	}
}

// follow follows the daemon until ctx ends, or until the daemon cannot be followed.
func (f *feed) follow(ctx context.Context) {
	_ = f.daemon.all().ChangesUntilAway(ctx, func(c survey.Change) error {
		f.tell(c)
		return ctx.Err()
	})
	if ctx.Err() == nil {
		f.lost()
	}
}

// tell wakes the waiting pages.
func (f *feed) tell(c survey.Change) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.n++
	f.at = f.daemon.options.Now()
	switch {
	case c.What == survey.ChangedBegin:
		f.begun, f.all = true, f.n
	case c.Run == "" || len(f.runs) >= mostFollowed:
		f.all = f.n
	}
	if c.Run != "" && len(f.runs) < mostFollowed {
		f.runs[runKey(c.Owner, c.Agent, c.Run)] = f.n
	}
	f.wakeLocked()
}

func (f *feed) wakeLocked() {
	close(f.wake)
	f.wake = make(chan struct{})
}

// lost tells the waiting pages that the daemon is away. They then refresh by themselves. It also
// discards the last overview: a page that got it would not see that the daemon is away.
func (f *feed) lost() {
	f.daemon.forget()
	f.mu.Lock()
	defer f.mu.Unlock()
	f.stopLocked()
	f.wakeLocked()
}

// newest returns the number of the newest change that concerns a run, or of any change if run is
// "". ok is false if the console does not follow the daemon.
func (f *feed) newest(run string) (n int64, at time.Time, wake <-chan struct{}, begun, ok bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	n = f.n
	if run != "" {
		n = max(f.all, f.runs[run])
	}
	return n, f.at, f.wake, f.begun, f.end != nil
}

// changes answers when something has changed for a page, with the number of the change. It answers
// 204 if nothing has changed, and 503 if the daemon is away.
func (c *Console) changes(w http.ResponseWriter, r *http.Request) {
	q := r.URL.Query()
	seen, err := strconv.ParseInt(q.Get("seen"), 10, 64)
	if err != nil {
		seen = -1 // the page has just been opened
	}
	run := ""
	if q.Get("run") != "" {
		run = runKey(q.Get("owner"), q.Get("agent"), q.Get("run"))
	}
	defer c.feed.enter()()
	timer := time.NewTimer(waitMost)
	defer timer.Stop()
	for {
		n, at, wake, begun, ok := c.feed.newest(run)
		switch {
		case !ok:
			refuse(w, http.StatusServiceUnavailable, "The daemon is away.")
			return
		case begun && n != seen:
			// A page that refreshes now must not get an overview from before the change.
			if wait := c.daemon.due(at); wait > 0 {
				wake = inAWhile(wait)
				break
			}
			w.Header().Set("Content-Type", "text/plain; charset=utf-8")
			_, _ = w.Write([]byte(strconv.FormatInt(n, 10) + "\n"))
			return
		}
		select {
		case <-wake:
		case <-timer.C:
			w.WriteHeader(http.StatusNoContent)
			return
		case <-r.Context().Done():
			return
		}
	}
}

// inAWhile returns a channel that is closed after a time.
func inAWhile(d time.Duration) <-chan struct{} {
	done := make(chan struct{})
	time.AfterFunc(d, func() { close(done) })
	return done
}

// ofRun returns the query with which a page follows one run.
func ofRun(owner, agent, run string) string {
	return url.Values{"owner": {owner}, "agent": {agent}, "run": {run}}.Encode()
}
