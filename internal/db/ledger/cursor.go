package ledger

import (
	"database/sql"
	"errors"
	"strconv"
	"strings"

	ckpt "github.com/ckptsidecar/ckptsidecar"
)

// PageBytes is about the most bytes that a page of large items carries; the rest is on the next
// page.
const PageBytes = 16 << 20

func IsNoRows(err error) bool { return errors.Is(err, sql.ErrNoRows) }

// PageSizeOf returns the page size for a requested limit.
func PageSizeOf(limit int) (int, error) {
	switch {
	case limit == 0:
		return ckpt.DefaultLimit, nil
	case limit < 0 || limit > ckpt.MaxLimit:
		return 0, ckpt.Errorf(ckpt.CodeInvalid, "limit must be between 1 and %[2]d; got %[1]d", limit, ckpt.MaxLimit)
	}
	return limit, nil
}

// ReadCursor reads the cursor of a list: the number of a row, such as the place of a checkpoint in
// the order of all saves.
func (c RowNumbers) ReadCursor(cursor string) (int64, error) {
	if cursor == "" {
		return 1 << 62, nil
	}
	n, err := strconv.ParseInt(cursor, 36, 64)
	if err != nil || n <= 0 {
		return 0, BadCursor()
	}
	return c.row(n), nil
}

// WriteCursor returns the cursor of a row.
func (c RowNumbers) WriteCursor(n int64) ckpt.Ref { return ckpt.Ref(strconv.FormatInt(c.of(n), 36)) }

func readAgentCursor(cursor string) (owner, name string, err error) {
	if cursor == "" {
		return "", "", nil
	}
	owner, name, found := strings.Cut(cursor, "/")
	if !found {
		return "", "", BadCursor()
	}
	return owner, name, nil
}

func BadCursor() error {
	return ckpt.Errorf(ckpt.CodeInvalid, "the cursor did not come from a list: pass \"next\" of the previous page unchanged")
}

// readRun reads the cursor of a list of runs in an order: the time of the run's last change or
// start, and its number.
func (c RowNumbers) readRun(cursor string, sort ckpt.RunSort) (at string, id int64, err error) {
	if cursor == "" {
		return "9999", 0, nil
	}
	cursor, started := strings.CutPrefix(cursor, "s")
	at, number, found := strings.Cut(cursor, "/")
	if id, err = strconv.ParseInt(number, 36, 64); err != nil || !found {
		return "", 0, BadCursor()
	}
	if started != (sort == ckpt.SortStarted) {
		return "", 0, ckpt.Errorf(ckpt.CodeInvalid, "the cursor belongs to a list in another order: "+
			"pass \"next\" of the previous page with the same sort")
	}
	return at, c.row(id), nil
}

func (c RowNumbers) writeRun(r *ReadRun, sort ckpt.RunSort) ckpt.Ref {
	if sort == ckpt.SortStarted {
		return ckpt.Ref("s" + r.StartedAt.String() + "/" + strconv.FormatInt(c.of(r.ID), 36))
	}
	return ckpt.Ref(r.UpdatedAt.String() + "/" + strconv.FormatInt(c.of(r.ID), 36))
}

func ErrOr(err, other error) error {
	if err != nil {
		return err
	}
	return other
}
