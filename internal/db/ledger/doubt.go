package ledger

import (
	"fmt"

	"github.com/ckptsidecar/ckptsidecar/internal/db/sqlite"
)

// othersWrote is told that another program has written to the database, which
// only a person or a faulty program does. It may have changed any stored piece,
// so no state stands on another until that one has been read back.
func (s *Core) othersWrote() {
	s.States.Doubts.Add(1)
	s.Log.Warn("another program wrote to the database: the next saves do not depend on data that it may have changed", "path", s.Opt.Path)
}

// seeForeign is othersWrote inside the transaction that has noticed it. An audit
// log that does not end as the writer knows it is a fail-stop: the next start
// finds out what is missing, and goes on from there.
func (s *Core) seeForeign(tx *Tx) error {
	s.othersWrote()
	var head, last struct {
		N    int64  `db:"n"`
		Hash string `db:"hash"`
	}
	if _, err := tx.Get(&head, `SELECT n, hash FROM audit_head`); err != nil {
		return err
	}
	if _, err := tx.Get(&last, lastOfLog); err != nil {
		return err
	}
	if head != last || (ChainHead{head.N, head.Hash}) != tx.Head {
		return &sqlite.FatalError{Err: fmt.Errorf(
			"another program has changed the audit log: it ends with row %d and its head names row %d, where the daemon had written row %d",
			last.N, head.N, tx.Head.N)}
	}
	return nil
}
