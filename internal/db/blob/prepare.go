package blob

import (
	"context"
	"database/sql"
	"errors"
	"log/slog"
	"time"

	ckpt "github.com/ckptsidecar/ckptsidecar"
	"github.com/ckptsidecar/ckptsidecar/internal/delta"
	"github.com/ckptsidecar/ckptsidecar/internal/jsontext"
	"github.com/ckptsidecar/ckptsidecar/internal/secrets"
	"github.com/jmoiron/sqlx"
)

// Preparer prepares states for storage, outside the writer.
type Preparer struct {
	States  *States
	Scan    Scan                                                        // looks for secrets; nil does not look
	Mode    func(sc ckpt.Scope, agent string) (ckpt.SecretsMode, error) // what an agent's policy says about secrets
	Reading func(context.Context, func(*sqlx.Tx) error) error           // runs a function in a transaction that reads
	Timeout time.Duration                                               // how long reading a base may take
	Log     *slog.Logger
}

// candidate is a state to save, with the state that it follows.
type candidate struct {
	state []byte
	json  bool
	base  *Stored         // nil for none
	ops   []delta.Op      // the operations that make the state from the base
	same  []jsontext.Copy // the copies among them
	keep  bool            // whether the next state may follow this one
	known known

	redacted bool // it differs from the state that was sent
}

// Prepare checks a state, looks for secrets in it as the policy says, hashes it and describes its
// pieces. Only states that passed through Prepare, or that exist already, are saved.
func (p *Preparer) Prepare(key RunKey, sc ckpt.Scope, r *ckpt.SaveRequest) (Encoded, []secrets.Secret, error) {
	c := candidate{state: r.State, json: ckpt.IsJSON(r.ContentType), base: p.baseFor(key, len(r.State)), keep: p.States.keeps(len(r.State))}
	defer p.States.Release(c.base)
	c.compare(r)
	checked, err := c.check()
	if err != nil {
		return Encoded{}, nil, ckpt.Errorf(ckpt.CodeInvalid, "the state is not JSON: %v", err)
	}
	mode, err := p.Mode(sc, r.Agent)
	if err != nil {
		return Encoded{}, nil, err
	}
	found, err := p.searchSecrets(&c, checked, mode)
	e := c.encode()
	e.Redacted, e.lent, e.Sent = c.redacted, r.Lent && !c.redacted, e.Sha256
	if e.Refused = err; c.redacted {
		e.Sent = HashOf(r.State)
	}
	return e, found, nil
}

// compare finds the operations, or takes those of the request.
func (c *candidate) compare(r *ckpt.SaveRequest) {
	if c.base == nil {
		return
	}
	if r.SameAs == c.base.SHA256 {
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

// operations are the copies, and literals for the new bytes between them.
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

// worthTaking says whether the request's operations are good enough. If they leave many bytes as
// new, our own comparison may find more.
func worthTaking(ops []delta.Op, size int) bool {
	fresh := 0
	for _, op := range ops {
		if op.Offset == delta.Literal {
			fresh += op.Length
		}
	}
	return len(ops) <= delta.MaxOperations && fresh <= size/16
}

// check refuses a JSON state that is not valid JSON. Parts that the base also has were checked with
// the base.
func (c *candidate) check() (checked jsontext.Checked, err error) {
	switch {
	case !c.json:
	case !c.keep:
		err = jsontext.Check(c.state)
	case c.base == nil:
		checked, err = jsontext.CheckAfter(c.state, nil, nil)
	default:
		checked, err = jsontext.CheckAfter(c.state, c.base.JSON, c.same)
	}
	c.known.JSON = checked.Map
	return checked, err
}

// encode hashes the state and describes its pieces.
func (c *candidate) encode() Encoded {
	if !c.keep {
		return Encode(c.state)
	}
	e := Encoded{Size: int64(len(c.state)), State: c.state, Known: c.known}
	var before midstates
	if c.base != nil {
		before = c.base.hashed.upTo(commonPrefix(c.ops))
	}
	e.Sha256, e.Known.hashed = sum(c.state, before)
	e.describe(c.base, c.ops)
	return e
}

// commonPrefix is how many bytes the operations copy from the beginning of the base.
func commonPrefix(ops []delta.Op) int {
	if len(ops) == 0 || ops[0].Offset != 0 {
		return 0
	}
	return ops[0].Length
}

// searchSecrets looks for secrets in a checked state and does what the policy says: it may change
// the state or refuse it.
func (p *Preparer) searchSecrets(c *candidate, checked jsontext.Checked, mode ckpt.SecretsMode) (found []secrets.Secret, err error) {
	if p.Scan == nil || mode == ckpt.SecretsOff {
		return nil, nil
	}
	found = c.findSecrets(p.Scan, checked)
	switch {
	case len(found) == 0:
		return nil, nil
	case mode == ckpt.SecretsReject:
		return nil, ckpt.Errorf(ckpt.CodeInvalid,
			"the state holds what looks like %s at %q, and the agent's policy says secrets: reject; take it out, or "+
				"set the policy to redact", found[0].Kind, found[0].Path)
	case mode == ckpt.SecretsRedact:
		return c.redact(p.Scan)
	}
	return found, nil
}

func (c *candidate) findSecrets(scan Scan, checked jsontext.Checked) (found []secrets.Secret) {
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

// redact replaces the state with a redacted one, about which nothing is known yet.
func (c *candidate) redact(scan Scan) (found []secrets.Secret, err error) {
	c.state, found = scan.Redact(c.state, c.json)
	c.known, c.redacted = known{}, true
	if c.base != nil {
		c.compareAnew()
	}
	if _, err := c.check(); err != nil { // a secret did not end where it should
		return nil, ckpt.Errorf(ckpt.CodeInvalid, "the state is not valid JSON after its secrets were removed: %v; "+
			"remove the secrets before you save", err)
	}
	for i := range found {
		found[i].Redacted = true
	}
	return found, nil
}

// baseFor is the base for a new state of a run: the run's newest state, from memory or read once.
// It is nil if there is none or it cannot be read. The caller must release it.
func (p *Preparer) baseFor(key RunKey, size int) *Stored {
	if !p.States.keeps(size) {
		return nil
	}
	if base := p.States.Get(key); base != nil {
		return base
	}
	base, err := p.readBase(key)
	if err != nil {
		p.Log.Warn("a state is stored whole: the one before cannot be read", "agent", key.Agent, "run", key.Run, "error", err)
	}
	return base.Hold()
}

var pieced = nearest(``, `DESC`, `n, id, seq, size, sha256, pieces`)

// readBase reads the newest state of a run that has pieces.
func (p *Preparer) readBase(key RunKey) (base *Stored, err error) {
	ctx, cancel := context.WithTimeout(context.Background(), p.Timeout)
	defer cancel()
	doubts := p.States.Doubts.Load() // before the snapshot is taken, so that later doubts apply to it
	err = p.Reading(ctx, func(q *sqlx.Tx) error {
		var runID int64
		err := q.GetContext(ctx, &runID, `SELECT r.id FROM runs r JOIN agents a ON a.id = r.agent_id
			WHERE a.owner = ? AND a.name = ? AND r.name = ?`, key.Owner, key.Agent, key.Run)
		if errors.Is(err, sql.ErrNoRows) {
			return nil
		}
		if err != nil {
			return err
		}
		var row struct {
			StateRow
			Seq int64 `db:"seq"`
		}
		err = q.GetContext(ctx, &row, pieced, runID)
		if errors.Is(err, sql.ErrNoRows) || err == nil && row.Size > p.States.most/2 {
			return nil
		}
		if err != nil {
			return err
		}
		base = &Stored{Place: Place{row.N, runID, row.Seq, row.ID}, SHA256: row.SHA256, doubts: &p.States.Doubts, since: doubts}
		if base.State, err = Decode(ctx, q, &row.StateRow); err != nil {
			return err
		}
		return base.standOn(ctx, q, *row.Pieces)
	})
	if err != nil {
		return nil, err
	}
	return base, nil
}
