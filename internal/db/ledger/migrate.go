package ledger

import (
	"context"
	"embed"
	"fmt"
	"io/fs"
	"strconv"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/jmoiron/sqlx"

	ckpt "github.com/ckptsidecar/ckptsidecar"
	"github.com/ckptsidecar/ckptsidecar/internal/db/sqlite"
)

// migrations holds the files of each version after the first. Each is named for the version that it
// produces: 0002_guards.sql makes version 2 out of version 1. The first version has none, because
// schema.sql made it.
//
//go:embed migrations
var migrations embed.FS

// writesAnew is Schema.Writes: version 4 copies checkpoints into a new table, which is in the log
// and then in the file before the old table's pages are free. Later versions change little.
func writesAnew(version int64) int64 {
	if version < 4 {
		return 2
	}
	return 0
}

// schemaOf is the schema that the engine gives a file.
func schemaOf(now func() time.Time) sqlite.Schema {
	return sqlite.Schema{ApplicationID: ckpt.ApplicationID, Version: ckpt.SchemaVersion, Table: "audit_head", Writes: writesAnew,
		Migrate: func(ctx context.Context, conn *sqlx.Conn, version int64) error {
			return applyMigrations(ctx, conn, version, now())
		}}
}

// applyMigrations turns version (0: an empty file) into ckpt.SchemaVersion.
func applyMigrations(ctx context.Context, conn *sqlx.Conn, version int64, now time.Time) error {
	if version > 0 {
		if err := StepUp(ctx, conn, version); err != nil {
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
	_, err := conn.ExecContext(ctx, `INSERT INTO meta (key, value) SELECT column1, column2
		FROM (VALUES ('database_id', ?), ('created_at', ?), ('chain_key', lower(hex(randomblob(32)))))
		WHERE column1 NOT IN (SELECT key FROM meta)`, uuid.NewString(), ckpt.At(now).String())
	return err
}

// StepUp runs the files of the versions above version, in order.
func StepUp(ctx context.Context, conn *sqlx.Conn, version int64) error {
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
		if int64(produces) <= version {
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
