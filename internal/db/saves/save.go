package saves

import (
	"context"
	"encoding/json"
	"strconv"

	ckpt "github.com/ckptsidecar/ckptsidecar"
	"github.com/ckptsidecar/ckptsidecar/internal/db/blob"
	"github.com/ckptsidecar/ckptsidecar/internal/db/driftlog"
	"github.com/ckptsidecar/ckptsidecar/internal/db/ledger"
	"github.com/ckptsidecar/ckptsidecar/internal/secrets"
	"github.com/ckptsidecar/ckptsidecar/internal/wellformed"
)

// Save is one save on its way: the request, prepared outside the writer.
type Save struct {
	Scope     ckpt.Scope
	Request   *ckpt.SaveRequest // in the form to store
	State     blob.Encoded
	Printed   *driftlog.Printed // what the detectors need of the state; nil if drift is not watched
	Operation ckpt.Ref          // the key of the operation that it is taken for
	Entry     ledger.AuditEntry
	Leave     func() // lets the next save of the run begin; must be called when this one is done

	key     string // the idempotency key: from the client, or the checkpoint's id
	print   string
	program any
	secrets []secrets.Secret // what looks like secrets in the state
	id      string           // made here if the client made none
}

// NewSave does everything of a save that needs no transaction. It waits until no other save of the
// run is on its way, so that each is based on the one before.
func (s *Saves) NewSave(ctx context.Context, sc ckpt.Scope, r *ckpt.SaveRequest) (_ *Save, err error) {
	r, beside, err := s.screenSave(sc, r)
	if err != nil {
		return nil, err
	}
	v := &Save{Request: r, Scope: sc, key: r.IdempotencyKey, Entry: ledger.Entry(sc, "save", r.Agent)}
	v.Entry.Run, v.Entry.Subject = ledger.RunName(r.Run), r.ID
	if len(r.Trees) > 0 {
		v.Entry.Detail = map[string]any{"trees": r.Trees}
	}
	if r.ID != "" {
		v.key = r.ID
	}
	if err := v.EncodeProgram(); err != nil {
		return nil, err
	}
	key := blob.RunKey{Owner: sc.Whose(), Agent: r.Agent, Run: ledger.RunName(r.Run)}
	if v.Leave, err = s.States.Enter(key, len(r.State), s.Opt.WriteTimeout); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			v.Leave()
		}
	}()
	if v.State, v.secrets, err = s.Preparer.Prepare(key, sc, r); err != nil {
		return v, err
	}
	v.secrets = append(v.secrets, beside...)
	if v.Printed, err = s.PrintState(ctx, key, r, &v.State); err != nil || v.key == "" {
		return v, err
	}
	text, err := v.appendPrint(make([]byte, 0, 256))
	v.print = ledger.FingerprintOf(text)
	return v, err
}

// appendPrint appends the text that distinguishes the save from others under the same key, in the
// form in which json.Marshal writes a list. A print is stored for as long as its key, so this form
// must not change.
func (v *Save) appendPrint(b []byte) ([]byte, error) {
	r := v.Request
	labels, err := r.Labels.MarshalJSON()
	b = ledger.AppendString(append(b, `["save",`...), ledger.RunName(r.Run))
	b = ledger.AppendString(append(b, ','), string(r.Kind))
	b = ledger.AppendRef(append(b, ','), r.Parent)
	b = ledger.AppendRef(append(b, ','), r.Step)
	b = append(append(b, ','), labels...)
	b = ledger.AppendString(append(b, ','), string(r.Metadata))
	if program, ok := v.program.(string); ok {
		b = ledger.AppendString(append(b, ','), program)
	} else {
		b = append(b, ",null"...)
	}
	b = ledger.AppendString(append(b, ','), r.ContentType)
	b = ledger.AppendString(append(b, ','), v.State.Sent)
	if r.ForkFrom != "" {
		b = ledger.AppendRef(append(b, ','), r.ForkFrom)
	}
	return append(b, ']'), err
}

// screenSave returns the request in the form to store, except the state, and the secrets that it
// found outside the state.
func (s *Saves) screenSave(sc ckpt.Scope, r *ckpt.SaveRequest) (*ckpt.SaveRequest, []secrets.Secret, error) {
	if len(r.Labels) == 0 && len(r.Metadata) == 0 && r.Program == nil {
		return r, nil, nil
	}
	clean := *r
	c := s.Screen(sc, r.Agent, "checkpoint")
	c.Labels(&clean.Labels)
	clean.Metadata = c.Value("metadata", r.Metadata, true)
	if r.Program != nil {
		before := len(c.Found)
		c.Value("program", []byte(r.Program.Source), false)
		if len(c.Found) > before && c.Mode == ckpt.SecretsRedact {
			c.Refuse(" a program cannot be redacted, because its offset counts bytes;")
		}
	}
	c.Again(func() error { return wellformed.SaveRest(&clean) })
	return &clean, c.Found, c.Err
}

// EncodeProgram encodes the program for its column.
func (v *Save) EncodeProgram() error {
	if v.Request.Program == nil {
		return nil
	}
	text, err := json.Marshal(v.Request.Program)
	v.program = string(text)
	return err
}

// answer makes the reply from the request and the decisions.
func (v *Save) answer(agent *ledger.AgentRow, reply ledger.SavedReply) *ckpt.Saved {
	r := v.Request
	return &ckpt.Saved{Pruned: reply.Pruned, AsSent: !v.State.Redacted, Checkpoint: ckpt.Checkpoint{
		ID: reply.ID, Agent: agent.Name, Owner: agent.Owner, Run: ledger.RunName(r.Run), Seq: reply.Seq, Kind: r.Kind, Parent: reply.Parent,
		CreatedAt: reply.CreatedAt, Size: v.State.Size, StoredSize: reply.StoredSize, SHA256: v.State.Sha256, ContentType: r.ContentType,
		Labels: r.Labels, Metadata: json.RawMessage(ledger.MetadataText(r.Metadata)), Program: r.Program, Step: r.Step, Suspect: reply.Suspect,
		Trees: r.Trees,
	}}
}

// AppendReply appends a save's reply in the form in which json.Marshal writes it.
func AppendReply(b []byte, r *ledger.SavedReply) []byte {
	b = ledger.AppendString(append(b, `{"id":`...), r.ID)
	b = strconv.AppendInt(append(b, `,"seq":`...), r.Seq, 10)
	b = ledger.AppendRef(append(b, `,"parent":`...), r.Parent)
	b = ledger.AppendTime(append(b, `,"created_at":`...), r.CreatedAt)
	b = strconv.AppendInt(append(b, `,"stored_size":`...), r.StoredSize, 10)
	if r.Suspect {
		b = append(b, `,"suspect":true`...)
	}
	b = append(b, `,"pruned":[`...)
	for i, id := range r.Pruned {
		if i > 0 {
			b = append(b, ',')
		}
		b = ledger.AppendString(b, id)
	}
	return append(b, "]}"...)
}

// Saves takes checkpoints.
type Saves struct {
	*driftlog.Drifts
	Trees namer
}

// namer lets checkpoints name trees of files. internal/db/files implements it.
type namer interface {
	// MayName refuses trees that do not exist.
	MayName(tx *ledger.Tx, agent *ledger.AgentRow, trees []string) error
	// Name lets a checkpoint name trees, or, if there are none, the trees of the checkpoint that
	// its run was forked from.
	Name(tx *ledger.Tx, agent *ledger.AgentRow, run *ledger.RunRow, c *ledger.CheckpointRow, trees []string, forkedFrom ckpt.Ref) error
}

// New makes a Saves for the runs that d watches.
func New(d *driftlog.Drifts) *Saves { return &Saves{Drifts: d} }
