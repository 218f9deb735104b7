package db

import (
	"context"
	"database/sql"
	"errors"
	"strings"

	ckpt "github.com/ckptsidecar/ckptsidecar"
	"github.com/jmoiron/sqlx"
)

// tx is the writer's transaction as one operation of a batch sees it. It has
// one time, knows how often it was tried before, and carries the audit chain.
type tx struct {
	ctx     context.Context
	conn    *sqlx.Conn
	stmts   map[string]*statement // prepared once for the life of the connection
	hot     *hotRuns
	now     ckpt.Time
	trusted ckpt.Time // now, or the zero time while the clock guard holds ages back
	retries int
	head    chainHead
	store   *Store
	uses    map[string]*use        // what it adds to each owner's bytes; nil where nobody asks
	stored  int64                  // bytes that the present operation has stored
	log     []ckpt.AuditRow        // rows of the audit log that are still to be written
	barred  bool                   // whether the present operation may write nothing, because the disk is full
	adds    int64                  // at most so many bytes were stored by those that the disk may have no room for
	wrote   bool                   // whether anything was changed, so that leaving needs a rollback
	agents  map[agentKey]*agentRow // agents that this transaction changed; nil is one that is gone
	after   []func()               // to be done once all of it is on disk
	watched []int64                // runs whose watches it may have changed
	made    []ckpt.Finding         // findings that the present operation has made
	run0    *runRow                // the run that the present operation is about, and what is kept of it
	watch0  *watched
	damage  []error // checkpoints that the present operation found damaged
	gotOn   func()  // tells that the transaction makes progress
}

// statement is a prepared one. forgets says that it changes what hotRuns
// know, and is not one of those that tell them.
type statement struct {
	*sqlx.Stmt
	forgets  bool
	writes   bool
	stores   bool
	replaces bool // it stores in the place of something
}

// prepare answers a query's statement, and refuses one that writes where the
// operation may not.
func (tx *tx) prepare(query string) (*statement, error) {
	stmt := tx.stmts[query]
	if stmt == nil {
		prepared, err := tx.conn.PreparexContext(tx.ctx, query)
		if err != nil {
			return nil, err
		}
		stmt = &statement{prepared, forgets(query), writes(query), stores(query), strings.HasPrefix(query, "UPDATE")}
		tx.stmts[query] = stmt
	}
	if tx.barred && stmt.writes {
		return nil, errNoRoom
	}
	if stmt.forgets {
		tx.hot.forgetAll()
	}
	return stmt, nil
}

// writes says whether a statement changes a table.
func writes(query string) bool {
	verb, _, _ := strings.Cut(strings.TrimSpace(query), " ")
	return verb == "INSERT" || verb == "UPDATE" || verb == "DELETE" || verb == "REPLACE"
}

// exec changes something. query is a constant: the statements are kept by it.
func (tx *tx) exec(query string, args ...any) error {
	_, err := tx.execCount(query, args...)
	return err
}

// execCount is exec and answers how many rows were changed.
func (tx *tx) execCount(query string, args ...any) (int64, error) {
	stmt, err := tx.prepare(query)
	if err != nil {
		return 0, err
	}
	tx.wrote = true
	tx.count(stmt, args)
	result, err := stmt.ExecContext(tx.ctx, args...)
	if err != nil {
		return 0, err
	}
	return result.RowsAffected()
}

// get reads one row into dest and answers false where there is none.
func (tx *tx) get(dest any, query string, args ...any) (bool, error) {
	stmt, err := tx.prepare(query)
	if err != nil {
		return false, err
	}
	tx.count(stmt, args)
	err = stmt.GetContext(tx.ctx, dest, args...)
	if errors.Is(err, sql.ErrNoRows) {
		return false, nil
	}
	return err == nil, err
}

// list reads all rows into the slice that dest points to.
func (tx *tx) list(dest any, query string, args ...any) error {
	stmt, err := tx.prepare(query)
	if err != nil {
		return err
	}
	return stmt.SelectContext(tx.ctx, dest, args...)
}

// onCommit does f once the transaction is on disk, and never otherwise.
func (tx *tx) onCommit(f func()) { tx.after = append(tx.after, f) }
