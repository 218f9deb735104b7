package ledger

import (
	"context"
	"slices"
	"time"

	ckpt "github.com/ckptsidecar/ckptsidecar"
	"github.com/ckptsidecar/ckptsidecar/internal/db/sqlite"
	"github.com/ckptsidecar/ckptsidecar/internal/db/usage"
)

// The oldest rows of the audit log may be in a file: an archive. Once the database has recorded
// which rows the file has, small transactions remove those rows from the log, oldest first. Some
// rows stay: the rows of saves whose checkpoints are here, the changes of those checkpoints' labels
// and pins, rows that a later row names, and rows that record that an agent was given to another
// owner. The table audit_links keeps the hash of a removed row if the next row is here, so that the
// chain can still be checked from there on.

// ArchiveMinAge is the minimum age of a row that is archived. The rows of the last week are needed
// to answer repeated saves.
const ArchiveMinAge = 8 * 24 * time.Hour

// archivedAtOnce is how many rows one transaction removes.
const archivedAtOnce = 1000

// RecordArchive records that a file has the oldest rows of the audit log. The entry e says who does
// it. From then on, those rows may be removed. Recording the same archive again changes nothing.
func (s *Core) RecordArchive(ctx context.Context, e AuditEntry, r ckpt.AuditArchive) error {
	last, err := s.lastArchived(ctx)
	if err != nil {
		return err
	}
	if r == last.AuditArchive {
		return nil
	}
	if r.FromN != last.ToN+1 {
		return ckpt.Errorf(ckpt.CodeConflict, "the archive begins with row %d of the audit log, "+
			"and rows up to %d are already archived: create it again", r.FromN, last.ToN)
	}
	var row struct {
		Hash   ckpt.Ref `db:"hash"`
		Newest int64    `db:"newest"`
	}
	err = s.RO.GetContext(ctx, &row, `SELECT `+HashOf(`?1`)+` AS hash, coalesce((SELECT max(at) FROM acts WHERE n <= ?1), 0) AS newest`, r.ToN)
	if err != nil {
		return sqlite.ReadError(err)
	}
	if string(row.Hash) != r.Hash {
		return ckpt.Errorf(ckpt.CodeConflict, "row %d of the audit log has another hash than the archive says: "+
			"it is an archive of another database", r.ToN)
	}
	if newest := time.UnixMilli(row.Newest); s.Opt.Now().Sub(newest) < ArchiveMinAge {
		return ckpt.Errorf(ckpt.CodeInvalid, "row %d of the audit log is from %s: "+
			"rows of the last %s stay in the database, because repeated requests are answered from them",
			r.ToN, ckpt.At(newest), ckpt.Duration(ArchiveMinAge))
	}
	return s.Submit(&Op{Owner: Daemon, Claim: sqlite.Frees, Do: func(tx *Tx) error {
		if r.ToN >= tx.Head.N {
			return ckpt.Errorf(ckpt.CodeInvalid, "row %d of the audit log is its last row, which cannot be archived: choose an earlier time", r.ToN)
		}
		err := tx.Insert(`INSERT INTO audit_archives (to_n, from_n, hash, name, sha256, bytes, at, who) VALUES (?, ?, ?, ?, ?, ?, ?, ?)`,
			r.ToN, r.FromN, r.Hash, r.Name, r.SHA256, r.Bytes, tx.Now, e.Who)
		if err != nil {
			return err
		}
		e.Detail = map[string]any{"from_n": r.FromN, "to_n": r.ToN, "hash": r.Hash, "name": r.Name, "sha256": r.SHA256, "bytes": r.Bytes}
		return tx.Audit(e)
	}})
}

// Archived is the newest archive.
type Archived struct {
	ckpt.AuditArchive
	Removed int64 `db:"removed"`
}

func (s *Core) lastArchived(ctx context.Context) (last Archived, err error) {
	err = s.RO.GetContext(ctx, &last, `SELECT from_n, to_n, hash, name, sha256, bytes, removed FROM audit_archives ORDER BY to_n DESC LIMIT 1`)
	if IsNoRows(err) {
		err = nil
	}
	return last, sqlite.ReadError(err)
}

// rowsStillNamed selects the rows up to ?1 that stay: of saves whose checkpoints are here, of changes of those, of
// keys, of agents that got another owner, and rows that one of these or a later row names.
var rowsStillNamed = `WITH own (n) AS (
		SELECT n FROM checkpoints WHERE n <= ?1 UNION SELECT n FROM ids WHERE n <= ?1
		UNION SELECT a.n FROM acts a WHERE a.n <= ?1 AND a.action = 'change'
		AND ` + UUIDOf("a.subject") + ` IN (SELECT id FROM checkpoints WHERE n <= ?1)
		UNION SELECT n FROM owner_changes WHERE n <= ?1 UNION SELECT n + 1 FROM owner_changes WHERE n < ?1
	), naming AS (SELECT gone, parent, more FROM acts WHERE n > ?1 UNION ALL SELECT gone, parent, more FROM acts WHERE n IN (SELECT n FROM own))
	SELECT n FROM own UNION SELECT gone FROM naming WHERE gone <= ?1 UNION SELECT parent FROM naming WHERE parent <= ?1
	UNION SELECT json_extract(e.value, '$[0]') FROM naming, json_each(naming.more, '$.removed') e
	WHERE naming.more IS NOT NULL AND json_extract(e.value, '$[0]') <= ?1`

// DropArchived removes rows that are in an archive, and returns how many it removed. The next call
// removes the rows for which there was no time.
func (s *Core) DropArchived(ctx context.Context) (total int64, err error) {
	last, err := s.lastArchived(ctx)
	if err != nil || last.ToN == 0 {
		return 0, err
	}
	kept, err := s.stillNamed(ctx, last.ToN)
	if err != nil {
		return 0, sqlite.ReadError(err)
	}
	owners := map[string]bool{}
	for after := int64(0); ctx.Err() == nil; {
		var rows []int64
		err := s.RO.SelectContext(ctx, &rows, `SELECT n FROM acts WHERE n > ? AND n <= ? ORDER BY n LIMIT 0 + ?`, after, last.ToN, archivedAtOnce)
		if err != nil {
			return total, sqlite.ReadError(err)
		}
		if len(rows) == 0 {
			break
		}
		after = rows[len(rows)-1]
		rows = slices.DeleteFunc(rows, func(n int64) bool { return kept[n] })
		if len(rows) == 0 {
			continue
		}
		err = s.Submit(&Op{Owner: Daemon, Claim: sqlite.Frees, Do: func(tx *Tx) error { return tx.dropRows(rows, last.ToN, owners) }})
		if err != nil {
			return total, err
		}
		total += int64(len(rows))
	}
	for owner := range owners {
		s.Usage.RecountAfter(ctx, owner)
	}
	return total, ctx.Err()
}

// stillNamed returns the rows up to a number that a newer row, or something that is still here,
// names. A later row names only saves of checkpoints that are here now.
func (s *Core) stillNamed(ctx context.Context, to int64) (map[int64]bool, error) {
	var rows []int64
	err := s.RO.SelectContext(ctx, &rows, rowsStillNamed, to)
	named := make(map[int64]bool, len(rows))
	for _, n := range rows {
		named[n] = true
	}
	return named, err
}

// dropRows removes rows, which are in ascending order.
func (tx *Tx) dropRows(rows []int64, floor int64, owners map[string]bool) error {
	for first := 0; first < len(rows); { // one range of consecutive rows after the other
		end := first + 1
		for end < len(rows) && rows[end] == rows[end-1]+1 {
			end++
		}
		if err := tx.dropStretch(rows[first], rows[end-1], owners); err != nil {
			return err
		}
		first = end
	}
	return tx.Exec(`UPDATE audit_archives SET removed = removed + ? WHERE to_n = ?`, len(rows), floor)
}

// dropStretch removes the rows from one number to another. It keeps the hash of the last one if the
// next row is here.
func (tx *Tx) dropStretch(from, to int64, owners map[string]bool) error {
	if tx.Tally.Counts() {
		var sizes []struct {
			Owner string `db:"owner"`
			Bytes int64  `db:"bytes"`
		}
		if err := tx.List(&sizes, usage.LogBetween, from, to, Daemon); err != nil {
			return err
		}
		for _, size := range sizes {
			owners[size.Owner] = true
			tx.Tally.AddLog(size.Owner, -size.Bytes)
		}
	}
	for _, statement := range []string{
		`INSERT INTO audit_links (n, hash) SELECT ?2, ` + HashOf(`?2`) + `
			WHERE EXISTS (SELECT 1 FROM acts WHERE n = ?2 + 1)`,
		`DELETE FROM audit_links WHERE n >= ?1 - 1 AND n < ?2`,
		`DELETE FROM act_texts WHERE n BETWEEN ?1 AND ?2`,
		`DELETE FROM acts WHERE n BETWEEN ?1 AND ?2`,
	} {
		if err := tx.Exec(statement, from, to); err != nil {
			return err
		}
	}
	return nil
}
