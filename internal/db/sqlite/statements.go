package sqlite

import (
	"context"
	"database/sql/driver"
	"fmt"
	"io"
)

// statementsMost is how many prepared statements a reading connection keeps. About thirty queries
// are read again and again; a few more are composed for lists.
const statementsMost = 64

// keeper opens connections that keep prepared statements: SQLite takes longer to prepare most of
// our reads than to answer them.
type keeper struct {
	driver.Connector
	met func(error) // called with each error of a query
}

// fullConn is everything that database/sql asks of SQLite's connections.
type fullConn interface {
	driver.Conn
	driver.ConnBeginTx
	driver.ConnPrepareContext
	driver.ExecerContext
	driver.QueryerContext
	driver.Pinger
	driver.SessionResetter
	driver.Validator
}

func (k keeper) Connect(ctx context.Context) (driver.Conn, error) {
	conn, err := k.Connector.Connect(ctx)
	if err != nil {
		return nil, err
	}
	full, ok := conn.(fullConn)
	if !ok {
		_ = conn.Close()
		return nil, fmt.Errorf("the SQLite driver has an unexpected type of connection: %T", conn)
	}
	return &keepingConn{full, map[string]*keptStatement{}, k.met}, nil
}

// keepingConn is a connection that keeps statements. Only its current user calls it.
type keepingConn struct {
	fullConn
	kept map[string]*keptStatement
	met  func(error)
}

type keptStatement struct {
	readStatement
	busy bool // its rows are still being read
}

type readStatement interface {
	driver.Stmt
	driver.StmtQueryContext
}

// QueryContext prepares a query once. If rows of that statement are still being read, it prepares
// another statement for this call.
func (c *keepingConn) QueryContext(ctx context.Context, query string, args []driver.NamedValue) (driver.Rows, error) {
	rows, err := c.query(ctx, query, args)
	if err != nil {
		c.met(err)
	}
	return rows, err
}

func (c *keepingConn) query(ctx context.Context, query string, args []driver.NamedValue) (driver.Rows, error) {
	s, err := c.keep(ctx, query)
	if err != nil {
		return nil, err
	}
	if s == nil || s.busy {
		return c.fullConn.QueryContext(ctx, query, args)
	}
	rows, err := s.QueryContext(ctx, args)
	if err != nil {
		return nil, err
	}
	s.busy = true
	return &keptRows{rows, s, c.met}, nil
}

// keep returns a query's statement, nil if it cannot be kept.
func (c *keepingConn) keep(ctx context.Context, query string) (*keptStatement, error) {
	if s := c.kept[query]; s != nil {
		return s, nil
	}
	stmt, err := c.PrepareContext(ctx, query)
	if err != nil {
		return nil, err
	}
	reads, ok := stmt.(readStatement)
	if !ok || !c.makeRoom() {
		return nil, stmt.Close()
	}
	s := &keptStatement{readStatement: reads}
	c.kept[query] = s
	return s, nil
}

// makeRoom drops any statement if there are too many.
func (c *keepingConn) makeRoom() bool {
	if len(c.kept) < statementsMost {
		return true
	}
	for query, s := range c.kept {
		if !s.busy {
			delete(c.kept, query)
			return s.Close() == nil
		}
	}
	return false
}

func (c *keepingConn) Close() error {
	for _, s := range c.kept {
		_ = s.Close() // closing the connection frees it in any case
	}
	clear(c.kept)
	return c.fullConn.Close()
}

// keptRows notes when the rows have been read.
type keptRows struct {
	driver.Rows
	of  *keptStatement
	met func(error)
}

// Next reads a row. SQLite may need its lock only for the first row.
func (r *keptRows) Next(dest []driver.Value) error {
	err := r.Rows.Next(dest)
	if err != nil && err != io.EOF {
		r.met(err)
	}
	return err
}

func (r *keptRows) Close() error {
	r.of.busy = false
	return r.Rows.Close()
}
