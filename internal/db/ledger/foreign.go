package ledger

import (
	"strings"
	"time"

	ckpt "github.com/ckptsidecar/ckptsidecar"
	"github.com/ckptsidecar/ckptsidecar/internal/db/sqlite"
)

// AuditForeign records that an administrator looks at what is another's. The
// row need not be on disk before the answer is given, but it is: who reads
// without a trace would be worth a fault.
func (s *Core) AuditForeign(sc ckpt.Scope, action, agent, subject string) {
	if sc.Foreign() {
		s.AuditForeignOf(sc, action, sc.Target, agent, subject)
	}
}

// AuditFollowing is auditForeign for a read that is repeated all the time: it
// is recorded when it begins and then once a minute.
func (s *Core) AuditFollowing(sc ckpt.Scope, action, agent string) {
	if !sc.Foreign() {
		return
	}
	key := strings.Join([]string{action, sc.Caller.Owner, sc.Target, agent}, "\x00")
	now := time.Now()
	s.following.mu.Lock()
	again := now.Sub(s.following.last[key]) < time.Minute
	if !again {
		if s.following.last == nil || len(s.following.last) > 1000 {
			s.following.last = map[string]time.Time{}
		}
		s.following.last[key] = now
	}
	s.following.mu.Unlock()
	if !again {
		s.AuditForeign(sc, action, agent, "")
	}
}

func (s *Core) AuditForeignOf(sc ckpt.Scope, action, owner, agent, subject string) {
	e := Entry(sc, "admin_"+action, agent)
	e.Owner, e.Subject = owner, subject
	s.Record(e)
}

// Record writes an audit row that stands for itself.
func (s *Core) Record(e AuditEntry) {
	if e.Outcome != OutcomeDone && !s.recordable(&e) {
		return
	}
	err := s.Submit(&Op{Owner: e.Who, Claim: sqlite.GoesOn, Do: func(tx *Tx) error { return tx.Audit(e) }})
	if err != nil {
		s.Log.Error("an audit row could not be written", "action", e.Action, "who", e.Who, "error", err)
	}
}
