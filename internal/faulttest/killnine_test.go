//go:build unix

package faulttest

import (
	"fmt"
	"testing"
	"time"
)

func init() {
	addRow("F3", "kill -9 under load", true, func(t *testing.T) {
		rounds := 200
		if isShort() {
			rounds = 10
		}
		t.Run("whole states", func(t *testing.T) { killNine(t, rounds/2, func(*load) {}) })
		t.Run("changes", func(t *testing.T) { killNine(t, rounds/2, growingStates) })
		t.Run("files", func(t *testing.T) { killNineFiles(t, rounds/4) })
	})
}

func growingStates(l *load) { l.growing, l.most, l.pause = true, 60<<10, 10*time.Millisecond }

// TestKillNine is F3: the daemon is killed repeatedly while clients repeat the
// same save until it is answered. Two of the clients act like agents that crash
// together with the daemon: they never repeat an interrupted save.
func TestKillNine(t *testing.T) {
	beside(t)
	killNine(t, *rounds, func(*load) {})
}

// TestKillNineGrowing is the same test with growing states: the clients send,
// and the daemon stores, only what changed.
func TestKillNineGrowing(t *testing.T) {
	beside(t)
	killNine(t, (*rounds+1)/2, growingStates)
}

func killNine(t *testing.T, rounds int, change func(*load)) {
	d, random := NewDaemon(t), newRand(t, 0)
	d.Start()
	h, load := NewHistory(), newLoad(t, d, 8)
	load.crashing = 2
	change(load)
	load.start(h)
	others := startMixed(t, d, 1, 5*time.Millisecond)
	var slowest time.Duration
	for round := range rounds {
		time.Sleep(50*time.Millisecond + time.Duration(random.Int64N(int64(450*time.Millisecond))))
		d.Kill()
		before := load.acked.Load()
		slowest = max(slowest, d.Start())
		load.goesOn(before, fmt.Sprintf("round %d", round))
	}
	load.finish()
	others.finish()
	count(t, figures{rounds: rounds})
	note(t, "killed %d times, the slowest restart took %v until it was ready", rounds, slowest.Round(time.Millisecond))
	h.Check(t, d.Client, load.agents...)
	d.Audit()
	if code, _ := d.Stop(); code != 0 {
		t.Errorf("the last stop ended with exit code %d", code)
	}
	d.Verify()
}
