package client

import (
	"cmp"
	"context"
	"encoding/json"
	"slices"

	ckpt "github.com/ckptsidecar/ckptsidecar"
	"github.com/google/uuid"
)

// Agent is one of the caller's agents. If no run is named, Save and Restore apply to the run for which
// "ckptsidecar exec" has started this process for the agent, else to main. Without exec, Restore applies
// to the newest run if there is no main. Latest and List apply to all runs unless one is named. See
// [Agent.Start] for other runs.
type Agent struct {
	client *Client
	Name   string
}

// Saved is the answer to a save. If the save was spooled or dropped, only ID,
// Agent, Run, Kind and Size are known.
type Saved struct {
	ckpt.Saved
	Fate    Fate
	Removed []string // JSON pointers of the parts of the state that JSON cannot hold, see Encode
}

// SaveOptions are the options of a save.
type SaveOptions struct {
	Kind     ckpt.Kind     // "" means routine
	Run      string        // "" means the run of exec, else main
	Labels   ckpt.Labels   // to find the checkpoint by
	Metadata any           // a JSON object
	Program  *ckpt.Program // generated code, and how far it has run
	Step     string        // the key of the step after which the state is saved
	Parent   string        // the checkpoint that the state comes from; "" for the run's last one
	ID       string        // a UUID of version 7, to repeat a save; "" makes a new one
	Content  string        // the content type of a state given as []byte; "" means JSON for json.RawMessage, else bytes
	Empty    bool          // save an empty state too, which is an error otherwise
	Strict   bool          // return an error instead of taking out what JSON cannot hold
	epoch    *int64
}

// Save saves a state: any value that JSON can hold (see [Encode]), a json.RawMessage unchanged, or
// []byte.
func (a *Agent) Save(ctx context.Context, state any, opts ...SaveOptions) (*Saved, error) {
	o := SaveOptions{}
	if len(opts) > 0 {
		o = opts[0]
	}
	r, removed, err := a.request(state, o)
	if err != nil {
		return nil, err
	}
	saved, err := a.client.wire.Save(ctx, r)
	f, err := fate(err)
	if err != nil {
		return nil, err
	}
	if saved == nil {
		saved = &ckpt.Saved{Checkpoint: ckpt.Checkpoint{ID: r.ID, Agent: r.Agent, Run: r.Run, Kind: r.Kind, Size: int64(len(r.State))}}
	}
	return &Saved{Saved: *saved, Fate: f, Removed: removed}, nil
}

func (a *Agent) request(state any, o SaveOptions) (*ckpt.SaveRequest, []string, error) {
	r := &ckpt.SaveRequest{ID: o.ID, Agent: a.Name, Run: cmp.Or(o.Run, execRun(a.Name)), Kind: o.Kind, Epoch: o.epoch, Parent: ckpt.Ref(o.Parent), Step: ckpt.Ref(o.Step),
		Labels: o.Labels, Program: o.Program, ContentType: o.Content}
	if r.Kind == "" {
		r.Kind = ckpt.KindRoutine
	}
	if r.ID == "" { // made here, so that every attempt to send has the same id
		id, err := uuid.NewV7()
		if err != nil {
			return nil, nil, err
		}
		r.ID = id.String()
	}
	var removed []string
	var err error
	if r.State, r.ContentType, removed, err = encodeState(state, o); err != nil {
		return nil, nil, err
	}
	if len(r.State) == 0 && !o.Empty {
		return nil, nil, ckpt.Errorf(ckpt.CodeInvalid, "the state is empty, so nothing was saved: to save an empty state, set SaveOptions.Empty")
	}
	if o.Metadata != nil {
		if r.Metadata, err = json.Marshal(o.Metadata); err != nil {
			return nil, nil, ckpt.Wrap(ckpt.CodeInvalid, err, "the metadata cannot be written as JSON: %v", err)
		}
	}
	return r, removed, nil
}

func encodeState(state any, o SaveOptions) (body []byte, content string, removed []string, err error) {
	switch state := state.(type) {
	case json.RawMessage:
		return state, ckpt.ContentTypeJSON, nil, nil
	case []byte:
		return state, o.Content, nil, nil
	}
	body, removed, err = Encode(state)
	if err == nil && o.Strict && len(removed) > 0 {
		err = ckpt.Errorf(ckpt.CodeInvalid, "JSON cannot hold what is at %s: change it, or save without Strict", removed[0])
	}
	return body, ckpt.ContentTypeJSON, removed, err
}

// RestoreOptions choose what to restore. The zero value means the newest checkpoint of the run of exec,
// else of the run main.
type RestoreOptions struct {
	Checkpoint string // an id
	Kind       ckpt.Kind
	Clean      bool // skip checkpoints that were saved after the first evidence of drift
	Run        string
	Reason     string // for the audit log
}

// Restore reads a state into v, and records that it was restored. v is a pointer for
// json.Unmarshal, or a *[]byte. If there is nothing to restore, the error has the code
// ckptsidecar.CodeNotFound.
func (a *Agent) Restore(ctx context.Context, v any, opts ...RestoreOptions) (*ckpt.Checkpoint, error) {
	r := ckpt.RestoreRequest{Agent: a.Name}
	if len(opts) > 0 {
		o := opts[0]
		r.Checkpoint, r.Kind, r.Clean, r.Run, r.Reason = o.Checkpoint, o.Kind, o.Clean, o.Run, o.Reason
	}
	if r.Checkpoint == "" {
		r.Run = cmp.Or(r.Run, execRun(a.Name))
	}
	ctx, cancel := a.client.forAnswer(ctx)
	defer cancel()
	c, _, err := a.client.wire.Restore(ctx, r)
	if err != nil {
		return nil, err
	}
	return c, decodeState(c, v)
}

func decodeState(c *ckpt.Checkpoint, v any) error {
	switch v := v.(type) {
	case nil:
		return nil
	case *[]byte:
		*v = slices.Clone(c.State)
		return nil
	}
	if err := json.Unmarshal(c.State, v); err != nil {
		return ckpt.Wrap(ckpt.CodeInvalid, err, "the state of %s does not fit into %T: %v", c.ID, v, err)
	}
	return nil
}

// LatestOptions choose which checkpoint Latest reads. The zero value means the newest of all runs.
type LatestOptions struct {
	Run   string
	Kind  ckpt.Kind
	Clean bool // skip checkpoints that were saved after the first evidence of drift
}

// Latest reads the newest checkpoint into v. It records nothing.
func (a *Agent) Latest(ctx context.Context, v any, opts ...LatestOptions) (*ckpt.Checkpoint, error) {
	f := ckpt.CheckpointFilter{Agent: a.Name}
	if len(opts) > 0 {
		f.Run, f.Kind = opts[0].Run, opts[0].Kind
		if opts[0].Clean {
			f.Suspect = new(bool)
		}
	}
	ctx, cancel := a.client.forAnswer(ctx)
	defer cancel()
	c, err := a.client.wire.Latest(ctx, f, v != nil)
	if err != nil || v == nil {
		return c, err
	}
	return c, decodeState(c, v)
}

// List returns the newest checkpoints, newest first. It sets f.Agent to this agent.
func (a *Agent) List(ctx context.Context, f ckpt.CheckpointFilter) (*ckpt.CheckpointPage, error) {
	f.Agent = a.Name
	ctx, cancel := a.client.forAnswer(ctx)
	defer cancel()
	return a.client.wire.Checkpoints(ctx, f)
}

// Diff compares two checkpoints: an RFC 6902 patch, and a summary by field.
func (a *Agent) Diff(ctx context.Context, from, to string) (*ckpt.Diff, error) {
	ctx, cancel := a.client.forAnswer(ctx)
	defer cancel()
	return a.client.wire.Diff(ctx, from, to)
}

// SetPolicy replaces the agent's own policy. Start with ckptsidecar.DefaultPolicy: values equal to
// the defaults are left to the policies for all agents. It returns the effective policy.
func (a *Agent) SetPolicy(ctx context.Context, p ckpt.Policy) (*ckpt.Policy, error) {
	ctx, cancel := a.client.forAnswer(ctx)
	defer cancel()
	return a.client.wire.SetPolicy(ctx, a.Name, p)
}

// Agent names one of the caller's agents. The agent need not exist: its first
// save creates it.
func (c *Client) Agent(name string) *Agent {
	c.init()
	return &Agent{client: c, Name: name}
}
