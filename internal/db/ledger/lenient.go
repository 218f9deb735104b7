package ledger

import (
	"database/sql"

	"github.com/ckptsidecar/ckptsidecar/internal/wellformed"
)

// Lenient is a column that may be damaged. To read it never fails, so that one
// damaged row does not hide the others; whoever uses the value asks damage.
type Lenient[T any] struct {
	Value  T
	damage error
}

// Scan reads the column as T would.
func (l *Lenient[T]) Scan(v any) error {
	l.damage = any(&l.Value).(sql.Scanner).Scan(v)
	return nil
}

// metadataDamage answers what is wrong with stored metadata, nil for nothing.
func metadataDamage(text string) error { return wellformed.Metadata([]byte(text)) }
