package ledger

import (
	"encoding/json"
	"slices"

	"github.com/google/uuid"

	ckpt "github.com/ckptsidecar/ckptsidecar"
)

// Hook names a hook and the notices that it gets.
type Hook struct {
	Name  string
	Types []ckpt.NoticeType
}

// The bounds of the queue of notices.
const (
	mostPending      = 10_000 // waiting deliveries of all owners
	mostOwnerPending = 1000   // and of one owner
)

// SetHooks sets which hooks get which notices from now on.
func (s *Core) SetHooks(hooks []Hook) { s.hooks.Store(&hooks) }

// Hooks returns the hooks that get notices.
func (s *Core) Hooks() []Hook {
	if hooks := s.hooks.Load(); hooks != nil {
		return *hooks
	}
	return nil
}

// NoticesChanged is closed when the next notice is on disk.
func (s *Core) NoticesChanged() <-chan struct{} { return s.notices.Wait() }

// Notify puts a notice into the queue of each hook that wants it, in the transaction of the event
// that it reports. It returns the notice's id and the hooks' names. If no hook wants it, it costs
// nothing.
func (s *Core) Notify(tx *Tx, kind ckpt.NoticeType, data ckpt.NoticeData) (id string, names []string, err error) {
	for _, hook := range s.Hooks() {
		if kind == ckpt.NoticeTest || slices.Contains(hook.Types, kind) {
			names = append(names, hook.Name)
		}
	}
	if len(names) == 0 {
		return "", nil, nil
	}
	var waiting struct {
		All   int64 `db:"everybodys"`
		Owner int64 `db:"owners"`
	}
	_, err = tx.Get(&waiting, `SELECT count(*) AS everybodys, count(*) FILTER (WHERE n.owner = ?) AS owners
		FROM deliveries d JOIN notices n ON n.n = d.notice WHERE d.state = 'pending'`, data.Owner)
	if err != nil {
		return "", nil, err
	}
	if waiting.All >= mostPending || data.Owner != "" && waiting.Owner >= mostOwnerPending {
		return "", nil, tx.Insert(`INSERT INTO meta (key, value) VALUES ('notices_dropped', '1') ON CONFLICT (key) DO UPDATE
			SET value = CAST(value + 1 AS TEXT)`)
	}
	made, err := uuid.NewV7()
	if err != nil {
		return "", nil, err
	}
	data.Message = cutText(s.outward(data.Message, false), ckpt.MaxNoticeMessage)
	notice := ckpt.Notice{ID: "msg_" + made.String(), Type: kind, Timestamp: tx.Now, Data: data}
	body, err := json.Marshal(&notice)
	if err != nil {
		return "", nil, err
	}
	body = []byte(s.outward(string(body), true))
	var n int64
	life, err := tx.lifeOf(&AuditEntry{Owner: data.Owner, Agent: data.Agent, Run: data.Run})
	if err != nil {
		return "", nil, err
	}
	err = tx.InsertGet(&n, `INSERT INTO notices (id, at, type, owner, agent, run, life, body) VALUES (?, ?, ?, ?, ?, ?, ?, ?) RETURNING n`,
		notice.ID, tx.Now, string(kind), ckpt.Ref(data.Owner), ckpt.Ref(data.Agent), ckpt.Ref(ckpt.BaseRun(data.Run)), life, string(body))
	if err != nil {
		return "", nil, err
	}
	for _, name := range names {
		if err := tx.Insert(`INSERT INTO deliveries (notice, hook, next_at) VALUES (?, ?, ?)`, n, name, tx.Now); err != nil {
			return "", nil, err
		}
	}
	tx.OnCommit(s.notices.Tell)
	return notice.ID, names, nil
}

// outward redacts a text that leaves the host, whatever the policy of its agent says about what is stored.
func (s *Core) outward(text string, isJSON bool) string {
	if s.Opt.Secrets == nil || len(s.Opt.Secrets.Find([]byte(text), isJSON)) == 0 {
		return text
	}
	clean, _ := s.Opt.Secrets.Redact([]byte(text), isJSON)
	return string(clean)
}

// ForgetNotices removes the notices about an agent: they contain text that people and models have
// written.
func (tx *Tx) ForgetNotices(owner, agent string) error {
	return tx.Exec(`DELETE FROM notices WHERE owner = ? AND agent = ?`, owner, agent)
}

// forgetNoticesOf is ForgetNotices for one life of a run.
func (tx *Tx) forgetNoticesOf(agent *AgentRow, run *RunRow) error {
	return tx.Exec(`DELETE FROM notices WHERE owner = ? AND agent = ? AND run = ? AND life = ?`,
		agent.Owner, agent.Name, ckpt.BaseRun(run.Name), run.Life)
}

// cutText shortens a text to at most this many bytes, at a character boundary.
func cutText(text string, most int) string {
	if len(text) <= most {
		return text
	}
	for most > 0 && text[most]&0xc0 == 0x80 {
		most--
	}
	return text[:most] + "…"
}
