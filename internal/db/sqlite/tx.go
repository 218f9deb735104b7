package sqlite

import (
	"database/sql"
	"errors"
)

// The statements of a transaction are constants, because the transaction keeps them prepared by their text. The method says what a statement
// does: Get and List read; Exec, Insert, Update, Fill and their like change something, and are refused while the disk is full.

// Exec runs a change that stores no new text: a deletion, or numbers, names and times.
func (tx *Tx) Exec(query string, args ...any) error {
	_, err := tx.ExecCount(query, args...)
	return err
}

// ExecCount is Exec, and returns how many rows it changed.
func (tx *Tx) ExecCount(query string, args ...any) (int64, error) {
	if tx.Barred {
		return 0, ErrNoRoom
	}
	c, err := tx.prepareChange(query)
	if err != nil {
		return 0, err
	}
	tx.Wrote = true
	return tx.stmts.run(tx.Ctx, c, args)
}

// Insert stores a row whose texts are its arguments.
func (tx *Tx) Insert(query string, args ...any) error {
	tx.Stored += RowLength(args...)
	return tx.Exec(query, args...)
}

// InsertNew is Insert for a row that may be there already, and returns how many rows it stored.
func (tx *Tx) InsertNew(query string, args ...any) (int64, error) {
	n, err := tx.ExecCount(query, args...)
	tx.Stored += n * RowLength(args...)
	return n, err
}

// looseChange is the longest text of an Update that is not counted: an id, a time or a hash replaces another.
const looseChange = 64

// Update replaces columns by texts of about the same length.
func (tx *Tx) Update(query string, args ...any) error {
	for _, arg := range args {
		tx.Stored += max(0, LengthOf(arg)-looseChange)
	}
	return tx.Exec(query, args...)
}

// Fill sets columns of a row that were empty.
func (tx *Tx) Fill(query string, args ...any) error {
	for _, arg := range args {
		tx.Stored += LengthOf(arg)
	}
	return tx.Exec(query, args...)
}

// Change runs a change and reads one row of its RETURNING clause into dest. It returns false if there is no row.
func (tx *Tx) Change(dest any, query string, args ...any) (bool, error) {
	if tx.Barred {
		return false, ErrNoRoom
	}
	tx.Wrote = true
	return tx.Get(dest, query, args...)
}

// Changes runs a change and reads all rows of its RETURNING clause into the slice that dest points to.
func (tx *Tx) Changes(dest any, query string, args ...any) error {
	if tx.Barred {
		return ErrNoRoom
	}
	tx.Wrote = true
	return tx.List(dest, query, args...)
}

// InsertGet is Insert with a RETURNING clause.
func (tx *Tx) InsertGet(dest any, query string, args ...any) error {
	tx.Stored += RowLength(args...)
	_, err := tx.Change(dest, query, args...)
	return err
}

// Get reads one row into dest. It returns false if there is no row.
func (tx *Tx) Get(dest any, query string, args ...any) (bool, error) {
	stmt, err := tx.prepareRead(query)
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
	stmt, err := tx.prepareRead(query)
	if err != nil {
		return err
	}
	return stmt.SelectContext(tx.Ctx, dest, args...)
}

// OnCommit calls f after the transaction is on disk, and only then.
func (tx *Tx) OnCommit(f func()) { tx.after = append(tx.after, f) }

// GotOn reports that a long operation makes progress.
func (tx *Tx) GotOn() { tx.gotOn() }
