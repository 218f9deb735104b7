package monitor

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	ckpt "github.com/ckptsidecar/ckptsidecar"
	"github.com/ckptsidecar/ckptsidecar/internal/liveness"
)

var noon = time.Date(2026, 3, 4, 12, 0, 0, 0, time.UTC)

func want[T any](t *testing.T, what string, want, got T) {
	t.Helper()
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("%s (-want +got)\n%s", what, diff)
	}
}

func TestJudge(t *testing.T) {
	const hb, pr = 30 * time.Second, 10 * time.Minute
	both := liveness.Run{
		Process: liveness.Process{PID: 4711, Start: "1", Boot: "b"}, LastBeat: noon, LastProgress: noon.Add(-time.Minute),
		HeartbeatTimeout: hb, ProgressTimeout: pr,
	}
	off := both
	off.HeartbeatTimeout, off.ProgressTimeout = 0, 0
	never := liveness.Run{HeartbeatTimeout: hb, ProgressTimeout: pr}

	const dead = "the owner's process 4711 has ended; the last message from the owner was at 2026-03-04T12:00:00.000Z"
	const quiet = "no message from the owner for 30s, the limit is 30s; the last message from the owner was at 2026-03-04T12:00:00.000Z"
	const stuck = "no progress for 10m, the limit is 10m; the last progress was at 2026-03-04T11:59:00.000Z, the last message from the owner was at 2026-03-04T12:00:00.000Z"
	for name, c := range map[string]struct {
		run    liveness.Run
		seen   Seen
		status ckpt.RunStatus
		reason string
	}{
		"alive":                  {both, Seen{liveness.Alive, hb - 1, pr - 1}, "", ""},
		"unknown":                {both, Seen{liveness.Unknown, hb - 1, pr - 1}, "", ""},
		"dead":                   {both, Seen{liveness.Dead, 0, 0}, ckpt.RunInterrupted, dead},
		"dead, without timeouts": {off, Seen{liveness.Dead, time.Hour, time.Hour}, ckpt.RunInterrupted, dead},
		"dead goes first":        {both, Seen{liveness.Dead, time.Hour, time.Hour}, ckpt.RunInterrupted, dead},
		"quiet":                  {both, Seen{liveness.Unknown, hb, 0}, ckpt.RunTimedOut, quiet},
		"quiet goes second":      {both, Seen{liveness.Unknown, hb, time.Hour}, ckpt.RunTimedOut, quiet},
		"frozen": {both, Seen{liveness.Alive, hb + 1234*time.Millisecond, 0}, ckpt.RunTimedOut,
			"no message from the owner for 31.2s, the limit is 30s; the last message from the owner was at 2026-03-04T12:00:00.000Z; its process 4711 is there and may be frozen"},
		"stuck":              {both, Seen{liveness.Alive, 0, pr}, ckpt.RunTimedOut, stuck},
		"stuck, unknown":     {both, Seen{liveness.Unknown, 0, pr}, ckpt.RunTimedOut, stuck},
		"timeouts are off":   {off, Seen{liveness.Alive, 100 * ckpt.Day, 100 * ckpt.Day}, "", ""},
		"nothing is known":   {liveness.Run{}, Seen{}, "", ""},
		"never beat":         {never, Seen{Quiet: hb}, ckpt.RunTimedOut, "no message from the owner for 30s, the limit is 30s; there was no message from the owner yet"},
		"never got anywhere": {never, Seen{Stuck: pr}, ckpt.RunTimedOut, "no progress for 10m, the limit is 10m; there was no progress yet, there was no message from the owner yet"},
		"short": {liveness.Run{HeartbeatTimeout: 50 * time.Millisecond}, Seen{Quiet: 51234567}, ckpt.RunTimedOut,
			"no message from the owner for 51ms, the limit is 50ms; there was no message from the owner yet"},
	} {
		t.Run(name, func(t *testing.T) {
			status, reason := Judge(c.run, c.seen)
			want(t, "status", c.status, status)
			want(t, "reason", c.reason, reason)
			if err := ckpt.CheckReason(reason); err != nil {
				t.Error(err)
			}
		})
	}
}

func TestSight(t *testing.T) {
	const s = time.Second
	beat := liveness.Run{Epoch: 1, LastBeat: noon, LastProgress: noon, HeartbeatTimeout: 30 * s, ProgressTimeout: 60 * s}
	with := func(change func(*liveness.Run)) liveness.Run {
		run := beat
		change(&run)
		return run
	}
	type look struct {
		run          liveness.Run
		after        time.Duration
		quiet, stuck time.Duration
	}
	for name, looks := range map[string][]look{
		"first":                  {{beat, 0, 0, 0}},
		"nothing changes":        {{beat, 0, 0, 0}, {beat, s, s, s}, {beat, s, 2 * s, 2 * s}},
		"beats, no progress":     {{beat, s, s, s}, {with(func(r *liveness.Run) { r.LastBeat = noon.Add(s) }), s, 0, 2 * s}},
		"progress":               {{beat, s, s, s}, {with(func(r *liveness.Run) { r.LastProgress = noon.Add(s) }), s, 2 * s, 0}},
		"a new owner":            {{beat, s, s, s}, {with(func(r *liveness.Run) { r.Epoch = 2 }), s, 0, 0}},
		"the clock was set back": {{beat, s, s, s}, {with(func(r *liveness.Run) { r.LastBeat = noon.Add(-ckpt.Day) }), s, 0, 2 * s}},
		"the clock was set ahead": {{beat, s, s, s}, {with(func(r *liveness.Run) { r.LastBeat = noon.Add(3650 * ckpt.Day) }), s, 0, 2 * s},
			{with(func(r *liveness.Run) { r.LastBeat = noon.Add(3650 * ckpt.Day) }), s, s, 3 * s}},
		"the machine slept": {{beat, s, s, s}, {beat, 8 * time.Hour, 3 * s, 3 * s}, {beat, s, 4 * s, 4 * s}},
		"a late look, a short limit": {{with(func(r *liveness.Run) { r.HeartbeatTimeout = s }), 8 * time.Hour, s / 2, 2 * s},
			{with(func(r *liveness.Run) { r.HeartbeatTimeout = s }), s, s, 3 * s}},
		"no limits": {{with(func(r *liveness.Run) { r.HeartbeatTimeout, r.ProgressTimeout = 0, 0 }), s, 0, 0}},
	} {
		t.Run(name, func(t *testing.T) {
			now := 100 * s
			seen := sight{epoch: 1, beat: noon, progress: noon, at: now}
			for i, l := range looks {
				now += l.after
				seen.look(l.run, now, 2*s)
				if seen.quiet != l.quiet || seen.stuck != l.stuck {
					t.Errorf("look %d: quiet %s, stuck %s; want %s, %s", i, seen.quiet, seen.stuck, l.quiet, l.stuck)
				}
			}
		})
	}
}
