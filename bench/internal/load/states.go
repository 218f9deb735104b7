package load

import (
	"fmt"
	"sync"
)

// Source makes the states of all clients out of one text. It remembers the histories, so that a
// client continues its history in the next measurement.
type Source struct {
	corpus []byte

	mu      sync.Mutex
	writers map[string]*Writer
}

// NewSource takes a text that needs no escapes inside a JSON string.
func NewSource(corpus []byte) *Source {
	return &Source{corpus: corpus, writers: map[string]*Writer{}}
}

// Writer is one agent: it makes its next state, as JSON.
type Writer struct {
	Name string

	corpus   []byte
	at       int // position in the corpus
	seq      int
	size     int
	step     int
	state    []byte
	messages []int // bytes of each, oldest first
}

const (
	stride = 1_048_573 // distance between the places in the corpus where clients begin
	frame  = len(`{"role":"assistant","content":""},`)
	ending = "]}"
)

// Writer returns client n of the clients that save states of a size.
func (s *Source) Writer(n, size, step int) *Writer {
	name := fmt.Sprintf("agent-%d-%d-%d", size, step, n)
	s.mu.Lock()
	defer s.mu.Unlock()
	w := s.writers[name]
	if w == nil {
		w = &Writer{Name: name, corpus: s.corpus, at: n * stride % len(s.corpus), size: size, step: step}
		s.writers[name] = w
	}
	return w
}

// Next returns the next state and its number, 1, 2, …. The bytes are valid until the next call of
// Next.
func (w *Writer) Next() (seq int, state []byte) {
	w.seq++
	if w.step == 0 {
		w.fresh()
	} else {
		w.grow()
	}
	return w.seq, w.state
}

// fresh makes a state that has nothing in common with the state before.
func (w *Writer) fresh() {
	w.state = fmt.Appendf(w.state[:0], `{"agent":%q,"step":%d,"text":"`, w.Name, w.seq)
	w.state = append(w.state, w.text(w.size-len(w.state)-2)...)
	w.state = append(w.state, `"}`...)
}

// grow makes the state before plus one message. A history that is a quarter larger than it should
// be forgets its oldest messages, until it is a quarter smaller. So on average it has its size.
func (w *Writer) grow() {
	if len(w.state) == 0 {
		w.state = fmt.Appendf(nil, `{"agent":%q,"messages":[`, w.Name)
		for len(w.state) < w.size {
			w.message()
		}
		w.state = append(w.state[:len(w.state)-1], ending...)
		return
	}
	w.state = append(w.state[:len(w.state)-len(ending)], ',')
	w.message()
	w.state = append(w.state[:len(w.state)-1], ending...)
	if len(w.state) > w.size*5/4 {
		w.forget()
	}
}

// message appends a message and a comma.
func (w *Writer) message() {
	before := len(w.state)
	w.state = append(w.state, `{"role":"assistant","content":"`...)
	w.state = append(w.state, w.text(max(w.step-frame, 1))...)
	w.state = append(w.state, `"},`...)
	w.messages = append(w.messages, len(w.state)-before)
}

func (w *Writer) forget() {
	drop, n := 0, 0
	for len(w.state)-drop > w.size*3/4 && n < len(w.messages)-1 {
		drop += w.messages[n]
		n++
	}
	head := len(fmt.Sprintf(`{"agent":%q,"messages":[`, w.Name))
	w.state = append(w.state[:head], w.state[head+drop:]...)
	w.messages = append(w.messages[:0], w.messages[n:]...)
}

// text returns the next n bytes of the corpus, which is longer than n.
func (w *Writer) text(n int) []byte {
	if w.at+n > len(w.corpus) {
		w.at = 0
	}
	w.at += n
	return w.corpus[w.at-n : w.at]
}
