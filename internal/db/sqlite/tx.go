package sqlite

import (
	"database/sql"
	"errors"
)

// prepare returns the statement of a query that is about to run. It refuses a
// statement that writes where the operation may not write.
func (tx *Tx) prepare(query string, args []any) (*statement, error) {
	stmt := tx.stmts.of[query]
	if stmt == nil {
		prepared, err := tx.Conn.PreparexContext(tx.Ctx, query)
		if err != nil {
			return nil, err
		}
		writes, tables, err := tx.touches(query, args)
		if err != nil {
			return nil, err
		}
		stmt = &statement{prepared, writes, tx.hooks.Prepared(query, tables)}
		tx.stmts.of[query] = stmt
	}
	if tx.Barred && stmt.writes {
		return nil, ErrNoRoom
	}
	tx.hooks.Runs(tx, stmt.kept, args)
	return stmt, nil
}

// Exec runs a statement that changes something. query is a constant, because
// the transaction keeps its prepared statements by their text.
func (tx *Tx) Exec(query string, args ...any) error {
	_, err := tx.ExecCount(query, args...)
	return err
}

// ExecCount is Exec and returns how many rows were changed.
func (tx *Tx) ExecCount(query string, args ...any) (int64, error) {
	stmt, err := tx.prepare(query, args)
	if err != nil {
		return 0, err
	}
	tx.Wrote = true
	result, err := stmt.ExecContext(tx.Ctx, args...)
	if err != nil {
		return 0, err
	}
	return result.RowsAffected()
}

// Get reads one row into dest. It returns false where there is no row.
func (tx *Tx) Get(dest any, query string, args ...any) (bool, error) {
	stmt, err := tx.prepare(query, args)
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
	stmt, err := tx.prepare(query, args)
	if err != nil {
		return err
	}
	return stmt.SelectContext(tx.Ctx, dest, args...)
}

// OnCommit calls f once the transaction is on disk, and never otherwise.
func (tx *Tx) OnCommit(f func()) { tx.after = append(tx.after, f) }

// GotOn tells that a long operation makes progress.
func (tx *Tx) GotOn() { tx.gotOn() }
