//go:build unix

package faulttest

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	ckpt "github.com/ckptsidecar/ckptsidecar"
	"github.com/ckptsidecar/ckptsidecar/internal/ipc/client"
	"github.com/ckptsidecar/ckptsidecar/internal/ipc/endpoint"
)

// History records what clients sent and which answers they got. The daemon
// cannot change this record. Many clients write it at once, and Check compares
// it with what is stored.
type History struct {
	mu    sync.Mutex
	began time.Time
	saves map[string]*Sent // by id
}

// NewHistory starts a record.
func NewHistory() *History {
	return &History{began: time.Now(), saves: map[string]*Sent{}}
}

// Sent is one save as its client knows it, regardless of the number of tries.
type Sent struct {
	ID, Agent, Run string
	Size           int64
	SHA256         string
	First          time.Duration // time of the first try, since the history began
	Tries          int
	Last           time.Time     // time of the last try
	Open           bool          // its last try has not ended
	Longest        time.Duration // the longest of its tries
	Answered       time.Duration // time of the acknowledgement; 0 if there was none
	Seq            int64         // the acknowledged number
	Unknown        bool          // a try ended without an answer about its outcome
	Refused        bool          // the last answer about it was not_saved
	Word           string        // the text of that answer
	Replayed       bool          // an earlier try had saved it, but its answer did not arrive
	Contradictions []string      // acknowledgements of this save that differ
}

// Acked reports whether an answer promised that the save is on disk.
func (s *Sent) Acked() bool { return s.Answered > 0 }

// Send records that a save is about to be sent. It is called before the save
// can take effect.
func (h *History) Send(r *ckpt.SaveRequest) {
	h.mu.Lock()
	defer h.mu.Unlock()
	s := h.saves[r.ID]
	if s == nil {
		run := r.Run
		if run == "" {
			run = ckpt.MainRun
		}
		s = &Sent{ID: r.ID, Agent: r.Agent, Run: run, Size: int64(len(r.State)), SHA256: sum(r.State), First: time.Since(h.began)}
		h.saves[r.ID] = s
	}
	s.Tries++
	s.Last, s.Open = time.Now(), true
}

// Answer records how a try ended.
func (h *History) Answer(r *ckpt.SaveRequest, saved *ckpt.Saved, err error) {
	now := time.Since(h.began)
	h.mu.Lock()
	defer h.mu.Unlock()
	s := h.saves[r.ID]
	s.Open, s.Longest = false, max(s.Longest, time.Since(s.Last))
	if err == nil {
		s.acknowledge(saved, now)
		return
	}
	s.Refused, s.Word = outcome(err) == ckpt.OutcomeNotSaved, err.Error()
	s.Unknown = s.Unknown || !s.Refused
}

func (s *Sent) acknowledge(saved *ckpt.Saved, now time.Duration) {
	if s.Answered == 0 {
		s.Answered, s.Seq = now, saved.Seq
	}
	switch {
	case saved.ID != s.ID:
		s.Contradictions = append(s.Contradictions, "another id was acknowledged: "+saved.ID)
	case saved.SHA256 != s.SHA256 || saved.Size != s.Size:
		s.Contradictions = append(s.Contradictions, "other bytes were acknowledged")
	case saved.Seq != s.Seq:
		s.Contradictions = append(s.Contradictions, "two sequence numbers were acknowledged")
	}
	s.Refused, s.Replayed = false, s.Replayed || saved.Replayed
}

// outcome returns what an error says about the save. If the daemon was never
// reached, the save is not saved.
func outcome(err error) ckpt.Outcome {
	var nobody *endpoint.DialError
	var e *ckpt.Error
	switch {
	case errors.As(err, &e):
		return e.OutcomeOrDefault()
	case errors.As(err, &nobody):
		return ckpt.OutcomeNotSaved
	}
	return ckpt.OutcomeUnknown
}

// Save sends a save once and records the request and its answer.
func (h *History) Save(ctx context.Context, c *client.Client, r *ckpt.SaveRequest) (*ckpt.Saved, error) {
	h.Send(r)
	saved, err := c.Save(ctx, r)
	h.Answer(r, saved, err)
	return saved, err
}

// SaveUntilAnswered repeats the same save as long as its outcome can change, as
// our clients do, until the context ends.
func (h *History) SaveUntilAnswered(ctx context.Context, c *client.Client, r *ckpt.SaveRequest) (*ckpt.Saved, error) {
	for {
		saved, err := h.Save(ctx, c, r)
		if err == nil || ctx.Err() != nil || !passes(err) {
			return saved, err
		}
		select {
		case <-ctx.Done():
		case <-time.After(3 * time.Millisecond):
		}
	}
}

// passes reports whether the cause of an error can go away by itself.
func passes(err error) bool {
	var nobody *endpoint.DialError
	var e *ckpt.Error
	return errors.As(err, &nobody) || errors.As(err, &e) && e.Retryable()
}

// Sum is the totals of a history.
type Sum struct {
	Saves, Acked, Retried, Unanswered, Unknown, Replayed int

	Bytes   int64
	Longest time.Duration // the longest of all tries
}

// Sum returns the totals.
func (h *History) Sum() Sum {
	h.mu.Lock()
	defer h.mu.Unlock()
	var n Sum
	for _, s := range h.saves {
		n.Saves++
		if s.Acked() {
			n.Acked++
			n.Bytes += s.Size
		} else {
			n.Unanswered++
		}
		if s.Tries > 1 {
			n.Retried++
		}
		if s.Unknown {
			n.Unknown++
		}
		if s.Replayed {
			n.Replayed++
		}
		n.Longest = max(n.Longest, s.Longest)
	}
	return n
}

// InFlightSince counts the tries that began before a moment and have not ended
// yet.
func (h *History) InFlightSince(moment time.Time) int {
	h.mu.Lock()
	defer h.mu.Unlock()
	n := 0
	for _, s := range h.saves {
		if s.Open && s.Last.Before(moment) {
			n++
		}
	}
	return n
}

// list returns all saves in the order of their first try.
func (h *History) list() []Sent {
	h.mu.Lock()
	defer h.mu.Unlock()
	list := make([]Sent, 0, len(h.saves))
	for _, s := range h.saves {
		list = append(list, *s)
	}
	slices.SortFunc(list, func(a, b Sent) int { return int(a.First - b.First) })
	return list
}
