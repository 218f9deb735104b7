package daemon

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	ckpt "github.com/ckptsidecar/ckptsidecar"
	"github.com/ckptsidecar/ckptsidecar/internal/expect"
)

// listener is a manager that remembers what it was told.
type listener struct {
	timeout time.Duration

	mu    sync.Mutex
	heard []string
}

func (l *listener) hear(format string, args ...any) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.heard = append(l.heard, fmt.Sprintf(format, args...))
}

func (l *listener) times(what string) (n int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, h := range l.heard {
		if strings.HasPrefix(h, what) {
			n++
		}
	}
	return n
}

func (l *listener) Starting(time.Duration)         { l.hear("starting") }
func (l *listener) Ready()                         { l.hear("ready") }
func (l *listener) Reloading()                     { l.hear("reloading") }
func (l *listener) Stopping(limit time.Duration)   { l.hear("stopping within %v", limit) }
func (l *listener) Status(text string)             { l.hear("status %s", text) }
func (l *listener) Alive()                         { l.hear("alive") }
func (l *listener) WatchdogTimeout() time.Duration { return l.timeout }

// managed starts a daemon under a manager.
func managed(t *testing.T, c Config, m *listener, load func() (Config, error)) (r *running, reload chan struct{}) {
	t.Helper()
	level := new(slog.LevelVar)
	reload = make(chan struct{})
	r = startAs(t, c, func(d *Daemon) { d.Manager, d.Reload, d.Load, d.Level = m, reload, load, level })
	return r, reload
}

func TestTheManagerHearsOfStartAndStop(t *testing.T) {
	m := &listener{timeout: time.Minute}
	r, _ := managed(t, sound(t), m, nil)
	expect.Soon(t, "the first sign of life", func() bool { return m.times("alive") > 0 && m.times("status serving at "+r.config.Socket) > 0 })
	r.stop()
	if err := r.end(time.Minute); err != nil {
		t.Error(err)
	}
	if first := m.heard[0]; first != "ready" && first != "alive" {
		t.Errorf("first was heard: %s", first)
	}
	if m.times("ready") != 1 || m.heard[len(m.heard)-1] != "stopping within 6s" {
		t.Errorf("heard %q", m.heard)
	}
}

// TestTheManagerHearsNothingWhileTheWriterStandsStill: the manager gets no keep-alive while the writer is stuck, as
// on a disk that never responds, and gets them again afterwards.
func TestTheManagerHearsNothingWhileTheWriterStandsStill(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const timeout = 40 * time.Millisecond
		var stalled atomic.Int64
		m := &listener{timeout: timeout}
		s := &service{daemon: &Daemon{}, manager: m, log: slog.New(slog.DiscardHandler), store: nil}
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		done, none := make(chan error), func() time.Duration { return 0 }
		now := func() time.Duration { return time.Duration(stalled.Load()) }
		go func() { done <- s.watchWriter(ctx, now, none, func(time.Duration) string { return "" }) }()
		// signs counts the keep-alives that the manager gets while the writer has been stuck for this long.
		signs := func(still time.Duration) int {
			stalled.Store(int64(still))
			time.Sleep(timeout)
			before := m.times("alive")
			time.Sleep(10 * timeout)
			return m.times("alive") - before
		}
		for still, alive := range map[time.Duration]bool{0: true, timeout/2 - 1: true, timeout/2 + 1: false} { // half of the timeout
			if n := signs(still); (n > 2) != alive || !alive && n > 0 {
				t.Errorf("%d signs of life of a writer that has stood still for %v", n, still)
			}
		}
		if signs(0) == 0 {
			t.Error("no sign of life of a writer that gets on again")
		}
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}

// TestAStuckWriterEndsTheDaemon under every manager. A writer that commits nothing is stuck, no matter how often it
// tries.
func TestAStuckWriterEndsTheDaemon(t *testing.T) {
	c := Config{StuckAfter: ckpt.Duration(20 * time.Millisecond)}
	for _, m := range []Manager{nobody{}, &listener{timeout: time.Minute}} {
		s := &service{daemon: &Daemon{Config: c}, manager: m, log: slog.New(slog.DiscardHandler)}
		tries, behind := func() time.Duration { return 0 }, func() time.Duration { return 20 * time.Millisecond }
		if err := s.watchWriter(t.Context(), tries, behind, func(time.Duration) string { return "" }); !errors.Is(err, errStuck) {
			t.Error(err)
		}
	}
}

func TestReloadTakesWhatItCanAndNamesTheRest(t *testing.T) {
	m := &listener{timeout: time.Minute}
	next := sound(t)
	var wrong error
	r, reload := managed(t, next, m, func() (Config, error) { return next, wrong })
	next.LogLevel, next.RetentionInterval, next.Connections = "warn", ckpt.Duration(time.Hour), 7
	reload <- struct{}{}
	expect.Soon(t, "the reload", func() bool { return m.times("ready") == 2 })
	for _, want := range []string{`changed="[log.level retention.interval]"`, "effect after a restart", "settings=[limits.connections]"} {
		if !strings.Contains(r.log.String(), want) {
			t.Errorf("no %s in the log:\n%s", want, r.log)
		}
	}
	wrong = errors.New("c.toml:3: a mistake")
	reload <- struct{}{}
	expect.Soon(t, "the second reload", func() bool { return m.times("ready") == 3 })
	if !strings.Contains(r.log.String(), "c.toml:3: a mistake") {
		t.Errorf("the log does not say what is wrong:\n%s", r.log)
	}
	if !slices.Contains(m.heard, "reloading") || m.times("reloading") != 2 {
		t.Errorf("heard %q", m.heard)
	}
	r.save("a", `{}`)
	r.stop()
	if err := r.end(time.Minute); err != nil {
		t.Error(err)
	}
}
