package lease_test

import (
	"sync"
	"testing"
	"time"

	"github.com/ckptsidecar/ckptsidecar/internal/fleet/lease"
)

// step is an event at a time by the host's clock.
type step struct {
	at   time.Duration
	do   string // send, answer, let go, or nothing
	want lease.Verdict
	left time.Duration
}

func TestLease(t *testing.T) {
	const s = time.Second
	for name, steps := range map[string][]step{
		"never held": {{at: 0, want: lease.Doubtful}, {at: 100 * s, want: lease.Doubtful}},
		"held for four fifths, counted from before it was sent": {
			{at: 10 * s, do: "send", want: lease.Doubtful},
			{at: 14 * s, do: "answer", want: lease.Held, left: 8 * s},
			{at: 21 * s, want: lease.Held, left: 1 * s},
			{at: 22 * s, want: lease.Doubtful},
		},
		"an answer that comes too late gives nothing": {
			{at: 10 * s, do: "send", want: lease.Doubtful}, {at: 22 * s, do: "answer", want: lease.Doubtful},
		},
		"the machine slept for a day": {
			{at: 10 * s, do: "send", want: lease.Doubtful}, {at: 10 * s, do: "answer", want: lease.Held, left: 12 * s},
			{at: 24 * time.Hour, want: lease.Doubtful},
			{at: 24 * time.Hour, do: "send", want: lease.Doubtful}, {at: 24 * time.Hour, do: "answer", want: lease.Held, left: 12 * s},
		},
		"renewed before its end": {
			{at: 0, do: "send", want: lease.Doubtful}, {at: 1 * s, do: "answer", want: lease.Held, left: 11 * s},
			{at: 5 * s, do: "send", want: lease.Held, left: 7 * s}, {at: 6 * s, do: "answer", want: lease.Held, left: 11 * s},
		},
		"let go": {
			{at: 1 * s, do: "send", want: lease.Doubtful}, {at: 1 * s, do: "answer", want: lease.Held, left: 12 * s},
			{at: 2 * s, do: "let go", want: lease.Doubtful},
		},
	} {
		t.Run(name, func(t *testing.T) {
			var now, sent time.Duration
			l := lease.New(func() time.Duration { return now }, 15*s)
			for i, step := range steps {
				now = step.at
				switch step.do {
				case "send":
					sent = l.Sending()
				case "answer":
					l.Renewed(sent)
				case "let go":
					l.LetGo()
				}
				if got := l.Verdict(); got != step.want || l.Left() != step.left || l.Held() != (step.want == lease.Held) {
					t.Errorf("step %d: %s with %v left, want %s with %v", i, got, l.Left(), step.want, step.left)
				}
			}
		})
	}
}

// TestLeaseOfOldAnswers: an answer that arrives after a newer one does not
// shorten the lease.
func TestLeaseOfOldAnswers(t *testing.T) {
	now := 100 * time.Second
	l := lease.New(func() time.Duration { return now }, 15*time.Second)
	var all sync.WaitGroup
	for i := range 20 {
		all.Go(func() { l.Renewed(now - time.Duration(i)*time.Second) })
	}
	all.Wait()
	if l.Left() != 12*time.Second {
		t.Errorf("%v are left, want 12s", l.Left())
	}
	if l.Every() != 5*time.Second || l.Span() != 15*time.Second {
		t.Errorf("renewed every %v of %v", l.Every(), l.Span())
	}
	var none *lease.Lease
	if !none.Held() {
		t.Error("a host without a fleet may not act")
	}
}
