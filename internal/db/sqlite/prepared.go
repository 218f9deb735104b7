package sqlite

import (
	"context"
	"crypto/sha256"
	"database/sql/driver"
	"fmt"

	"github.com/jmoiron/sqlx"
)

// statements are the prepared statements of the writer's connection. Each is prepared once for the
// connection's life.
type statements struct {
	of     map[string]*statement // by query
	schema *[sha256.Size]byte    // the schema's hash; nil until it is first needed
	args   []driver.NamedValue   // a buffer for the arguments of one change
}

func newStatements() *statements { return &statements{of: map[string]*statement{}} }

// statement is what is known of a query, with its prepared forms once a caller has needed them.
type statement struct {
	writes bool
	kept   any // what Hooks.Prepared has returned
	read   *sqlx.Stmt
	change change
}

// change is a statement of the driver itself. The writer's connection has one user, so a change
// does not need the locks, retries and copies of database/sql, which took 6 % of the daemon's
// processor time at 64 clients.
type change interface {
	driver.Stmt
	driver.StmtExecContext
}

// prepareRead prepares a query whose rows the caller reads.
func (tx *Tx) prepareRead(query string, args []any) (*sqlx.Stmt, error) {
	s, err := tx.statement(query, args)
	if err != nil {
		return nil, err
	}
	if s.read == nil {
		s.read, err = tx.Conn.PreparexContext(tx.Ctx, query)
	}
	return s.read, err
}

// prepareChange prepares a query that returns no rows.
func (tx *Tx) prepareChange(query string, args []any) (change, error) {
	s, err := tx.statement(query, args)
	if err != nil || s.change != nil {
		return s.change, err
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
		if s.change, ok = stmt.(change); !ok {
			return fmt.Errorf("the SQLite driver has an unexpected type of statement: %T", stmt)
		}
		return nil
	})
	return s.change, err
}

// statement looks up a query that is about to run. It refuses a query that writes if the operation
// must not write.
func (tx *Tx) statement(query string, args []any) (*statement, error) {
	s := tx.stmts.of[query]
	if s == nil {
		writes, tables, err := tx.touches(query, args)
		if err != nil {
			return &statement{}, err
		}
		s = &statement{writes: writes, kept: tx.hooks.Prepared(query, tables)}
		tx.stmts.of[query] = s
	}
	if tx.Barred && s.writes {
		return s, ErrNoRoom
	}
	tx.hooks.Runs(tx, s.kept, args)
	return s, nil
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
	for _, one := range s.of {
		if one.read != nil {
			_ = one.read.Close()
		}
		if one.change != nil {
			_ = one.change.Close()
		}
	}
}
