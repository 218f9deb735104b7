package ledger

import (
	"context"
	"embed"
	"fmt"
	"io/fs"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/google/uuid"
	"github.com/jmoiron/sqlx"

	ckpt "github.com/ckptsidecar/ckptsidecar"
	"github.com/ckptsidecar/ckptsidecar/internal/db/sqlite"
)

// migrations holds the files of each version after the first: see migrations/README.md. There is
// none yet.
//
//go:embed migrations
var migrations embed.FS

// schemaOf is the schema that the engine gives a file.
func schemaOf(now func() time.Time) sqlite.Schema {
	identity := Identity()
	identity.Migrate = func(ctx context.Context, conn *sqlx.Conn, version int64) error {
		return applyMigrations(ctx, conn, version, now())
	}
	return identity
}

// Identity returns how a database of this program is told from other files. The fingerprint is
// computed at the first call: most commands open no database.
var Identity = sync.OnceValue(func() sqlite.Schema {
	return sqlite.Schema{ApplicationID: ckpt.ApplicationID, Version: ckpt.SchemaVersion, Fingerprint: ckpt.SchemaFingerprint()}
})

// applyMigrations turns version (0: an empty file) into ckpt.SchemaVersion.
func applyMigrations(ctx context.Context, conn *sqlx.Conn, version int64, now time.Time) error {
	if version > 0 {
		if err := stepUp(ctx, conn, migrations, version); err != nil {
			return err
		}
	}
	statements := []string{
		ckpt.Schema,
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
	if err != nil {
		return err
	}
	_, err = conn.ExecContext(ctx, `INSERT INTO meta (key, value) VALUES (?, ?)
		ON CONFLICT (key) DO UPDATE SET value = excluded.value`, sqlite.FingerprintKey, Identity().Fingerprint)
	return err
}

// stepUp runs the files of the versions above version, in order. Each is named for the version that it produces:
// 0002_TOPIC.sql makes version 2 out of version 1.
func stepUp(ctx context.Context, conn *sqlx.Conn, files fs.FS, version int64) error {
	names, err := fs.Glob(files, "migrations/*.sql")
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
		script, err := fs.ReadFile(files, name)
		if err != nil {
			return err
		}
		if _, err := conn.ExecContext(ctx, string(script)); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
	}
	return nil
}
