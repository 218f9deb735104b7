package daemon

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	ckpt "github.com/ckptsidecar/ckptsidecar"
)

// listener is a manager that remembers what it was told.
type listener struct {
	patience time.Duration

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

func (l *listener) Starting(time.Duration)       { l.hear("starting") }
func (l *listener) Ready()                       { l.hear("ready") }
func (l *listener) Reloading()                   { l.hear("reloading") }
func (l *listener) Stopping(limit time.Duration) { l.hear("stopping within %v", limit) }
func (l *listener) Status(text string)           { l.hear("status %s", text) }
func (l *listener) Alive()                       { l.hear("alive") }
func (l *listener) Patience() time.Duration      { return l.patience }

// managed starts a daemon under a manager.
func managed(t *testing.T, c Config, m *listener, load func() (Config, error)) (r *running, reload chan struct{}) {
	t.Helper()
	level := new(slog.LevelVar)
	reload = make(chan struct{})
	r = startAs(t, c, func(d *Daemon) { d.Manager, d.Reload, d.Load, d.Level = m, reload, load, level })
	return r, reload
}

func eventually(t *testing.T, what string, is func() bool) {
	t.Helper()
	for end := time.Now().Add(10 * time.Second); !is(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("waited in vain for %s", what)
		}
	}
}

func TestTheManagerHearsOfStartAndStop(t *testing.T) {
	m := &listener{patience: time.Minute}
	r, _ := managed(t, sound(t), m, nil)
	eventually(t, "the first sign of life", func() bool { return m.times("alive") > 0 && m.times("status serving at "+r.config.Socket) > 0 })
	r.stop()
	if err := r.end(5 * time.Second); err != nil {
		t.Error(err)
	}
	if first := m.heard[0]; first != "ready" && first != "alive" {
		t.Errorf("first was heard: %s", first)
	}
	if m.times("ready") != 1 || m.heard[len(m.heard)-1] != "stopping within 6s" {
		t.Errorf("heard %q", m.heard)
	}
}

// TestTheManagerHearsNothingWhileTheWriterStandsStill holds the writer, as a
// disk does that never answers, and lets it go again.
func TestTheManagerHearsNothingWhileTheWriterStandsStill(t *testing.T) {
	var stalled time.Duration
	m := &listener{patience: 40 * time.Millisecond}
	s := &service{daemon: &Daemon{}, manager: m, log: slog.New(slog.DiscardHandler), store: nil}
	var mu sync.Mutex
	set := func(d time.Duration) { mu.Lock(); defer mu.Unlock(); stalled = d }
	now := func() time.Duration { mu.Lock(); defer mu.Unlock(); return stalled }
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	done, none := make(chan error), func() time.Duration { return 0 }
	go func() { done <- s.watchWriter(ctx, now, none, func(time.Duration) string { return "" }) }()
	eventually(t, "signs of life", func() bool { return m.times("alive") > 2 })
	set(19 * time.Millisecond) // slow
	seen := m.times("alive")
	eventually(t, "signs of life of a slow writer", func() bool { return m.times("alive") > seen+2 })
	set(21 * time.Millisecond) // stuck: half of the patience is over
	time.Sleep(30 * time.Millisecond)
	seen = m.times("alive")
	time.Sleep(100 * time.Millisecond)
	if n := m.times("alive"); n != seen {
		t.Errorf("%d signs of life of a stuck writer", n-seen)
	}
	set(0)
	eventually(t, "signs of life of a writer that gets on", func() bool { return m.times("alive") > seen })
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
}

// TestAStuckWriterEndsTheDaemon, whoever has started it: one that commits nothing is stuck, however often it tries.
func TestAStuckWriterEndsTheDaemon(t *testing.T) {
	c := Config{StuckAfter: ckpt.Duration(20 * time.Millisecond)}
	for _, m := range []Manager{nobody{}, &listener{patience: time.Minute}} {
		s := &service{daemon: &Daemon{Config: c}, manager: m, log: slog.New(slog.DiscardHandler)}
		tries, behind := func() time.Duration { return 0 }, func() time.Duration { return 20 * time.Millisecond }
		if err := s.watchWriter(t.Context(), tries, behind, func(time.Duration) string { return "" }); !errors.Is(err, errStuck) {
			t.Error(err)
		}
	}
}

func TestReloadTakesWhatItCanAndNamesTheRest(t *testing.T) {
	m := &listener{patience: time.Minute}
	next := sound(t)
	var wrong error
	r, reload := managed(t, next, m, func() (Config, error) { return next, wrong })
	next.LogLevel, next.RetentionInterval, next.Connections = "warn", ckpt.Duration(time.Hour), 7
	reload <- struct{}{}
	eventually(t, "the reload", func() bool { return m.times("ready") == 2 })
	for _, want := range []string{`changed="[log.level retention.interval]"`, "after a restart only", "settings=[limits.connections]"} {
		if !strings.Contains(r.log.String(), want) {
			t.Errorf("no %s in the log:\n%s", want, r.log)
		}
	}
	wrong = errors.New("c.toml:3: a mistake")
	reload <- struct{}{}
	eventually(t, "the second reload", func() bool { return m.times("ready") == 3 })
	if !strings.Contains(r.log.String(), "c.toml:3: a mistake") {
		t.Errorf("the log does not say what is wrong:\n%s", r.log)
	}
	if !slices.Contains(m.heard, "reloading") || m.times("reloading") != 2 {
		t.Errorf("heard %q", m.heard)
	}
	r.save("a", `{}`)
	r.stop()
	if err := r.end(5 * time.Second); err != nil {
		t.Error(err)
	}
}
