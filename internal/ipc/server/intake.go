package server

import (
	"encoding/json"
	"errors"
	"strings"

	ckpt "github.com/ckptsidecar/ckptsidecar"
	"github.com/ckptsidecar/ckptsidecar/internal/ipc"
	"github.com/ckptsidecar/ckptsidecar/internal/jsontext"
)

// envelope is a save in the form that people write for curl.
type envelope struct {
	Kind     ckpt.Kind       `json:"kind"`
	State    json.RawMessage `json:"state"`
	Run      string          `json:"run"`
	Epoch    *int64          `json:"epoch"`
	Parent   ckpt.Ref        `json:"parent"`
	ForkFrom ckpt.Ref        `json:"fork_from"`
	Step     ckpt.Ref        `json:"step"`
	Labels   ckpt.Labels     `json:"labels"`
	Metadata json.RawMessage `json:"metadata"`
	Program  *ckpt.Program   `json:"program"`
}

// contentType returns the content type of the request, "" if it has none.
func (c *call) contentType() (string, error) {
	s, err := c.header("Content-Type")
	if s == nil {
		return "", err
	}
	return *s, nil
}

// media returns a content type without its parameters.
func media(contentType string) string {
	first, _, _ := strings.Cut(contentType, ";")
	return strings.ToLower(strings.TrimSpace(first))
}

func (c *call) envelopeSave() (*ckpt.SaveRequest, error) {
	if err := c.query.refuse("put it into the JSON body", postParams...); err != nil {
		return nil, err
	}
	if err := c.refuseHeaders("put it into the JSON body", ipc.HeaderMetadata, ipc.HeaderProgram); err != nil {
		return nil, err
	}
	if err := c.refuseSums(); err != nil {
		return nil, err
	}
	limits := &c.server.limits
	body, err := c.readBody(limits.maxEnvelope(), 2)
	if err != nil {
		return nil, err
	}
	trees, err := c.trees()
	if err != nil {
		return nil, err
	}
	var e envelope
	if err := jsontext.Decode(body, &e); err != nil {
		return nil, ckpt.Errorf(ckpt.CodeInvalid, "the body is wrong: %v", err)
	}
	switch {
	case e.State == nil:
		return nil, ckpt.Errorf(ckpt.CodeInvalid, "state is missing: give any JSON value")
	case int64(len(e.State)) > limits.MaxBody:
		return nil, ckpt.Errorf(ckpt.CodeTooLarge, "the state is larger than the %d bytes that are allowed", limits.MaxBody)
	}
	return &ckpt.SaveRequest{
		IdempotencyKey: c.key, Agent: c.agent, Run: e.Run, Kind: e.Kind, Epoch: e.Epoch, Parent: e.Parent, ForkFrom: e.ForkFrom, Step: e.Step,
		Labels: e.Labels, Metadata: object(e.Metadata), Program: e.Program, ContentType: ckpt.ContentTypeJSON, State: e.State, Trees: trees,
	}, ckpt.CheckKind(e.Kind)
}

// refuseHeaders refuses headers that this form of a save does not read.
func (c *call) refuseHeaders(why string, names ...string) error {
	for _, name := range names {
		if len(c.r.Header[name]) > 0 {
			return ckpt.Errorf(ckpt.CodeInvalid, "the header %s is not allowed here: %s", name, why)
		}
	}
	return nil
}

// refuseSums refuses checksums where the client does not send the state itself.
func (c *call) refuseSums() error {
	if err := c.refuseHeaders("it belongs to a raw state or a change of one", ipc.HeaderCRC32C); err != nil {
		return err
	}
	return c.refuseHeaders(belongsToChanges, ipc.HeaderBaseSHA256)
}

// belongsToChanges says why a raw state is refused that names a base.
const belongsToChanges = "it belongs to changes (Content-Type: " + ipc.TypeDelta + ")"

// object returns an optional JSON object. null means none.
func object(raw json.RawMessage) json.RawMessage {
	if string(raw) == "null" {
		return nil
	}
	return raw
}

// saveParameters reads everything in a raw or patch save that is not in its body.
func (c *call) saveParameters(contentType string) (*ckpt.SaveRequest, error) {
	q := c.query
	r := &ckpt.SaveRequest{
		IdempotencyKey: c.key, Agent: c.agent, Run: q.get("run"), Kind: ckpt.Kind(q.get("kind")),
		Parent: ckpt.Ref(q.get("parent")), ForkFrom: ckpt.Ref(q.get("fork_from")), Step: ckpt.Ref(q.get("step")),
	}
	if err := ckpt.CheckKind(r.Kind); err != nil {
		return nil, hintEnvelope(err, r.Kind, contentType)
	}
	var err error
	if r.Epoch, err = q.number("epoch", 0, 1<<62); err != nil {
		return nil, err
	}
	if r.Labels, err = q.labels(); err != nil {
		return nil, err
	}
	if r.Metadata, err = c.metadata(); err != nil {
		return nil, err
	}
	if r.Trees, err = c.trees(); err != nil {
		return nil, err
	}
	r.Program, err = c.program()
	return r, err
}

// hintEnvelope adds a hint for people who forgot to tell curl that they send JSON.
func hintEnvelope(err error, kind ckpt.Kind, contentType string) error {
	if kind != "" || media(contentType) != ipc.TypeForm {
		return err
	}
	return ckpt.Errorf(ckpt.CodeInvalid,
		"kind is missing: with the header \"Content-Type: application/json\" the body is a JSON object that has it; "+
			"without, it is the state itself, and the query has it, as in ?kind=routine")
}

func (c *call) metadata() (json.RawMessage, error) {
	s, err := c.header(ipc.HeaderMetadata)
	if s == nil {
		return nil, err
	}
	if *s == "" {
		return nil, ckpt.Errorf(ckpt.CodeInvalid, "the header %s is empty", ipc.HeaderMetadata)
	}
	return object(json.RawMessage(*s)), nil
}

func (c *call) program() (*ckpt.Program, error) {
	s, err := c.header(ipc.HeaderProgram)
	if s == nil {
		return nil, err
	}
	var p *ckpt.Program
	if err := jsontext.Decode([]byte(*s), &p); err != nil {
		return nil, ckpt.Errorf(ckpt.CodeInvalid, "the header %s is wrong: %v", ipc.HeaderProgram, err)
	}
	return p, nil
}

// checkSum compares a state with the checksum of the client, if it sent one.
func (c *call) checkSum(state []byte) error {
	want, err := c.header(ipc.HeaderCRC32C)
	if err != nil || want == nil || *want == ipc.CRC32C(state) {
		return err
	}
	return errOtherSum
}

var errOtherSum = errors.New("its CRC-32C is not what the header " + ipc.HeaderCRC32C + " says")
