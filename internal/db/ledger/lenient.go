package ledger

import (
	"database/sql"

	"github.com/ckptsidecar/ckptsidecar/internal/wellformed"
)

// Lenient is the tolerant scan of a column that may be damaged. Reading it never fails, so that one
// damaged row does not hide the others. A caller that uses the value must check damage.
type Lenient[T any] struct {
	Value  T
	damage error
}

// Scan reads the column as T would.
func (l *Lenient[T]) Scan(v any) error {
	l.damage = any(&l.Value).(sql.Scanner).Scan(v)
	return nil
}

// metadataDamage returns what is wrong with stored metadata, nil if nothing is.
func metadataDamage(text string) error { return wellformed.Metadata([]byte(text)) }
