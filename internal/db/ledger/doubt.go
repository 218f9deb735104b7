package ledger

import (
	"fmt"

	"github.com/ckptsidecar/ckptsidecar/internal/db/sqlite"
)

// othersWrote handles a write by another program, which only a person or a faulty program does. The
// program may have changed any stored piece, so no state becomes a base until it has been read
// back.
func (s *Core) othersWrote() {
	s.States.Doubts.Add(1)
	s.Log.Warn("another program wrote to the database: the next saves do not depend on data that it may have changed", "path", s.Opt.Path)
}

// seeForeign is othersWrote inside the transaction that has noticed the write. If the audit log
// does not end as the writer knows it, that is a fail-stop: the next start finds out what is
// missing, and continues from there.
func (s *Core) seeForeign(tx *Tx) error {
	s.othersWrote()
	var last struct {
		N    int64  `db:"n"`
		Hash string `db:"hash"`
	}
	if _, err := tx.Get(&last, lastOfLog); err != nil {
		return err
	}
	if (ChainHead{last.N, last.Hash}) != tx.Head {
		return &sqlite.FatalError{Err: fmt.Errorf(
			"another program has changed the audit log: it ends with row %d or another hash, where the daemon had written row %d", last.N, tx.Head.N)}
	}
	return nil
}
