package ledger

import (
	"context"
	"errors"
	"io/fs"
	"os"
)

// lookAtCopy checks a database that has a log although no daemon has used it in this place, as the
// missing head file shows. SQLite applies the pages of a log to any database, so pages of another
// moment make a mixture. A mixture is served for reading only.
func (s *Core) lookAtCopy(ctx context.Context) error {
	_, err := os.Lstat(s.Opt.Path + HeadSuffix)
	if !errors.Is(err, fs.ErrNotExist) || s.Opt.Lock != nil || s.Engine.ReadOnly() != "" || !s.Engine.HasLog() {
		return nil
	}
	return s.Engine.DoubtLog(ctx)
}
