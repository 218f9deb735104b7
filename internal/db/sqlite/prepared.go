package sqlite

import (
	"context"
	"database/sql/driver"
	"fmt"

	"github.com/jmoiron/sqlx"
)

// statements are the prepared statements of the writer's connection. Each is prepared once for the
// connection's life.
type statements struct {
	reads   map[string]*sqlx.Stmt // by query
	changes map[string]change
	args    []driver.NamedValue // a buffer for the arguments of one change
}

func newStatements() *statements {
	return &statements{reads: map[string]*sqlx.Stmt{}, changes: map[string]change{}}
}

// change is a statement of the driver itself. The writer's connection has one user, so a change
// does not need the locks, retries and copies of database/sql, which took 6 % of the daemon's
// processor time at 64 clients.
type change interface {
	driver.Stmt
	driver.StmtExecContext
}

// prepareRead prepares a query whose rows the caller reads.
func (tx *Tx) prepareRead(query string) (*sqlx.Stmt, error) {
	if stmt := tx.stmts.reads[query]; stmt != nil {
		return stmt, nil
	}
	stmt, err := tx.Conn.PreparexContext(tx.Ctx, query)
	if err == nil {
		tx.stmts.reads[query] = stmt
	}
	return stmt, err
}

// prepareChange prepares a query that returns no rows.
func (tx *Tx) prepareChange(query string) (c change, err error) {
	if c := tx.stmts.changes[query]; c != nil {
		return c, nil
	}
	err = tx.Conn.Raw(func(conn any) error {
		prepares, ok := conn.(driver.ConnPrepareContext)
		if !ok {
			return fmt.Errorf("the SQLite driver has an unexpected type of connection: %T", conn)
		}
		stmt, err := prepares.PrepareContext(tx.Ctx, query)
		if err != nil {
			return err
		}
		if c, ok = stmt.(change); !ok {
			return fmt.Errorf("the SQLite driver has an unexpected type of statement: %T", stmt)
		}
		tx.stmts.changes[query] = c
		return nil
	})
	return c, err
}

// run makes the change and returns how many rows it has changed.
func (s *statements) run(ctx context.Context, c change, args []any) (int64, error) {
	bound := s.args[:0]
	defer func() { clear(bound); s.args = bound }() // a state must not stay in memory
	for i, arg := range args {
		value, err := driver.DefaultParameterConverter.ConvertValue(arg)
		if err != nil {
			return 0, fmt.Errorf("argument %d of a statement: %w", i+1, err)
		}
		bound = append(bound, driver.NamedValue{Ordinal: i + 1, Value: value})
	}
	result, err := c.ExecContext(ctx, bound)
	if err != nil {
		return 0, err
	}
	return result.RowsAffected()
}

func (s *statements) close() {
	for _, stmt := range s.reads {
		_ = stmt.Close()
	}
	for _, c := range s.changes {
		_ = c.Close()
	}
}
