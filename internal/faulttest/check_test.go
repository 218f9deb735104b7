//go:build unix

package faulttest

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	ckpt "github.com/ckptsidecar/ckptsidecar"
	"github.com/ckptsidecar/ckptsidecar/internal/ipc/client"
)

// Stored is one checkpoint as the daemon returns it.
type Stored struct {
	ID, Agent, Run string
	Seq            int64
	SHA256         string // the hash that the daemon reports
	Read           string // the hash of the bytes that it returned
}

// Check reads back everything that the agents have and fails the test for each
// broken invariant of I1 to I4. The agents' policies must keep all checkpoints.
func (h *History) Check(t *testing.T, connect func() *client.Client, agents ...string) {
	t.Helper()
	began := time.Now()
	found, err := readBack(connect, agents)
	if err != nil {
		t.Errorf("reading back: %v", err)
	}
	problems := h.problems(found)
	for _, p := range problems[:min(20, len(problems))] {
		t.Error(p)
	}
	n := h.Sum()
	if err == nil {
		count(t, figures{acked: n.Acked, lost: len(missing(h.list(), found))})
	}
	t.Logf("%d saves sent, %d of them more than once (%d had been saved without an answer), %d acknowledged (%.1f MB), %d without an answer; %d stored and read back in %v, %d problems",
		n.Saves, n.Retried, n.Replayed, n.Acked, float64(n.Bytes)/1e6, n.Unanswered, len(found), time.Since(began).Round(time.Millisecond), len(problems))
}

// readBack reads the agents concurrently.
func readBack(connect func() *client.Client, agents []string) ([]Stored, error) {
	var wait sync.WaitGroup
	lists, errs := make([][]Stored, len(agents)), make([]error, len(agents))
	for i, agent := range agents {
		c := connect()
		wait.Go(func() { lists[i], errs[i] = readAgent(c, agent) })
	}
	wait.Wait()
	for _, err := range errs {
		if err != nil {
			return slices.Concat(lists...), err
		}
	}
	return slices.Concat(lists...), nil
}

func readAgent(c *client.Client, agent string) ([]Stored, error) {
	list, err := listAll(c, ckpt.CheckpointFilter{Agent: agent})
	if ckpt.CodeOf(err) == ckpt.CodeNotFound {
		return nil, nil // no save of this agent succeeded; the history decides whether that is right
	}
	if err != nil {
		return nil, err
	}
	found := make([]Stored, 0, len(list))
	for _, ck := range list {
		s := Stored{ID: ck.ID, Agent: ck.Agent, Run: ck.Run, Seq: ck.Seq, SHA256: ck.SHA256}
		state, err := c.State(context.Background(), ck.ID)
		if err == nil {
			s.Read = sum(state)
		} else {
			s.Read = err.Error()
		}
		found = append(found, s)
	}
	return found, nil
}

// problems describes the broken invariants in words. It is a pure function, so
// that a test can prove that it finds them.
func (h *History) problems(found []Stored) []string {
	sent := h.list()
	return slices.Concat(missing(sent, found), strangers(sent, found), doubles(found), gaps(found), disorder(sent, found))
}

// missing is I1: every acknowledged save is there, byte for byte. A save whose
// last answer was "not saved" is not there.
func missing(sent []Sent, found []Stored) (problems []string) {
	there := map[string]Stored{}
	for _, s := range found {
		there[s.ID] = s
	}
	for _, s := range sent {
		is, ok := there[s.ID]
		switch {
		case s.Acked() && !ok:
			problems = append(problems, fmt.Sprintf("I1: %s of %s, acknowledged at %v as number %d, is missing", s.ID, s.Agent, s.Answered, s.Seq))
		case s.Acked() && is.Seq != s.Seq:
			problems = append(problems, fmt.Sprintf("I1: %s was acknowledged as number %d and is number %d", s.ID, s.Seq, is.Seq))
		case !s.Acked() && ok && s.Refused && !s.Unknown:
			problems = append(problems, fmt.Sprintf("I2: %s is there, and the last of %d answers was that it is not: %s", s.ID, s.Tries, s.Word))
		}
		for _, c := range s.Contradictions {
			problems = append(problems, fmt.Sprintf("I3: %s: %s", s.ID, c))
		}
	}
	return problems
}

// strangers is I2: every stored checkpoint was sent by a client, and is whole.
func strangers(sent []Sent, found []Stored) (problems []string) {
	known := map[string]Sent{}
	for _, s := range sent {
		known[s.ID] = s
	}
	for _, is := range found {
		s, ok := known[is.ID]
		switch {
		case !ok:
			problems = append(problems, fmt.Sprintf("I2: %s of %s is there and nobody sent it", is.ID, is.Agent))
		case is.Agent != s.Agent || is.Run != s.Run:
			problems = append(problems, fmt.Sprintf("I2: %s was sent to %s/%s and is in %s/%s", is.ID, s.Agent, s.Run, is.Agent, is.Run))
		case is.SHA256 != s.SHA256 || is.Read != s.SHA256:
			problems = append(problems, fmt.Sprintf("I1: %s is not what was sent: sent %s, stored %s, read %s", is.ID, s.SHA256, is.SHA256, is.Read))
		}
	}
	return problems
}

// doubles is I3: a key saves once. Each state of a history is unique, so the
// same bytes under two ids also mean one save too many.
func doubles(found []Stored) (problems []string) {
	ids, states := map[string]bool{}, map[string]string{}
	for _, s := range found {
		if ids[s.ID] {
			problems = append(problems, fmt.Sprintf("I3: %s is there twice", s.ID))
		} else if first, twice := states[s.SHA256]; twice {
			problems = append(problems, fmt.Sprintf("I3: %s and %s are the same state", first, s.ID))
		}
		ids[s.ID], states[s.SHA256] = true, s.ID
	}
	return problems
}

// byRun sorts what is stored by sequence number.
func byRun(found []Stored) map[string][]Stored {
	runs := map[string][]Stored{}
	for _, s := range found {
		runs[s.Agent+"/"+s.Run] = append(runs[s.Agent+"/"+s.Run], s)
	}
	for _, list := range runs {
		slices.SortStableFunc(list, func(a, b Stored) int { return cmp.Compare(a.Seq, b.Seq) })
	}
	return runs
}

// gaps is half of I4: in a run that keeps all checkpoints, the numbers are 1,
// 2, 3 …
func gaps(found []Stored) (problems []string) {
	runs := byRun(found)
	for _, run := range slices.Sorted(maps.Keys(runs)) {
		for i, s := range runs[run] {
			if s.Seq != int64(i)+1 {
				problems = append(problems, fmt.Sprintf("I4: number %d of %s is %s where %d should be", s.Seq, run, s.ID, i+1))
				break
			}
		}
	}
	return problems
}

// disorder is the other half of I4: a save that was sent after another save of
// the same run had been acknowledged has a higher number.
func disorder(sent []Sent, found []Stored) (problems []string) {
	known := map[string]Sent{}
	for _, s := range sent {
		known[s.ID] = s
	}
	for run, list := range byRun(found) {
		var first Sent // the earliest acknowledged save of those with a higher number
		for _, is := range slices.Backward(list) {
			s := known[is.ID]
			if first.Acked() && s.First > first.Answered {
				problems = append(problems, fmt.Sprintf("I4: in %s number %d was sent after number %d had been acknowledged", run, is.Seq, first.Seq))
			}
			if s.Acked() && (!first.Acked() || s.Answered < first.Answered) {
				first = s
			}
		}
	}
	return problems
}

// TestTheOracle plants one bug of each sort and checks that the oracle reports
// it. An oracle that never finds anything may be blind.
func TestTheOracle(t *testing.T) {
	h := NewHistory()
	var good []Stored
	for i := range 4 {
		r := &ckpt.SaveRequest{ID: fmt.Sprintf("id%d", i), Agent: "a", State: []byte{byte(i)}}
		h.Send(r)
		for sent := time.Since(h.began); time.Since(h.began) == sent; { // an answer comes after its question
		}
		h.Answer(r, &ckpt.Saved{Checkpoint: ckpt.Checkpoint{ID: r.ID, Seq: int64(i) + 1, Size: 1, SHA256: sum(r.State)}}, nil)
		good = append(good, Stored{ID: r.ID, Agent: "a", Run: ckpt.MainRun, Seq: int64(i) + 1, SHA256: sum(r.State), Read: sum(r.State)})
	}
	busy := &ckpt.SaveRequest{ID: "busy", Agent: "a", State: []byte("busy")}
	h.Send(busy)
	h.Answer(busy, nil, ckpt.Errorf(ckpt.CodeBusy, "busy"))
	planted := map[string]func([]Stored) []Stored{
		"":                    func(s []Stored) []Stored { return s },
		"I1: id3":             func(s []Stored) []Stored { return s[:3] },
		"I1: id1 is not what": func(s []Stored) []Stored { s[1].Read = sum(nil); return s },
		"I2: alien": func(s []Stored) []Stored {
			return append(s, Stored{ID: "alien", Agent: "a", Run: ckpt.MainRun, Seq: 5})
		},
		"I2: busy": func(s []Stored) []Stored {
			return append(s, Stored{ID: "busy", Agent: "a", Run: ckpt.MainRun, Seq: 5, SHA256: sum(busy.State), Read: sum(busy.State)})
		},
		"I3: id0 is there twice": func(s []Stored) []Stored { return append(s, s[0]) },
		"I3: id2 and copy":       func(s []Stored) []Stored { c := s[2]; c.ID, c.Seq = "copy", 5; return append(s, c) },
		"I4: number 9":           func(s []Stored) []Stored { s[3].Seq = 9; return s },
		"I4: in a/main":          func(s []Stored) []Stored { s[0].Seq, s[1].Seq = 2, 1; return s },
	}
	for sign, plant := range planted {
		problems := h.problems(plant(slices.Clone(good)))
		hit := slices.ContainsFunc(problems, func(p string) bool { return strings.HasPrefix(p, sign) })
		if hit != (sign != "") {
			t.Errorf("planted %q, found %q", sign, problems)
		}
	}
}
