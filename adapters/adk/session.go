package adk

import (
	"iter"
	"maps"
	"slices"
	"sync"
	"time"

	"google.golang.org/adk/session"
)

// opened is a session as it was read, plus the events that were added here.
type opened struct {
	app, user, id string

	mu      sync.RWMutex
	updated time.Time
	state   map[string]any
	events  []*session.Event
}

func (o *opened) ID() string      { return o.id }
func (o *opened) AppName() string { return o.app }
func (o *opened) UserID() string  { return o.user }

func (o *opened) State() session.State { return (*state)(o) }

func (o *opened) Events() session.Events {
	o.mu.RLock()
	defer o.mu.RUnlock()
	return events(slices.Clone(o.events))
}

func (o *opened) LastUpdateTime() time.Time {
	o.mu.RLock()
	defer o.mu.RUnlock()
	return o.updated
}

// append adds an event that was stored. Its temporary changes of the state are visible only here.
func (o *opened) append(event, stored *session.Event) {
	o.mu.Lock()
	defer o.mu.Unlock()
	maps.Copy(o.state, event.Actions.StateDelta)
	event.Actions.StateDelta = stored.Actions.StateDelta
	o.events = append(o.events, event)
	o.updated = event.Timestamp
}

// state is the state of an opened session.
type state opened

func (s *state) Get(key string) (any, error) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	value, ok := s.state[key]
	if !ok {
		return nil, session.ErrStateKeyNotExist
	}
	return value, nil
}

// Set changes the state of this session only, as in the kit's own services. To keep a change, send
// it with an event.
func (s *state) Set(key string, value any) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.state[key] = value
	return nil
}

func (s *state) All() iter.Seq2[string, any] {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return maps.All(maps.Clone(s.state))
}

type events []*session.Event

func (e events) All() iter.Seq[*session.Event] { return slices.Values(e) }
func (e events) Len() int                      { return len(e) }

func (e events) At(i int) *session.Event {
	if i < 0 || i >= len(e) {
		return nil
	}
	return e[i]
}
