package blob

import (
	"maps"
	"slices"
	"strings"

	ckpt "github.com/ckptsidecar/ckptsidecar"
	"github.com/ckptsidecar/ckptsidecar/internal/db/sqlite"
)

// The pieces of the nearest checkpoint of a run that has pieces, before a place and after it. ?1 is
// the run, ?2 the place.
var (
	neighbourBefore = nearest(`seq < ?2 AND`, `DESC`, `pieces`)
	neighbourAfter  = nearest(`seq > ?2 AND`, ``, `pieces`)
)

// nearest selects columns of one checkpoint of run ?1 that has pieces: the first in an order by
// seq. The index has the kind before seq, so each kind is queried separately.
func nearest(where, order, columns string) string {
	var kinds []string
	for _, kind := range ckpt.Kinds {
		kinds = append(kinds, `SELECT slot, seq FROM (SELECT slot, seq FROM checkpoints WHERE run_id = ?1 AND kind = '`+string(kind)+`' AND `+where+
			` pieces IS NOT NULL ORDER BY seq `+order+` LIMIT 1)`)
	}
	return `SELECT ` + columns + ` FROM checkpoints WHERE slot = (SELECT slot
		FROM (` + strings.Join(kinds, ` UNION ALL `) + `) ORDER BY seq ` + order + ` LIMIT 1)`
}

// Sweep removes the segments of a removed checkpoint that no other checkpoint uses, and returns
// their bytes. It looks at only two other checkpoints: a checkpoint takes segments only from the
// newest of its run, so the checkpoints that use a segment are always next to one another.
func Sweep(tx *sqlite.Tx, runID, seq int64, pieces string) (freed int64, err error) {
	mine, err := segmentsOf(pieces)
	if err != nil {
		return 0, nil // a damaged list names nothing that could be freed; verify reports it
	}
	for _, query := range [...]string{neighbourBefore, neighbourAfter} {
		var theirs string
		found, err := tx.Get(&theirs, query, runID, seq)
		if err != nil {
			return 0, err
		}
		if !found {
			continue
		}
		used, err := segmentsOf(theirs)
		if err != nil { // it is not known what that one uses
			return 0, nil
		}
		for id := range used {
			delete(mine, id)
		}
	}
	for _, id := range slices.Sorted(maps.Keys(mine)) {
		var size int64
		if _, err := tx.Change(&size, `DELETE FROM segments WHERE id = ? AND run_id = ? RETURNING length(data)`, id, runID); err != nil {
			return 0, err
		}
		freed += size
	}
	return freed, nil
}

// segmentsOf is the set of segments that a list of pieces names.
func segmentsOf(pieces string) (map[int64]bool, error) {
	list, err := ReadPieces(pieces)
	if err != nil {
		return nil, err
	}
	set := make(map[int64]bool, len(list))
	for _, p := range list {
		set[p.Segment] = true
	}
	return set, nil
}
