package ledger

import (
	ckpt "github.com/ckptsidecar/ckptsidecar"
	"github.com/ckptsidecar/ckptsidecar/internal/delta"
	"github.com/ckptsidecar/ckptsidecar/internal/jsontext"
	"github.com/ckptsidecar/ckptsidecar/internal/secrets"
)

// known is what is known of a state beside its bytes, so that of the next one
// only what is new need be looked at.
type known struct {
	Json   *jsontext.Map // of a JSON state that was checked
	seen   secrets.Seen  // where its secrets are; nil where nobody has looked
	hashed midstates
}

func (k *known) bytes() int64 {
	n := int64(k.Json.Size() + len(k.hashed))
	if k.seen != nil {
		n += int64(k.seen.Size())
	}
	return n
}

// candidate is a state that is to be saved, beside the one that it comes after.
type candidate struct {
	state []byte
	json  bool
	base  *Stored         // nil for none
	ops   []delta.Op      // that make the state of the base
	same  []jsontext.Copy // the copies of those
	keep  bool            // whether the next may come after this one
	known known

	redacted bool // it is another state than was sent
}

// Prepare checks a state, looks for secrets in it as the policy says, hashes it
// and says what it is made of. None is saved that has not come through here,
// or is there already.
func (s *Core) Prepare(key RunKey, sc ckpt.Scope, r *ckpt.SaveRequest) (Encoded, []secrets.Secret, error) {
	c := candidate{state: r.State, json: ckpt.IsJSON(r.ContentType), base: s.baseFor(key, len(r.State)), keep: s.Live.keeps(len(r.State))}
	defer s.Live.Release(c.base)
	c.compare(r)
	checked, err := c.check()
	if err != nil {
		return Encoded{}, nil, ckpt.Errorf(ckpt.CodeInvalid, "the state is not JSON: %v", err)
	}
	mode, err := s.SecretsMode(sc, r.Agent)
	if err != nil {
		return Encoded{}, nil, err
	}
	found, err := s.searchSecrets(&c, checked, mode)
	e := c.encode()
	e.Redacted, e.lent, e.Sent = c.redacted, r.Lent && !c.redacted, e.Sha256
	if e.Refused = err; c.redacted {
		e.Sent = EncodeHash(r.State)
	}
	return e, found, nil
}

// compare finds the operations, or takes them from who knows them.
func (c *candidate) compare(r *ckpt.SaveRequest) {
	if c.base == nil {
		return
	}
	if r.SameAs == c.base.sha256 {
		if c.ops, c.same = operations(r.Same, len(c.state)), r.Same; worthTaking(c.ops, len(c.state)) {
			return
		}
	}
	c.compareAnew()
}

func (c *candidate) compareAnew() {
	c.ops = c.base.Compare(c.state)
	c.same = jsontext.CopiesOf(c.ops)
}

// operations are copies with what is new between them.
func operations(same []jsontext.Copy, size int) []delta.Op {
	ops, at := make([]delta.Op, 0, 2*len(same)+1), 0
	for _, c := range same {
		if c.At > at {
			ops = append(ops, delta.Op{Offset: delta.Literal, Length: c.At - at})
		}
		ops = append(ops, delta.Op{Offset: c.From, Length: c.Length})
		at = c.At + c.Length
	}
	if size > at {
		ops = append(ops, delta.Op{Offset: delta.Literal, Length: size - at})
	}
	return ops
}

// worthTaking says whether somebody else's operations are good enough. Where
// they leave much as new, we may find it.
func worthTaking(ops []delta.Op, size int) bool {
	fresh := 0
	for _, op := range ops {
		if op.Offset == delta.Literal {
			fresh += op.Length
		}
	}
	return len(ops) <= delta.MaxOperations && fresh <= size/16
}

// check refuses a JSON state that is none. What the base has as well was
// checked with it.
func (c *candidate) check() (checked jsontext.Checked, err error) {
	switch {
	case !c.json:
	case !c.keep:
		err = jsontext.Check(c.state)
	case c.base == nil:
		checked, err = jsontext.CheckAfter(c.state, nil, nil)
	default:
		checked, err = jsontext.CheckAfter(c.state, c.base.Json, c.same)
	}
	c.known.Json = checked.Map
	return checked, err
}

// encode hashes the state and says what it is made of.
func (c *candidate) encode() Encoded {
	if !c.keep {
		return Encode(c.state)
	}
	e := Encoded{Size: int64(len(c.state)), State: c.state, Known: c.known}
	var before midstates
	if c.base != nil {
		before = c.base.hashed.UpTo(commonPrefix(c.ops))
	}
	e.Sha256, e.Known.hashed = Sum(c.state, before)
	e.describe(c.base, c.ops)
	return e
}

// commonPrefix is how many bytes operations copy from a base's beginning.
func commonPrefix(ops []delta.Op) int {
	if len(ops) == 0 || ops[0].Offset != 0 {
		return 0
	}
	return ops[0].Length
}

// searchSecrets looks for secrets in a state that was checked and does what the
// policy says: it may change the state or refuse it.
func (s *Core) searchSecrets(c *candidate, checked jsontext.Checked, mode ckpt.SecretsMode) (found []secrets.Secret, err error) {
	if s.Opt.Secrets == nil || mode == ckpt.SecretsOff {
		return nil, nil
	}
	found = c.findSecrets(s.Opt.Secrets, checked)
	switch {
	case len(found) == 0:
		return nil, nil
	case mode == ckpt.SecretsReject:
		return nil, ckpt.Errorf(ckpt.CodeInvalid, "the state holds what looks like %s at %q, and the agent's policy says secrets: reject; take it out, or set the policy to redact", found[0].Kind, found[0].Path)
	case mode == ckpt.SecretsRedact:
		return c.redact(s.Opt.Secrets)
	}
	return found, nil
}

func (c *candidate) findSecrets(scan secretScan, checked jsontext.Checked) (found []secrets.Secret) {
	if !c.keep {
		return scan.Find(c.state, c.json)
	}
	var before secrets.Seen
	if c.base != nil {
		before = c.base.seen
	}
	if c.json {
		found, c.known.seen = scan.FindAfter(c.state, checked, before)
	} else {
		found, c.known.seen = scan.FindBytesAfter(c.state, c.same, before)
	}
	return found
}

// redact makes another state of it, of which nothing is known.
func (c *candidate) redact(scan secretScan) (found []secrets.Secret, err error) {
	c.state, found = scan.Redact(c.state, c.json)
	c.known, c.redacted = known{}, true
	if c.base != nil {
		c.compareAnew()
	}
	if _, err := c.check(); err != nil { // what was found did not end where it should
		return nil, ckpt.Errorf(ckpt.CodeInvalid, "the state is no JSON any more once its secrets are taken out: %v; take them out before", err)
	}
	return found, nil
}
