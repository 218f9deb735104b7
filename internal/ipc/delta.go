package ipc

import (
	ckpt "github.com/ckptsidecar/ckptsidecar"
	"github.com/ckptsidecar/ckptsidecar/internal/delta"
)

// headerBaseSHA256 is the hash of the base as the client has it.
const headerBaseSHA256 = "Ckpt-Base-Sha256"

// deltaSave makes the state of a change to the base that the query names. From
// then on it is a save like any other: checked, hashed and stored whole or as
// the store likes.
func (c *call) deltaSave(id string) (*ckpt.SaveRequest, error) {
	base := c.query.get("base")
	if base == "" {
		return nil, ckpt.Errorf(ckpt.CodeInvalid, "base is missing: name the checkpoint that is changed, as in ?base=ID")
	}
	if err := ckpt.CheckID(base); err != nil {
		return nil, err
	}
	sum, err := c.baseHash()
	if err != nil {
		return nil, err
	}
	r, err := c.saveParameters(typeDelta)
	if err != nil {
		return nil, err
	}
	r.ID, r.ContentType = id, ckpt.ContentTypeJSON
	if t := c.query.get("content_type"); t != "" {
		r.ContentType = t
	}
	wire, err := c.readBody(c.server.limits.MaxBody, 1)
	if err != nil {
		return nil, err
	}
	r.State, err = c.applyDelta(base, sum, wire)
	return r, err
}

func (c *call) baseHash() (string, error) {
	s, err := c.header(headerBaseSHA256)
	if err != nil {
		return "", err
	}
	if s == nil || len(*s) != 64 {
		return "", ckpt.Errorf(ckpt.CodeInvalid, "the header %s is missing or not 64 hexadecimal digits: it is the hash of the base that you have", headerBaseSHA256)
	}
	return *s, nil
}

// applyDelta reads the base and makes the state, for which there must be room.
func (c *call) applyDelta(id, sum string, wire []byte) ([]byte, error) {
	states, bytes := &c.conn.owner.states, &c.conn.owner.bytes
	if err := c.hold(states, 1); err != nil {
		return nil, err
	}
	defer c.giveBack(states) // the base is needed here alone
	ctx, cancel := c.writing(c.server.limits.ReadTimeout)
	defer cancel()
	base, is, err := c.server.store.Base(ctx, c.scope, c.agent, id)
	switch code := ckpt.CodeOf(err); {
	case code == ckpt.CodeNotFound, code == ckpt.CodeCorrupt:
		return nil, ckpt.Errorf(ckpt.CodeBaseMissing, "the base %s is not a checkpoint of this agent, or not any more: send the whole state", id)
	case err != nil:
		return nil, err
	case is != sum:
		return nil, ckpt.Errorf(ckpt.CodeBaseMissing, "the base %s has another hash than the header %s says: send the whole state", id, headerBaseSHA256)
	}
	size, err := delta.Size(len(base), wire)
	if err != nil {
		return nil, ckpt.Errorf(ckpt.CodeInvalid, "the change is wrong: %v", err)
	}
	if int64(size) > c.server.limits.MaxBody {
		return nil, bodyTooLarge(c.server.limits.MaxBody)
	}
	if !bytes.tryEnter(int64(size)) { // who holds some and waited for more could block others who do the same
		return nil, bytes.busy()
	}
	c.keep(bytes, int64(size))
	state, err := delta.Apply(base, wire)
	if err != nil {
		return nil, ckpt.Errorf(ckpt.CodeInvalid, "the change is wrong: %v", err)
	}
	return state, nil
}
