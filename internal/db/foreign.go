package db

import ckpt "github.com/ckptsidecar/ckptsidecar"

// auditForeign records that an administrator looks at what is another's. The
// row need not be on disk before the answer is given, but it is: who reads
// without a trace would be worth a fault.
func (s *Store) auditForeign(sc ckpt.Scope, action, agent, subject string) {
	if sc.Foreign() {
		s.auditForeignOf(sc, action, sc.Target, agent, subject)
	}
}

func (s *Store) auditForeignOf(sc ckpt.Scope, action, owner, agent, subject string) {
	e := entry(sc, "admin_"+action, agent)
	e.Owner, e.Subject = owner, subject
	s.record(e)
}

// record writes an audit row that stands for itself.
func (s *Store) record(e auditEntry) {
	err := s.write(&op{owner: e.Who, apply: func(tx *tx) error { return tx.audit(e) }})
	if err != nil {
		s.log.Error("an audit row could not be written", "action", e.Action, "who", e.Who, "error", err)
	}
}
