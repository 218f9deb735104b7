package usage

import (
	"fmt"
	"strings"

	"github.com/ckptsidecar/ckptsidecar/internal/db/sqlite"
)

// actCost is how many bytes a row of the audit log uses besides its texts.
const actCost = 160

// ActLength is how many bytes a row of the audit log uses, with texts of this many bytes.
func ActLength(texts int) int64 { return actCost + int64(texts) }

// PlaceLength is how many bytes the names of a new run use in the audit log.
func PlaceLength(agent, run string) int64 { return sqlite.RowCost + int64(len(agent)+len(run)) }

// The same in SQL. logRows are the owners who have caused rows of the audit log after row ?1, and
// the bytes of each row. ?2 is the daemon's name.
var (
	logRows = `SELECT owner, bytes FROM (` + logBytes + `) WHERE n > ?1`
	// LogBetween gives for each owner the bytes of the rows from ?1 to ?2. ?3 is the daemon's name.
	LogBetween = `SELECT owner, sum(bytes) AS bytes FROM (` + strings.ReplaceAll(logBytes, "?2", "?3") + `) WHERE n BETWEEN ?1 AND ?2 GROUP BY owner`

	logBytes = `SELECT a.n AS n, p.owner AS owner, ` + fmt.Sprint(actCost) + `
			+ CASE WHEN p.n = a.n THEN ` + fmt.Sprint(sqlite.RowCost) + ` + octet_length(p.agent) + octet_length(p.run) ELSE 0 END
			+ coalesce((SELECT ` + OfTexts + ` FROM act_texts t WHERE t.n = a.n), 0) AS bytes
		FROM acts a JOIN places p ON p.id = a.place WHERE p.owner <> '' AND (a.who IS NULL OR a.who = ?2)`
)

// OfTexts is how many bytes a row t of act_texts uses, in SQL.
const OfTexts = `coalesce(octet_length(t.subject), 0) + coalesce(octet_length(t.reason), 0) + coalesce(octet_length(t.detail), 0)`

// lengths is how many bytes a row with these columns uses, in SQL. octet_length does not read the
// value that it measures.
func lengths(columns ...string) string {
	var b strings.Builder
	fmt.Fprint(&b, sqlite.RowCost)
	for _, column := range columns {
		fmt.Fprintf(&b, " + coalesce(octet_length(%s), 0)", column)
	}
	return b.String()
}
