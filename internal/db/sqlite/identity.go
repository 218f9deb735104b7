package sqlite

import (
	"context"
	"fmt"

	"github.com/jmoiron/sqlx"
)

// identity is what a file says about its program and its schema.
type identity struct {
	application int64
	version     int64
	fingerprint string // of its tables; "" if it has none
	objects     int64  // tables, indexes, views and triggers
}

// empty says that the file has nothing yet.
func (id *identity) empty() bool { return id.application == 0 && id.objects == 0 }

// identify reads the identity of a file.
func (s *Schema) identify(ctx context.Context, db sqlx.QueryerContext) (id identity, err error) {
	var keeps bool
	err = db.QueryRowxContext(ctx, `SELECT (SELECT application_id FROM pragma_application_id()), (SELECT user_version FROM pragma_user_version()),
		(SELECT count(*) FROM sqlite_schema), EXISTS (SELECT 1 FROM sqlite_schema WHERE name = 'meta')`).
		Scan(&id.application, &id.version, &id.objects, &keeps)
	if err != nil || !keeps || id.application != s.ApplicationID {
		return id, err
	}
	var fingerprints []string
	err = sqlx.SelectContext(ctx, db, &fingerprints, `SELECT value FROM meta WHERE key = '`+FingerprintKey+`'`)
	if len(fingerprints) > 0 {
		id.fingerprint = fingerprints[0]
	}
	return id, err
}

// refuse says why a file cannot be used by this program, nil if it can.
func (s *Schema) refuse(path string, id identity) error {
	switch {
	case id.application != s.ApplicationID:
		return &OperatorError{fmt.Sprintf("%s is a database of another program (application_id %d): name another with --db", path, id.application), nil}
	case id.fingerprint == "" || id.version < 1 || id.version == s.Version && id.fingerprint != s.Fingerprint:
		return &OperatorError{fmt.Sprintf("%s was made by an unreleased version of ckptsidecar, and this program cannot read it: nothing was changed. "+
			"Move the file away, or name another with --db. sqlite3 still opens it", path), nil}
	case id.version > s.Version:
		return &OperatorError{fmt.Sprintf("%s has schema version %d, and this program knows up to version %d: use the newer "+
			"ckptsidecar that made it", path, id.version, s.Version), nil}
	}
	return nil
}

// Check says why a file cannot be used by this program, nil if it can. An empty file is refused.
func (s *Schema) Check(ctx context.Context, db sqlx.QueryerContext, path string) error {
	id, err := s.identify(ctx, db)
	if err != nil {
		return err
	}
	return s.refuse(path, id)
}
