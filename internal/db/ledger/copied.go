package ledger

import (
	"context"
	"errors"
	"io/fs"
	"os"
)

// lookAtCopy checks a database with a log that no daemon has had in this place,
// as the missing file of the head says. SQLite puts the pages of a log over any
// database, so those of another moment make a mixture. That one is only read.
func (s *Core) lookAtCopy(ctx context.Context) error {
	_, err := os.Lstat(s.Opt.Path + HeadSuffix)
	if !errors.Is(err, fs.ErrNotExist) || s.Opt.Lock != nil || s.Engine.ReadOnly() != "" || !s.Engine.HasLog() {
		return nil
	}
	return s.Engine.DoubtLog(ctx)
}
