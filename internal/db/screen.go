package db

import (
	"encoding/json"
	"slices"

	ckpt "github.com/ckptsidecar/ckptsidecar"
	"github.com/ckptsidecar/ckptsidecar/internal/jsontext"
	"github.com/ckptsidecar/ckptsidecar/internal/secrets"
)

// screening looks for secrets in what a request carries beside a state, and does
// with them what the agent's policy says.
type screening struct {
	scan  secretScan
	mode  ckpt.SecretsMode
	in    string // what is screened: "step", "run", …
	found []secrets.Secret
	err   error // the refusal
}

// screen begins to screen a request of an agent.
func (s *core) screen(sc ckpt.Scope, agent, in string) *screening {
	c := &screening{scan: s.opt.Secrets, in: in}
	c.mode, c.err = s.secretsMode(sc, agent)
	return c
}

// screenFor is screen inside of a transaction, which has the agent's row.
func (s *core) screenFor(agent *agentRow, in string) *screening {
	return &screening{scan: s.opt.Secrets, mode: agent.policy.Secrets, in: in}
}

func (c *screening) looks() bool {
	return c.scan != nil && c.mode != ckpt.SecretsOff && c.err == nil
}

// value screens some bytes, and answers what is to be stored of them.
func (c *screening) value(name string, value []byte, isJSON bool) []byte {
	if len(value) == 0 || !c.looks() {
		return value
	}
	found := c.scan.Find(value, isJSON)
	if len(found) == 0 {
		return value
	}
	for _, secret := range found {
		secret.In, secret.Path = c.in, "/"+name+secret.Path
		c.found = append(c.found, secret)
	}
	switch c.mode {
	case ckpt.SecretsReject:
		c.refuse("")
	case ckpt.SecretsRedact:
		value, _ = c.scan.Redact(value, isJSON)
		if isJSON && jsontext.Check(value) != nil {
			c.refuse(" once its secrets are taken out it is no JSON any more;")
		}
	}
	return value
}

func (c *screening) refuse(why string) {
	first := c.found[len(c.found)-1]
	c.err = ckpt.Errorf(ckpt.CodeInvalid, "the %s holds what looks like %s at %q, and the agent's policy says secrets: %s;%s take it out",
		c.in, first.Kind, first.Path, c.mode, why)
}

func (c *screening) text(name string, text *string) {
	*text = string(c.value(name, []byte(*text), false))
}

func (c *screening) ref(name string, text *ckpt.Ref) {
	*text = ckpt.Ref(c.value(name, []byte(*text), false))
}

func (c *screening) json(name string, value *ckpt.JSON) {
	*value = c.value(name, *value, true)
}

// key screens a text that tells things apart. It cannot be changed, so that a
// policy that would take a secret out refuses it.
func (c *screening) key(name, key string) {
	before := len(c.found)
	c.value(name, []byte(key), false)
	if len(c.found) > before && c.mode == ckpt.SecretsRedact {
		c.refuse(" it is a name and cannot be changed;")
	}
}

// labels screens names and values together, because a name may say that its
// value is a secret.
func (c *screening) labels(labels *ckpt.Labels) {
	if len(*labels) == 0 || !c.looks() {
		return
	}
	text, err := json.Marshal(*labels)
	if err != nil {
		return // labels are texts, which always can be written
	}
	clean := ckpt.Labels{}
	if err := json.Unmarshal(c.value("labels", text, true), &clean); err == nil && len(c.found) > 0 {
		*labels = clean
	}
}

// events screens a batch, and leaves the caller's as it is.
func (c *screening) events(batch []ckpt.NewEvent) []ckpt.NewEvent {
	if !c.looks() {
		return batch
	}
	batch = slices.Clone(batch)
	for i := range batch {
		c.text("type", &batch[i].Type)
		c.json("payload", &batch[i].Payload)
	}
	return batch
}
