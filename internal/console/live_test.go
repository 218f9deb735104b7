package console

import (
	"io"
	"net/http"
	"strings"
	"testing"
)

// news is the answer to a page that waits for changes.
type news struct {
	status int
	n      string
}

// wait lets a page wait for changes.
func (w *world) wait(query string) <-chan news {
	answer := make(chan news, 1)
	r, err := http.NewRequestWithContext(w.t.Context(), "GET", "http://"+w.s.address+w.base+"changes?"+query, nil)
	if err != nil {
		w.t.Fatal(err)
	}
	r.AddCookie(w.cookie)
	r.Header.Set(headerLive, "1")
	go func() {
		defer close(answer)
		a, err := w.browser.client.Do(r)
		if err != nil {
			return
		}
		defer func() { _ = a.Body.Close() }()
		text, _ := io.ReadAll(a.Body)
		answer <- news{a.StatusCode, strings.TrimSpace(string(text))}
	}()
	return answer
}

// TestPagesAreToldOfChanges: two pages wait, and one run of a real daemon changes.
func TestPagesAreToldOfChanges(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.save("coder", "one", `{"n": 1}`)
	w.save("coder", "two", `{"n": 1}`)
	one, two := ofRun(w.owner, "coder", "one"), ofRun(w.owner, "coder", "two")
	first := <-w.wait("seen=&" + one)
	if first.status != http.StatusOK || first.n == "" {
		t.Fatalf("a page that has just been opened is answered with %v", first)
	}
	other := <-w.wait("seen=&" + two)
	quiet, next, all := w.wait("seen="+other.n+"&"+two), w.wait("seen="+first.n+"&"+one), w.wait("seen="+first.n)
	w.save("coder", "one", `{"n": 2}`)
	told := <-next
	if told.status != http.StatusOK || told.n == first.n {
		t.Errorf("the page of the run is answered with %v", told)
	}
	if got := <-all; got.status != http.StatusOK {
		t.Errorf("the overview is answered with %v", got)
	}
	select {
	case got := <-quiet:
		t.Errorf("the page of another run is answered with %v", got)
	default:
	}
	if page := w.page("o/" + w.owner + "/coder/one"); !strings.Contains(page, "Checkpoint 2") {
		t.Error("a page that looks when it is told shows what was before")
	}
	w.console.feed.mu.Lock()
	defer w.console.feed.mu.Unlock()
	if n := w.console.feed.follows; n != 1 {
		t.Errorf("the daemon was followed %d times for all pages", n)
	}
}

// TestNobodyIsFollowedWithoutAPage: the console stops following the daemon when no page waits.
func TestNobodyIsFollowedWithoutAPage(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	f := newFeed(w.console.daemon, 0)
	leave := f.enter()
	_, _, wake, _, _ := f.newest("")
	<-wake
	if _, _, _, begun, ok := f.newest(""); !begun || !ok {
		t.Fatal("the daemon is not followed")
	}
	leave()
	for {
		if _, _, _, _, ok := f.newest(""); !ok {
			break
		}
	}
}

// TestALostDaemonIsSeenAtOnce stops the daemon right after an overview that would stay valid for long.
func TestALostDaemonIsSeenAtOnce(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.page("")
	first := <-w.wait("seen=")
	d := w.console.daemon
	d.overviews.Lock()
	d.took, d.asked = staleMost, d.options.Now() // as if the daemon had been very busy
	d.overviews.Unlock()
	waiting := w.wait("seen=" + first.n)
	w.stop()
	if got := <-waiting; got.status != http.StatusServiceUnavailable {
		t.Errorf("a page that waits is answered with %v when the daemon ends", got)
	}
	if got := w.send("GET", w.base, nil, nil).StatusCode; got != http.StatusServiceUnavailable {
		t.Errorf("a page that looks then is answered with %d", got)
	}
}
