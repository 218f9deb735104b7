package drift

import (
	"strconv"
	"testing"
	"time"

	ckpt "github.com/ckptsidecar/ckptsidecar"
)

func inTurn(name string) func(*ckpt.Step) {
	return func(s *ckpt.Step) { s.Turn = ckpt.Ref(name) }
}

// TestEqualCallsOfOneTurnAreNoLoop: equal calls that the model made in one
// answer, before any result came back, count as one call.
func TestEqualCallsOfOneTurnAreNoLoop(t *testing.T) {
	m := newMade(t)
	for range 8 {
		m.step("search", "x", "nothing new", "", inTurn("msg_1"))
	}
	m.expectNone()
	for i := range 3 {
		m.step("search", "x", "nothing new", "", inTurn("msg_"+strconv.Itoa(i+2)))
	}
	m.expect(RuleRepeat, ckpt.SeverityWarn, 10) // the fourth turn
}

// TestOneComplaintOfOneTurnCountsOnce: different calls in one answer that fail
// for the same reason count as one failure, because the model had not seen it
// yet.
func TestOneComplaintOfOneTurnCountsOnce(t *testing.T) {
	m := newMade(t)
	for i := range 8 {
		m.step("fetch", i, nil, "connection refused", inTurn("msg_1"))
	}
	m.expectNone()
	for i := range 2 {
		m.step("fetch", 10+i, nil, "connection refused", inTurn("msg_"+strconv.Itoa(i+2)))
	}
	m.expect(RuleErrorStreak, ckpt.SeverityWarn, 9)
}

// TestCallsThatRunAtTheSameTimeAreOneTurn: if turns are unknown, a call that
// began before the other one ended was made without knowing its outcome.
func TestCallsThatRunAtTheSameTimeAreOneTurn(t *testing.T) {
	m := newMade(t)
	together := func(s *ckpt.Step) { s.StartedAt = ckpt.At(start) }
	for range 8 {
		m.step("search", "x", "nothing new", "", together)
	}
	m.expectNone()
	after := func(s *ckpt.Step) { s.StartedAt = ckpt.At(s.EndedAt.Add(-time.Millisecond)) }
	for range 3 {
		m.step("search", "x", "nothing new", "", after)
	}
	m.expect(RuleRepeat, ckpt.SeverityWarn, 10)
}

// TestATurnOutlivesARestart: a turn is still known after a restart.
func TestATurnOutlivesARestart(t *testing.T) {
	m := newMade(t)
	for range 6 {
		m.step("search", "x", "nothing new", "", inTurn("msg_1"))
		m.restart()
	}
	m.expectNone()
}
