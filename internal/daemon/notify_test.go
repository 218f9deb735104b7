package daemon

import (
	"testing"
	"time"

	ckpt "github.com/ckptsidecar/ckptsidecar"
)

// TestTroubleIsToldOnce: a problem whose numbers change is the same problem. It is told again only if it has ended
// and comes back.
func TestTroubleIsToldOnce(t *testing.T) {
	t.Parallel()
	locked := func(since string) string {
		return "saves are answered with busy: process 4711 (python3) has held the database locked for " + since
	}
	log := func(mib string) string {
		return mib + " MiB wait in the write-ahead log, because a reader holds an old snapshot"
	}
	room := func(free string) string {
		return free + " are free for all users, and limits.free_floor keeps 2.5 MB"
	}
	var known troubles
	for i, step := range []struct {
		problems []string
		want     bool
	}{
		{nil, false},
		{[]string{locked("6s")}, true},
		{[]string{locked("8s")}, false},
		{[]string{locked("1m0s")}, false},
		{[]string{locked("1h2m3.5s"), log("1024")}, true},
		{[]string{locked("1h2m5s"), log("2048")}, false},
		{[]string{log("2050")}, false},
		{nil, false},
		{[]string{log("1030")}, true},
		{[]string{room("1.1 MB")}, true},
		{[]string{room("989.0 kB")}, false},
		{[]string{room("0 bytes")}, false},
		{[]string{"a write has been blocked for 7s: the disk or a lock does not answer"}, true},
	} {
		if got := known.begin(step.problems); got != step.want {
			t.Errorf("step %d, %q: told %v, want %v", i, step.problems, got, step.want)
		}
	}
}

// TestNotifyProblems: a hook that lost notices is a problem, unless somebody has taken it out of the settings.
func TestNotifyProblems(t *testing.T) {
	t.Parallel()
	now := time.Now()
	for _, h := range []struct {
		ckpt.HookStatus
		want bool
	}{
		{ckpt.HookStatus{Kind: "url"}, false},
		{ckpt.HookStatus{Kind: "url", Dead: 1}, true},
		{ckpt.HookStatus{Kind: "url", Pending: 1, Oldest: ckpt.At(now.Add(-48 * time.Hour))}, true},
		{ckpt.HookStatus{Dead: 12}, false},
	} {
		if got := notifyProblems(&ckpt.NotifyStatus{Hooks: []ckpt.HookStatus{h.HookStatus}}, now); (len(got) > 0) != h.want {
			t.Errorf("%+v: %q", h.HookStatus, got)
		}
	}
}
