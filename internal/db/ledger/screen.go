package ledger

import (
	"encoding/json"
	"slices"

	ckpt "github.com/ckptsidecar/ckptsidecar"
	"github.com/ckptsidecar/ckptsidecar/internal/db/blob"
	"github.com/ckptsidecar/ckptsidecar/internal/jsontext"
	"github.com/ckptsidecar/ckptsidecar/internal/secrets"
)

// Screening looks for secrets in the parts of a request beside a state, and treats them as the
// agent's policy says.
type Screening struct {
	scan  blob.Scan
	Mode  ckpt.SecretsMode
	in    string // what is screened: "step", "run", …
	Found []secrets.Secret
	Err   error // the refusal
}

// Screen begins to screen a request of an agent.
func (s *Core) Screen(sc ckpt.Scope, agent, in string) *Screening {
	c := &Screening{scan: s.Opt.Secrets, in: in}
	c.Mode, c.Err = s.SecretsMode(sc, agent)
	return c
}

// ScreenFor is Screen inside a transaction, which has the agent's row.
func (s *Core) ScreenFor(agent *AgentRow, in string) *Screening {
	return &Screening{scan: s.Opt.Secrets, Mode: agent.Settings.Secrets, in: in}
}

func (c *Screening) looks() bool {
	return c.scan != nil && c.Mode != ckpt.SecretsOff && c.Err == nil
}

// Value screens some bytes, and returns the bytes to store.
func (c *Screening) Value(name string, value []byte, isJSON bool) []byte {
	if len(value) == 0 || !c.looks() {
		return value
	}
	found := c.scan.Find(value, isJSON)
	if len(found) == 0 {
		return value
	}
	for _, secret := range found {
		secret.In, secret.Path, secret.Redacted = c.in, "/"+name+secret.Path, c.Mode == ckpt.SecretsRedact
		c.Found = append(c.Found, secret)
	}
	switch c.Mode {
	case ckpt.SecretsReject:
		c.Refuse("")
	case ckpt.SecretsRedact:
		value, _ = c.scan.Redact(value, isJSON)
		if isJSON && jsontext.Check(value) != nil {
			c.Refuse(" it is not valid JSON after its secrets were removed;")
		}
	}
	return value
}

func (c *Screening) Refuse(why string) {
	first := c.Found[len(c.Found)-1]
	c.Err = ckpt.Errorf(ckpt.CodeInvalid, "the %s holds what looks like %s at %q, and the agent's policy says secrets: %s;%s take it out",
		c.in, first.Kind, first.Path, c.Mode, why)
}

func (c *Screening) Text(name string, text *string) {
	*text = string(c.Value(name, []byte(*text), false))
}

func (c *Screening) Ref(name string, text *ckpt.Ref) {
	*text = ckpt.Ref(c.Value(name, []byte(*text), false))
}

func (c *Screening) JSON(name string, value *ckpt.JSON) {
	*value = c.Value(name, *value, true)
}

// Again checks a request once more if secrets in it were replaced: its texts can be longer than
// before, and longer than is allowed.
func (c *Screening) Again(check func() error) {
	if c.Err == nil && c.Mode == ckpt.SecretsRedact && len(c.Found) > 0 {
		c.Err = check()
	}
}

// Key screens a text that identifies something. The text cannot be changed, so a policy that
// redacts secrets refuses a key with a secret.
func (c *Screening) Key(name, key string) {
	before := len(c.Found)
	c.Value(name, []byte(key), false)
	if len(c.Found) > before && c.Mode == ckpt.SecretsRedact {
		c.Refuse(" it is a name, which cannot be redacted;")
	}
}

// Command screens how an agent is started.
func (c *Screening) Command(command *ckpt.Command) {
	if command == nil {
		return
	}
	c.Text("command", &command.Folder)
	for i := range command.Argv {
		c.Text("command", &command.Argv[i])
	}
}

// Labels screens names and values together, because a name may show that its value is a secret.
func (c *Screening) Labels(labels *ckpt.Labels) {
	if len(*labels) == 0 || !c.looks() {
		return
	}
	text, err := json.Marshal(*labels)
	if err != nil {
		return // labels are texts, which can always be written
	}
	clean := ckpt.Labels{}
	if err := json.Unmarshal(c.Value("labels", text, true), &clean); err == nil && len(c.Found) > 0 {
		*labels = clean
	}
}

// Events screens a batch without changing the caller's copy.
func (c *Screening) Events(batch []ckpt.NewEvent) []ckpt.NewEvent {
	if !c.looks() {
		return batch
	}
	batch = slices.Clone(batch)
	for i := range batch {
		c.Text("type", &batch[i].Type)
		c.JSON("payload", &batch[i].Payload)
	}
	return batch
}
