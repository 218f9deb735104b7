package load

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"
)

// memory is a store that keeps what it is given.
type memory struct {
	mu     sync.Mutex
	states map[string][]string
	fail   error
	pause  time.Duration
}

func (m *memory) Client(_ context.Context, id Client, body func(Save) error) error {
	return body(func(seq int, state []byte) error {
		time.Sleep(m.pause)
		m.mu.Lock()
		defer m.mu.Unlock()
		if m.fail != nil && len(m.states[id.Name]) == 3 {
			return m.fail
		}
		m.states[id.Name] = append(m.states[id.Name], string(state))
		if seq != len(m.states[id.Name]) {
			return fmt.Errorf("number %d came as save %d", seq, len(m.states[id.Name]))
		}
		return nil
	})
}

func (m *memory) Version() string { return "1" }
func (m *memory) Close() error    { return nil }

func text(t *testing.T) []byte {
	t.Helper()
	var b bytes.Buffer
	for i := 0; b.Len() < 3<<20; i++ {
		fmt.Fprintf(&b, "word%d ", i)
	}
	return b.Bytes()
}

func TestFreshStatesAreJSONOfTheirSizeAndNew(t *testing.T) {
	w := NewSource(text(t)).Writer(1, 2048, 0)
	seen := map[string]bool{}
	for range 3000 { // wraps around in the corpus
		_, state := w.Next()
		if len(state) != 2048 || !json.Valid(state) {
			t.Fatalf("%d bytes: %s", len(state), state)
		}
		if seen[string(state)] {
			t.Fatal("the same state came twice")
		}
		seen[string(state)] = true
	}
}

func TestHistoriesGrowByAStepAndKeepTheirSize(t *testing.T) {
	const size, step = 64 << 10, 3 << 10
	w := NewSource(text(t)).Writer(0, size, step)
	_, before := w.Next()
	last, sum, grown := string(before), 0, 0
	const many = 400
	for range many {
		_, state := w.Next()
		if !json.Valid(state) {
			t.Fatalf("no JSON: %.60s … %s", state, state[len(state)-60:])
		}
		if len(state) > size*5/4 || len(state) < size*3/4-step {
			t.Fatalf("%d bytes", len(state))
		}
		if strings.HasPrefix(string(state), strings.TrimSuffix(last, ending)) {
			grown++
			if more := len(state) - len(last); more != step {
				t.Fatalf("%d bytes are new, not %d", more, step)
			}
		} else if !bytes.Contains(state, []byte(last[len(last)-size/4:len(last)-len(ending)])) {
			t.Fatal("what was forgotten is not the oldest")
		}
		last, sum = string(state), sum+len(state)
	}
	if grown < many*8/10 {
		t.Errorf("only %d of %d only grew", grown, many)
	}
	if average := sum / many; average < size*9/10 || average > size*11/10 {
		t.Errorf("the average is %d, not about %d", average, size)
	}
}

func TestWritersGoOnWhereTheyWere(t *testing.T) {
	s := NewSource(text(t))
	one, _ := s.Writer(0, 2048, 0).Next()
	two, _ := s.Writer(0, 2048, 0).Next()
	if one != 1 || two != 2 {
		t.Errorf("numbers %d and %d", one, two)
	}
	_, a := s.Writer(0, 2048, 0).Next()
	_, b := s.Writer(1, 2048, 0).Next()
	if bytes.Equal(a[40:], b[40:]) {
		t.Error("two clients save the same text")
	}
}

func TestLoopCountsWhatEndsInItsTime(t *testing.T) {
	store := &memory{states: map[string][]string{}, pause: time.Millisecond}
	l := Loop{Store: store, Source: NewSource(text(t))}
	answer, err := l.Run(t.Context(), Order{Clients: 4, Size: 2048, Warm: 0.05, Seconds: 0.1})
	if err != nil {
		t.Fatal(err)
	}
	all := 0
	for _, states := range store.states {
		all += len(states)
	}
	if len(store.states) != 4 || answer.Saves != all || len(answer.Micros) == 0 || len(answer.Micros) >= all-4 {
		t.Errorf("%d clients, %d saves, answered %d, counted %d", len(store.states), all, answer.Saves, len(answer.Micros))
	}
	for _, m := range answer.Micros {
		if m < 1000 {
			t.Errorf("a save of a millisecond took %d µs", m)
		}
	}
}

func TestLimitsCountSaves(t *testing.T) {
	store := &memory{states: map[string][]string{}}
	l := Loop{Store: store, Source: NewSource(text(t))}
	answer, err := l.Run(t.Context(), Order{Clients: 2, Size: 2048, Limit: 7})
	if err != nil || answer.Saves != 16 || len(answer.Micros) != 14 {
		t.Errorf("%+v, %v", answer, err)
	}
}

func TestOneFailureEndsTheTurn(t *testing.T) {
	full := errors.New("disk full")
	store := &memory{states: map[string][]string{}, fail: full}
	l := Loop{Store: store, Source: NewSource(text(t))}
	if _, err := l.Run(t.Context(), Order{Clients: 3, Size: 2048, Seconds: 60}); !errors.Is(err, full) {
		t.Errorf("error %v", err)
	}
}

func TestServeAnswersEveryOrder(t *testing.T) {
	orders := `{"clients":1,"size":2048,"limit":2}` + "\n" + `{"clients":1,"size":2048,"limit":9}` + "\n"
	store := &memory{states: map[string][]string{}, fail: errors.New("no more")}
	var out bytes.Buffer
	if err := Serve(t.Context(), strings.NewReader(orders), &out, store, text(t)); err != nil {
		t.Fatal(err)
	}
	var answers []Answer
	for d := json.NewDecoder(&out); d.More(); {
		var a Answer
		if err := d.Decode(&a); err != nil {
			t.Fatal(err)
		}
		answers = append(answers, a)
	}
	if len(answers) != 3 || !answers[0].Ready || answers[1].Saves != 3 || answers[2].Error != "no more" {
		t.Errorf("%+v", answers)
	}
}

func TestCorpusNeedsNoEscapes(t *testing.T) {
	every := make([]byte, 256)
	for i := range every {
		every[i] = byte(i)
	}
	clean := plain(every)
	quoted, err := json.Marshal(string(clean))
	if err != nil || len(quoted) != len(clean)+2 {
		t.Errorf("%s, %v", quoted, err)
	}
	if _, err := ReadCorpus(t.TempDir(), 1<<20); err == nil {
		t.Error("a folder without source was taken for Go's")
	}
}
