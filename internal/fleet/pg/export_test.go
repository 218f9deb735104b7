package pg

import "context"

// FallSilent begins a batch as Ship does, and does not end it.
func (e *Engine) FallSilent(ctx context.Context, db string) error {
	if _, err := e.conn.Exec(ctx, `BEGIN`); err != nil {
		return err
	}
	_, err := e.conn.Exec(ctx, `UPDATE fleet_marks SET beats = beats + 1 WHERE db = $1`, db)
	return err
}
