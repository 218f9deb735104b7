package sqlite

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/ckptsidecar/ckptsidecar/internal/osfile"
)

// migrate brings the schema up to date in one transaction. It copies an older database aside first.
func (e *Engine) migrate(ctx context.Context) error {
	id, err := e.opt.Schema.identify(ctx, e.rw)
	if err != nil {
		return e.OpenError(err)
	}
	version := id.version
	if version == e.opt.Schema.Version {
		return nil
	}
	var before string
	if version > 0 {
		if before, err = e.backupBefore(ctx, id); err != nil {
			return err
		}
	}
	begin := time.Now()
	err = e.Patiently(ctx, func() error { return e.migrateFrom(ctx, version) })
	var doubt *FatalError
	if err != nil && before != "" && !errors.As(err, &doubt) {
		// Nothing has changed, and each start tries again: copies of failed ones would fill the disk.
		return errors.Join(err, os.Remove(before))
	}
	if err == nil && version > 0 {
		e.log.Info("migrated the database", "from_version", version, "to_version", e.opt.Schema.Version,
			"took", time.Since(begin).Round(time.Millisecond))
	}
	return err
}

func (e *Engine) migrateFrom(ctx context.Context, version int64) error {
	conn, err := e.rw.Connx(ctx)
	if err != nil {
		return err
	}
	defer conn.Close()
	if _, err := conn.ExecContext(ctx, `BEGIN IMMEDIATE`); err != nil {
		return err
	}
	if err := e.opt.Schema.Migrate(ctx, conn, version); err != nil {
		_, _ = conn.ExecContext(ctx, `ROLLBACK`)
		return err
	}
	_, err = conn.ExecContext(ctx, `COMMIT`)
	return err
}

// backupBefore copies a database aside before its schema changes, and reads the identity of the
// copy back. It does not check the states: a checkpoint that is already damaged must not keep the
// daemon from starting.
func (e *Engine) backupBefore(ctx context.Context, from identity) (out string, err error) {
	if err := e.roomToMigrate(); err != nil {
		return "", err
	}
	out = freeName(fmt.Sprintf("%s.v%d-%s", e.opt.Path, from.version, e.opt.Now().UTC().Format("20060102T150405Z")))
	if err := Backup(ctx, e.opt.Path, out, func(made string) error { return e.sameAs(ctx, made, from) }); err != nil {
		return "", &OperatorError{"the database must be migrated, and the copy before the migration failed: " + out, err}
	}
	e.log.Info("copied the database before its schema changes", "from_version", from.version, "copy", out)
	return out, nil
}

// sameAs checks that a copy has the identity of its database.
func (e *Engine) sameAs(ctx context.Context, made string, from identity) error {
	db, done, err := OpenBeside(made, 1)
	if err != nil {
		return err
	}
	defer done()
	id, err := e.opt.Schema.identify(ctx, db)
	if err == nil && id != from {
		err = fmt.Errorf("the copy has schema version %d and %d objects, the database has version %d and %d", id.version, id.objects, from.version, from.objects)
	}
	return err
}

// migrationRoom is the space that a migration needs besides the copy, however small the file is.
const migrationRoom = 16 << 20

// roomToMigrate refuses to begin if the disk has no space for the copy and for the rows that the
// migration rewrites.
func (e *Engine) roomToMigrate() error {
	size, log := e.Sizes()
	need := size + log + migrationRoom
	dir := filepath.Dir(e.opt.Path)
	free, _, err := osfile.DiskSpace(dir)
	if err != nil || free >= need { // if the free space is unknown, the copy finds out
		return nil
	}
	return &OperatorError{Message: fmt.Sprintf("the database must be migrated, which copies it first and rewrites parts of it: this needs %d MB "+
		"on the disk of %s, and %d MB are free. "+
		"Free %d MB more and start again", need>>20, dir, free>>20, (need-free)>>20+1)}
}
