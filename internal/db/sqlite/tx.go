package sqlite

import (
	"database/sql"
	"errors"
)

// Exec runs a statement that changes something. query is a constant, because
// the transaction keeps its prepared statements by their text.
func (tx *Tx) Exec(query string, args ...any) error {
	_, err := tx.ExecCount(query, args...)
	return err
}

// ExecCount is like Exec, and returns how many rows it changed.
func (tx *Tx) ExecCount(query string, args ...any) (int64, error) {
	stmt, err := tx.prepareChange(query, args)
	if err != nil {
		return 0, err
	}
	tx.Wrote = true
	return tx.stmts.run(tx.Ctx, stmt, args)
}

// Get reads one row into dest. It returns false if there is no row.
func (tx *Tx) Get(dest any, query string, args ...any) (bool, error) {
	stmt, err := tx.prepareRead(query, args)
	if err != nil {
		return false, err
	}
	err = stmt.GetContext(tx.Ctx, dest, args...)
	if errors.Is(err, sql.ErrNoRows) {
		return false, nil
	}
	return err == nil, err
}

// List reads all rows into the slice that dest points to.
func (tx *Tx) List(dest any, query string, args ...any) error {
	stmt, err := tx.prepareRead(query, args)
	if err != nil {
		return err
	}
	return stmt.SelectContext(tx.Ctx, dest, args...)
}

// OnCommit calls f after the transaction is on disk, and only then.
func (tx *Tx) OnCommit(f func()) { tx.after = append(tx.after, f) }

// GotOn reports that a long operation makes progress.
func (tx *Tx) GotOn() { tx.gotOn() }
