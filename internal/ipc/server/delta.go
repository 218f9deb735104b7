package server

import (
	ckpt "github.com/ckptsidecar/ckptsidecar"
	"github.com/ckptsidecar/ckptsidecar/internal/delta"
	"github.com/ckptsidecar/ckptsidecar/internal/ipc"
	"github.com/ckptsidecar/ckptsidecar/internal/jsontext"
)

// deltaSave applies a change to the base that the query names. The result is then saved
// like any other state: it is checked, hashed and stored.
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
	r, err := c.saveParameters(ipc.TypeDelta)
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
	return r, c.applyDelta(r, base, sum, wire)
}

func (c *call) baseHash() (string, error) {
	s, err := c.header(ipc.HeaderBaseSHA256)
	if err != nil {
		return "", err
	}
	if s == nil || len(*s) != 64 {
		return "", ckpt.Errorf(ckpt.CodeInvalid,
			"the header %s is missing or not 64 hexadecimal digits: it must be the hash of the base that you have", ipc.HeaderBaseSHA256)
	}
	return *s, nil
}

// applyDelta reads the base and builds the state, if there is memory for it.
func (c *call) applyDelta(r *ckpt.SaveRequest, id, sum string, wire []byte) error {
	states, bytes := &c.conn.owner.states, &c.conn.owner.bytes
	if err := c.hold(states, 1); err != nil {
		return err
	}
	defer c.giveBack(states) // only this function needs the base
	ctx, cancel := c.writing(c.server.limits.ReadTimeout)
	defer cancel()
	base, is, release, err := c.server.store.Checkpoints.Base(ctx, c.scope, c.agent, id)
	if err == nil {
		defer release()
	}
	switch code := ckpt.CodeOf(err); {
	case code == ckpt.CodeNotFound, code == ckpt.CodeCorrupt:
		return ckpt.Errorf(ckpt.CodeBaseMissing, "the base %s is not, or no longer, a checkpoint of this agent: send the whole state", id)
	case err != nil:
		return err
	case is != sum:
		return ckpt.Errorf(ckpt.CodeBaseMissing, "the base %s does not have the hash in the header %s: "+
			"send the whole state", id, ipc.HeaderBaseSHA256)
	}
	size, err := delta.Size(len(base), wire)
	if err != nil {
		return ckpt.Errorf(ckpt.CodeInvalid, "the change is wrong: %v", err)
	}
	if int64(size) > c.server.limits.MaxBody {
		return bodyTooLarge(c.server.limits.MaxBody)
	}
	if !bytes.tryAcquire(int64(size)) { // calls that hold some and wait for more could block each other
		return bytes.busy()
	}
	c.keep(bytes, int64(size))
	state, ops, err := delta.Apply(c.server.store.Checkpoints.Memory(size), base, wire)
	if err != nil {
		return ckpt.Errorf(ckpt.CodeInvalid, "the change is wrong: %v", err)
	}
	if err := c.checkSum(state); err != nil {
		return ckpt.Errorf(ckpt.CodeBaseMissing, "the change gives another state than it should: %v; send the whole state", err)
	}
	r.State, r.Lent, r.Same, r.SameAs = state, true, jsontext.CopiesOf(ops), is
	return nil
}
