package db

import (
	"context"
	"embed"
	"fmt"
	"io/fs"
	"strconv"
	"strings"
	"time"

	ckpt "github.com/ckptsidecar/ckptsidecar"
	"github.com/google/uuid"
	"github.com/jmoiron/sqlx"
)

// migrations holds one file for each version after the first, named for the
// version that it produces: 0002_pieces.sql makes version 2 out of version 1.
// The first version has none: schema.sql made it.
//
//go:embed migrations
var migrations embed.FS

// migrate makes the newest schema, in one transaction. An older database is
// copied aside first.
func (s *Store) migrate(ctx context.Context) error {
	var version, tables int
	err := s.rw.QueryRowContext(ctx, `SELECT (SELECT user_version FROM pragma_user_version()),
		(SELECT count(*) FROM sqlite_schema WHERE name = 'audit_log')`).Scan(&version, &tables)
	if err != nil {
		return s.openError(err)
	}
	if version == ckpt.SchemaVersion && tables == 1 {
		return nil
	}
	if version > 0 {
		if err := s.backupBefore(ctx, version); err != nil {
			return err
		}
	}
	return s.patiently(ctx, func() error { return s.migrateFrom(ctx, version) })
}

func (s *Store) migrateFrom(ctx context.Context, version int) error {
	conn, err := s.rw.Connx(ctx)
	if err != nil {
		return err
	}
	defer conn.Close()
	if _, err := conn.ExecContext(ctx, `BEGIN IMMEDIATE`); err != nil {
		return err
	}
	if err := applyMigrations(ctx, conn, version, s.opt.Now()); err != nil {
		_, _ = conn.ExecContext(ctx, `ROLLBACK`)
		return err
	}
	_, err = conn.ExecContext(ctx, `COMMIT`)
	return err
}

// applyMigrations turns version (0: an empty file) into ckpt.SchemaVersion.
func applyMigrations(ctx context.Context, conn *sqlx.Conn, version int, now time.Time) error {
	if version > 0 {
		if err := stepUp(ctx, conn, version); err != nil {
			return err
		}
	}
	statements := []string{
		ckpt.Schema,
		`INSERT INTO audit_head (id, n, hash) SELECT 1, 0, '' WHERE NOT EXISTS (SELECT 1 FROM audit_head)`,
		fmt.Sprintf(`PRAGMA application_id = %d`, ckpt.ApplicationID),
		fmt.Sprintf(`PRAGMA user_version = %d`, ckpt.SchemaVersion),
	}
	for _, statement := range statements {
		if _, err := conn.ExecContext(ctx, statement); err != nil {
			return err
		}
	}
	_, err := conn.ExecContext(ctx, `INSERT INTO meta (key, value) SELECT column1, column2 FROM (VALUES ('database_id', ?), ('created_at', ?))
		WHERE column1 NOT IN (SELECT key FROM meta)`, uuid.NewString(), ckpt.At(now).String())
	return err
}

// stepUp runs the files of the versions above version, in order.
func stepUp(ctx context.Context, conn *sqlx.Conn, version int) error {
	names, err := fs.Glob(migrations, "migrations/*.sql")
	if err != nil {
		return err
	}
	for _, name := range names { // sorted
		number, _, _ := strings.Cut(strings.TrimPrefix(name, "migrations/"), "_")
		produces, err := strconv.Atoi(number)
		if err != nil {
			return fmt.Errorf("%s is not named for a version: %w", name, err)
		}
		if produces <= version {
			continue
		}
		script, err := migrations.ReadFile(name)
		if err != nil {
			return err
		}
		if _, err := conn.ExecContext(ctx, string(script)); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
	}
	return nil
}

// backupBefore copies a database aside before its schema changes. The copy is
// faithful, not certified: a checkpoint that is damaged already must not keep
// the daemon from starting.
func (s *Store) backupBefore(ctx context.Context, version int) error {
	out := fmt.Sprintf("%s.v%d-%s", s.opt.Path, version, s.opt.Now().UTC().Format("20060102T150405Z"))
	if err := copyAside(ctx, s.opt.Path, out); err != nil {
		return &OperatorError{"the database must be migrated, and the copy that is made before cannot be: " + out, err}
	}
	s.log.Info("copied the database before its schema changes", "from_version", version, "copy", out)
	return nil
}
