package retention

import (
	"bytes"
	"log/slog"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	ckpt "github.com/ckptsidecar/ckptsidecar"
)

// clocks are a wall clock that jumps and a monotonic clock that does not.
type clocks struct {
	mu   sync.Mutex
	wall time.Time
	mono time.Duration
}

// pass lets time pass on both clocks. jump moves only the wall clock.
func (c *clocks) pass(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.wall, c.mono = c.wall.Add(d), c.mono+d
}

func (c *clocks) jump(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.wall = c.wall.Add(d)
}

func (c *clocks) settings() GuardSettings {
	return GuardSettings{
		Wall:      func() time.Time { c.mu.Lock(); defer c.mu.Unlock(); return c.wall },
		Monotonic: func() time.Duration { c.mu.Lock(); defer c.mu.Unlock(); return c.mono },
	}
}

func wantTrusted(t *testing.T, g *Guard, want bool) {
	t.Helper()
	now, trusted := g.Now()
	if trusted != want {
		t.Fatalf("at %s trusted is %t, want %t", now, trusted, want)
	}
	if g.Trusted().IsZero() == want || g.GuardedUntil().IsZero() != want {
		t.Fatalf("trusted is %t, but the time %s, guarded until %s", want, g.Trusted(), g.GuardedUntil())
	}
}

func TestGuardAfterStart(t *testing.T) {
	c := &clocks{wall: noon}
	g := NewGuard(c.settings())
	if got, want := g.GuardedUntil(), noon.Add(10*time.Minute); !got.Equal(want) {
		t.Errorf("guarded until %s, want %s", got, want)
	}
	c.pass(10*time.Minute - 1)
	wantTrusted(t, g, false)
	c.pass(1)
	wantTrusted(t, g, true)
	if g.Jumps() != 0 {
		t.Errorf("%d jumps, want none", g.Jumps())
	}
}

func TestGuardAfterJump(t *testing.T) {
	for name, by := range map[string]time.Duration{
		"ten years ahead": 10 * 365 * ckpt.Day,
		"a day back":      -ckpt.Day,
		"to 2038":         time.Date(2038, 1, 19, 3, 14, 8, 0, time.UTC).Sub(noon),
		"to 1970":         time.Unix(0, 0).Sub(noon),
		"three seconds":   3 * time.Second,
		"for ever":        1<<63 - 1,
		"before all time": -1 << 63,
		"a suspend":       8 * time.Hour,
	} {
		t.Run(name, func(t *testing.T) {
			c := &clocks{wall: noon}
			var log bytes.Buffer
			s := c.settings()
			s.Log = slog.New(slog.NewTextHandler(&log, nil))
			g := NewGuard(s)
			c.pass(time.Hour)
			wantTrusted(t, g, true)
			c.jump(by)
			wantTrusted(t, g, false)
			c.pass(10*time.Minute - time.Millisecond)
			wantTrusted(t, g, false)
			c.pass(time.Millisecond)
			wantTrusted(t, g, true)
			if g.Jumps() != 1 || strings.Count(log.String(), "the wall clock jumped") != 1 {
				t.Errorf("%d jumps, log:\n%s", g.Jumps(), &log)
			}
		})
	}
}

// TestGuardSavesFromAWrongClock: a recovery checkpoint survives every wrong
// clock that is corrected in time.
func TestGuardSavesFromAWrongClock(t *testing.T) {
	h := History{Status: ckpt.RunRunning, Checkpoints: []Held{
		{ID: "b", Seq: 2, Kind: ckpt.KindRoutine, CreatedAt: noon},
		{ID: "a", Seq: 1, Kind: ckpt.KindRecovery, CreatedAt: noon},
	}}
	c := &clocks{wall: noon}
	g := NewGuard(c.settings())
	gone := func() bool { return Plan(h, ckpt.DefaultPolicy(), g.Trusted())[1].Remove }
	for _, wrong := range []time.Duration{10 * 365 * ckpt.Day, -ckpt.Day, 12 * 365 * ckpt.Day} {
		c.pass(time.Hour)
		c.jump(wrong)
		for range 9 {
			if gone() {
				t.Fatalf("gone by a jump of %s", wrong)
			}
			c.pass(time.Minute)
		}
		c.jump(-wrong)
		for range 20 {
			if gone() {
				t.Fatalf("gone after a jump of %s was taken back", wrong)
			}
			c.pass(time.Minute)
		}
	}
	c.pass(7 * ckpt.Day)
	if !gone() {
		t.Error("it never goes")
	}
}

func TestGuardForgivesDriftButNotSteps(t *testing.T) {
	c := &clocks{wall: noon}
	g := NewGuard(c.settings())
	for range 60 * 24 { // a day of NTP slewing at its maximum speed, and small corrections
		c.pass(time.Minute)
		c.jump(30 * time.Millisecond)
		wantTrusted(t, g, c.mono >= 10*time.Minute)
	}
	c.jump(-1900 * time.Millisecond)
	wantTrusted(t, g, true)
	for range 3 { // small steps, soon after one another
		c.pass(time.Second)
		c.jump(-1900 * time.Millisecond)
		g.Now()
	}
	wantTrusted(t, g, false)
	if g.Jumps() == 0 {
		t.Error("no jump was counted")
	}
}

func TestGuardBehindTheDatabase(t *testing.T) {
	for _, test := range []struct {
		newest time.Time
		jumps  int64
	}{
		{time.Time{}, 0},
		{noon.Add(-time.Hour), 0},
		{noon.Add(time.Second), 0},
		{noon.Add(time.Hour), 1},
		{noon.AddDate(400, 0, 0), 1},
	} {
		c := &clocks{wall: noon}
		var log bytes.Buffer
		s := c.settings()
		s.Newest, s.Log = test.newest, slog.New(slog.NewTextHandler(&log, nil))
		g := NewGuard(s)
		if g.Jumps() != test.jumps || strings.Contains(log.String(), "behind the newest time") != (test.jumps == 1) {
			t.Errorf("newest %s: %d jumps, want %d; log: %s", test.newest, g.Jumps(), test.jumps, &log)
		}
		wantTrusted(t, g, false)
		c.pass(10 * time.Minute)
		wantTrusted(t, g, true)
	}
}

func TestGuardSettings(t *testing.T) {
	c := &clocks{wall: noon}
	s := c.settings()
	s.Hold, s.Tolerance = time.Minute, time.Hour
	g := NewGuard(s)
	c.pass(time.Minute)
	c.jump(time.Hour)
	wantTrusted(t, g, true)
	c.jump(time.Second)
	wantTrusted(t, g, false)

	s.Hold = -1
	wantTrusted(t, NewGuard(s), true)
}

func TestGuardBySystemClock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := NewGuard(GuardSettings{})
		time.Sleep(10*time.Minute - time.Second)
		wantTrusted(t, g, false)
		time.Sleep(time.Second)
		wantTrusted(t, g, true)
		if now, _ := g.Now(); !now.Equal(time.Now()) {
			t.Errorf("now is %s, want %s", now, time.Now())
		}
	})
}

// TestGuardEqualsItsModel: the clock jumps at random times, and is trusted
// exactly if no jump and no start is younger than the hold.
func TestGuardEqualsItsModel(t *testing.T) {
	for seed := range uint64(200) {
		r := rand.New(rand.NewPCG(seed, 2))
		c := &clocks{wall: noon}
		g := NewGuard(c.settings())
		var last time.Duration
		for range 500 {
			c.pass(time.Duration(r.Int64N(int64(5 * time.Minute))))
			if r.IntN(8) == 0 {
				by := time.Duration(r.Int64N(int64(20*365*ckpt.Day))) - 10*365*ckpt.Day
				c.jump(by)
				if by.Abs() > 2*time.Second+5*time.Minute/drift {
					last = c.mono
				}
			}
			if _, trusted := g.Now(); trusted != (c.mono-last >= 10*time.Minute) {
				t.Fatalf("seed %d, at %s, the last jump at %s: trusted is %t", seed, c.mono, last, trusted)
			}
		}
	}
}
