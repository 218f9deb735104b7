package db

import (
	"database/sql"

	"github.com/ckptsidecar/ckptsidecar/internal/wellformed"
)

// lenient is a column that may be damaged. To read it never fails, so that one
// damaged row does not hide the others; whoever uses the value asks damage.
type lenient[T any] struct {
	value  T
	damage error
}

// Scan reads the column as T would.
func (l *lenient[T]) Scan(v any) error {
	l.damage = any(&l.value).(sql.Scanner).Scan(v)
	return nil
}

// metadataDamage answers what is wrong with stored metadata, nil for nothing.
func metadataDamage(text string) error { return wellformed.Metadata([]byte(text)) }
