package adk

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	ckpt "github.com/ckptsidecar/ckptsidecar"
	"github.com/ckptsidecar/ckptsidecar/client"
	"github.com/google/uuid"
	"google.golang.org/adk/session"
)

// DefaultAgent is the agent of a Service that names none.
const DefaultAgent = "adk"

// Service is a session.Service. Each session is a run of the agent, and each event is a checkpoint
// of the run with the whole session. The state of an app and the state of a user are runs in the
// same way. Any number of processes can use one session: each process claims the run for its
// change. If another process claims the run meanwhile, it reads the session again and repeats the
// change.
type Service struct {
	Client *client.Client // nil means one with the defaults
	Agent  string         // "" means DefaultAgent

	documents documents
}

var _ session.Service = (*Service)(nil)

// kept is the saved form of a session.
type kept struct {
	App     string            `json:"app"`
	User    string            `json:"user"`
	ID      string            `json:"id"`
	Updated time.Time         `json:"updated"`
	State   map[string]any    `json:"state"`
	Events  []json.RawMessage `json:"events"`
}

// shared is the saved form of the state of an app or a user.
type shared struct {
	App   string         `json:"app"`
	User  string         `json:"user,omitempty"`
	State map[string]any `json:"state"`
}

// Create begins a session. It returns an error if the session exists.
func (s *Service) Create(ctx context.Context, req *session.CreateRequest) (*session.CreateResponse, error) {
	if req.AppName == "" || req.UserID == "" {
		return nil, fmt.Errorf("app_name and user_id are required, got app_name: %q, user_id: %q", req.AppName, req.UserID)
	}
	k := kept{App: req.AppName, User: req.UserID, ID: cmp.Or(req.SessionID, uuid.NewString()), Updated: time.Now()}
	delta := split(req.State)
	k.State = delta.session
	exists := false
	err := s.change(ctx, sessionPlace(k.App, k.User, k.ID), func(old []byte) ([]byte, error) {
		if exists = old != nil; exists {
			return nil, nil
		}
		return json.Marshal(k)
	})
	if err == nil && exists {
		err = fmt.Errorf("session %s already exists", k.ID)
	}
	if err == nil {
		err = s.share(ctx, k.App, k.User, delta)
	}
	if err != nil {
		return nil, err
	}
	return s.response(ctx, &k)
}

func (s *Service) response(ctx context.Context, k *kept) (*session.CreateResponse, error) {
	made, err := s.open(ctx, k, nil)
	if err != nil {
		return nil, err
	}
	return &session.CreateResponse{Session: made}, nil
}

// Get returns a session with its events, or with the requested part of them.
func (s *Service) Get(ctx context.Context, req *session.GetRequest) (*session.GetResponse, error) {
	if err := checkNames(req.AppName, req.UserID, req.SessionID); err != nil {
		return nil, err
	}
	k, err := s.read(ctx, req.AppName, req.UserID, req.SessionID)
	if err != nil {
		return nil, err
	}
	if k == nil {
		return nil, fmt.Errorf("session %s not found", req.SessionID)
	}
	if n := req.NumRecentEvents; n > 0 {
		k.Events = k.Events[max(len(k.Events)-n, 0):]
	}
	found, err := decodeEvents(k.Events, req.After)
	if err != nil {
		return nil, err
	}
	got, err := s.open(ctx, k, found)
	if err != nil {
		return nil, err
	}
	return &session.GetResponse{Session: got}, nil
}

// List returns the sessions of an app, or those of one user, without their events.
func (s *Service) List(ctx context.Context, req *session.ListRequest) (*session.ListResponse, error) {
	if req.AppName == "" {
		return nil, fmt.Errorf("app_name is required, got app_name: %q", req.AppName)
	}
	runs, err := s.runs(ctx, sessionWorkflow)
	if err != nil {
		return nil, err
	}
	answer := &session.ListResponse{Sessions: []session.Session{}}
	for _, run := range runs {
		state, err := s.latest(ctx, run)
		if err != nil {
			return nil, err
		}
		var k kept
		if state == nil {
			continue
		}
		if err := json.Unmarshal(state, &k); err != nil {
			return nil, foreign(run, err)
		}
		if k.App != req.AppName || req.UserID != "" && k.User != req.UserID {
			continue
		}
		one, err := s.open(ctx, &k, nil)
		if err != nil {
			return nil, err
		}
		answer.Sessions = append(answer.Sessions, one)
	}
	return answer, nil
}

// Delete removes a session, also from the daemon's disk. The state of its user and app stays.
func (s *Service) Delete(ctx context.Context, req *session.DeleteRequest) error {
	if err := checkNames(req.AppName, req.UserID, req.SessionID); err != nil {
		return err
	}
	return s.remove(ctx, sessionPlace(req.AppName, req.UserID, req.SessionID))
}

// AppendEvent adds an event to a session of this service, and applies its changes of the state. It
// does not keep a partial event. It skips an event whose id the session already has, so that a
// caller can repeat an append whose answer was lost.
func (s *Service) AppendEvent(ctx context.Context, current session.Session, event *session.Event) error {
	switch {
	case current == nil:
		return errors.New("session is nil")
	case event == nil:
		return errors.New("event is nil")
	case event.Partial:
		return nil
	}
	own, ok := current.(*opened)
	if !ok {
		return fmt.Errorf("unexpected session type %T for session ID %s", current, current.ID())
	}
	delta := split(event.Actions.StateDelta)
	stored := *event
	stored.Actions.StateDelta = maps.Clone(event.Actions.StateDelta)
	maps.DeleteFunc(stored.Actions.StateDelta, func(key string, _ any) bool { return strings.HasPrefix(key, session.KeyPrefixTemp) })
	text, err := json.Marshal(&stored)
	if err != nil {
		return ckpt.Wrap(ckpt.CodeInvalid, err, "the event %s cannot be written as JSON: %v", event.ID, err)
	}
	if err := s.share(ctx, own.app, own.user, delta); err != nil {
		return err
	}
	found := false
	err = s.change(ctx, sessionPlace(own.app, own.user, own.id), func(old []byte) ([]byte, error) {
		if found = old != nil; !found {
			return nil, nil
		}
		var k kept
		if err := json.Unmarshal(old, &k); err != nil {
			return nil, err
		}
		if has(k.Events, event.ID) {
			return nil, nil
		}
		if k.State == nil {
			k.State = map[string]any{}
		}
		maps.Copy(k.State, delta.session)
		k.Events, k.Updated = append(k.Events, text), event.Timestamp
		return json.Marshal(k)
	})
	if err == nil && !found {
		err = errors.New("session not found, cannot apply event")
	}
	if err != nil {
		return err
	}
	own.append(event, &stored)
	return nil
}

// has says whether the events of a session include one with an id. It returns false for the id "".
func has(events []json.RawMessage, id string) bool {
	return id != "" && slices.ContainsFunc(events, func(text json.RawMessage) bool {
		var e struct{ ID string }
		return bytes.Contains(text, []byte(id)) && json.Unmarshal(text, &e) == nil && e.ID == id
	})
}

func (s *Service) read(ctx context.Context, app, user, id string) (*kept, error) {
	run := sessionPlace(app, user, id).run
	state, err := s.latest(ctx, run)
	if state == nil || err != nil {
		return nil, err
	}
	var k kept
	if err := json.Unmarshal(state, &k); err != nil {
		return nil, foreign(run, err)
	}
	return &k, nil
}

// share changes the state of an app and of a user.
func (s *Service) share(ctx context.Context, app, user string, d deltas) error {
	for _, one := range []struct {
		place place
		of    shared
		delta map[string]any
	}{{appPlace(app), shared{App: app}, d.app}, {userPlace(app, user), shared{App: app, User: user}, d.user}} {
		if len(one.delta) == 0 {
			continue
		}
		err := s.change(ctx, one.place, func(old []byte) ([]byte, error) {
			next := one.of
			if old != nil {
				if err := json.Unmarshal(old, &next); err != nil {
					return nil, err
				}
			}
			if next.State == nil {
				next.State = map[string]any{}
			}
			maps.Copy(next.State, one.delta)
			return json.Marshal(next)
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// open makes a session from its saved form, with the state of its app and user.
func (s *Service) open(ctx context.Context, k *kept, events []*session.Event) (*opened, error) {
	o := &opened{app: k.App, user: k.User, id: k.ID, updated: k.Updated, state: map[string]any{}, events: events}
	maps.Copy(o.state, k.State)
	for prefix, at := range map[string]place{session.KeyPrefixApp: appPlace(k.App), session.KeyPrefixUser: userPlace(k.App, k.User)} {
		state, err := s.latest(ctx, at.run)
		if err != nil {
			return nil, err
		}
		var of shared
		if state != nil {
			if err := json.Unmarshal(state, &of); err != nil {
				return nil, foreign(at.run, err)
			}
		}
		for key, value := range of.State {
			o.state[prefix+key] = value
		}
	}
	return o, nil
}

// deltas are the changes of a state, separated by app, user and session, without their prefixes.
type deltas struct{ app, user, session map[string]any }

func split(state map[string]any) deltas {
	d := deltas{map[string]any{}, map[string]any{}, map[string]any{}}
	for key, value := range state {
		if name, found := strings.CutPrefix(key, session.KeyPrefixApp); found {
			d.app[name] = value
		} else if name, found := strings.CutPrefix(key, session.KeyPrefixUser); found {
			d.user[name] = value
		} else if !strings.HasPrefix(key, session.KeyPrefixTemp) {
			d.session[key] = value
		}
	}
	return d
}

// decodeEvents reads events, except those before a time.
func decodeEvents(texts []json.RawMessage, after time.Time) ([]*session.Event, error) {
	events := make([]*session.Event, 0, len(texts))
	for _, text := range texts {
		e := new(session.Event)
		if err := json.Unmarshal(text, e); err != nil {
			return nil, ckpt.Wrap(ckpt.CodeInvalid, err, "an event of the session cannot be read: %v", err)
		}
		if after.IsZero() || !e.Timestamp.Before(after) {
			events = append(events, e)
		}
	}
	return events, nil
}

func checkNames(app, user, id string) error {
	if app == "" || user == "" || id == "" {
		return fmt.Errorf("app_name, user_id, session_id are required, got app_name: %q, user_id: %q, session_id: %q", app, user, id)
	}
	return nil
}
